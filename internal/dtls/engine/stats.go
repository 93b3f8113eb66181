package engine

import (
	"sync"

	"github.com/weir-lb/weir/internal/metrics"
)

// Stats counts since Open, except Sessions, HalfOpen and UnprovenPeers, which are current.
type Stats struct {
	Sessions uint64 `json:"sessions" metric:"_sessions" help:"DTLS sessions and plain peers that the workers remember."`
	HalfOpen uint64 `json:"half_open" metric:"_half_open" help:"Handshakes under way whose address a cookie has proven."`

	// Of the sessions in Config.Arena.
	Kept        uint64 `json:"sessions_kept" metric:"_sessions_kept" help:"DTLS sessions that outlive the process."`
	NotKept     uint64 `json:"sessions_not_kept" metric:"_sessions_not_kept_total" help:"DTLS sessions that end with the process, because the arena had no slot or the identity is longer than 128 bytes."`
	Restored    uint64 `json:"sessions_restored" metric:"_sessions_restored_total" help:"DTLS sessions taken over from the process before."`
	RestoreLost uint64 `json:"sessions_restore_lost" metric:"_sessions_restore_lost_total" help:"DTLS sessions of the process before that do not fit this one: no room, or other connection ids."`

	// Of what the process before had under way, in Config.InFlight.
	LeftHandled uint64 `json:"left_handled" metric:"_left_handled_total" help:"Datagrams that the process before had read and not handled."`
	LeftSent    uint64 `json:"left_sent" metric:"_left_sent_total" help:"Datagrams that the process before had sealed and perhaps not sent."`

	// Of a cluster whose nodes move sessions.
	MovedOut uint64 `json:"sessions_moved_out" metric:"_sessions_moved_out_total" help:"DTLS sessions that left for another node of the cluster."`
	MovedIn  uint64 `json:"sessions_moved_in" metric:"_sessions_moved_in_total" help:"DTLS sessions that came from another node of the cluster."`

	// Of a cluster whose nodes have copies of each other's sessions.
	NotCopied  uint64 `json:"sessions_not_copied" metric:"_sessions_not_copied_total" help:"DTLS sessions with connection ids that no other node has copies of, because there was no room."`
	TakenOver  uint64 `json:"sessions_taken_over" metric:"_sessions_taken_over_total" help:"DTLS sessions of nodes that have failed, which go on here."`
	Fenced     uint64 `json:"sessions_fenced" metric:"_sessions_fenced_total" help:"DTLS sessions dropped here, because another node has taken them over."`
	Silenced   uint64 `json:"silenced" metric:"_silenced_total" help:"Records of DTLS sessions not opened or not sealed, because another node may have the session."`
	LeaseSpent uint64 `json:"lease_spent" metric:"_lease_spent_total" help:"Records not sealed, because the node with the copies had not acknowledged further sequence numbers."`

	Rounds     uint64 `json:"rounds" metric:"_rounds_total" help:"Rounds of the workers; datagrams per round show how large batches are."`
	Datagrams  uint64 `json:"datagrams" metric:"_datagrams_total" help:"Datagrams received."`
	RecordsIn  uint64 `json:"records_in" metric:"_records_in_total" help:"DTLS records received."`
	RecordsOut uint64 `json:"records_out" metric:"_records_out_total" help:"DTLS records sent."`
	Requests   uint64 `json:"requests" metric:"_requests_total" help:"Messages passed to the CoAP layer."`
	BytesIn    uint64 `json:"received_bytes" metric:"_received_bytes_total" help:"Bytes received, without IP and UDP headers."`
	BytesOut   uint64 `json:"sent_bytes" metric:"_sent_bytes_total" help:"Bytes sent, without IP and UDP headers."`

	HelloVerifies    uint64 `json:"hello_verifies" metric:"_hello_verifies_total" help:"ClientHellos answered with a cookie, without keeping anything."`
	HellosIgnored    uint64 `json:"hellos_ignored" metric:"_hellos_ignored_total" help:"ClientHellos that are not well formed, in fragments, or received during a drain."`
	Signatures       uint64 `json:"signatures" metric:"_signatures_total" help:"Signatures made with the server's certificate or raw public key: one for each handshake with them, after its cookie has returned."`
	Handshakes       uint64 `json:"handshakes" metric:"_handshakes_total" help:"Handshakes completed."`
	Resumed          uint64 `json:"handshakes_resumed" metric:"_handshakes_resumed_total" help:"Handshakes completed that resumed a session."`
	HandshakesFailed uint64 `json:"handshakes_failed" metric:"_handshakes_failed_total" help:"Handshakes refused or given up: wrong key, no common parameters, timed out, no room for the session."`
	HalfOpenEvicted  uint64 `json:"half_open_evicted" metric:"_half_open_evicted_total" help:"Handshakes under way that made room for newer ones."`
	Replaced         uint64 `json:"replaced" metric:"_replaced_total" help:"Sessions whose address made a new one."`
	Renegotiations   uint64 `json:"renegotiations" metric:"_renegotiations_total" help:"Renegotiations that clients requested, all refused."`

	BadMACs        uint64 `json:"bad_macs" metric:"_bad_macs_total" help:"Records that failed to open, of sessions and of handshakes."`
	ForgedDropped  uint64 `json:"forged_dropped" metric:"_forged_dropped_total" help:"Records that were not tried, because too many from their source had failed to open."`
	ForgersEvicted uint64 `json:"forgers_evicted" metric:"_forgers_evicted_total" help:"Sources of such records that made room for others."`
	Spent          uint64 `json:"sessions_spent" metric:"_sessions_spent_total" help:"Sessions ended because too many records had failed to open."`
	Replays        uint64 `json:"replays" metric:"_replays_total" help:"Records received again."`
	Malformed      uint64 `json:"malformed" metric:"_malformed_total" help:"Records that are not well formed."`
	UnknownCIDs    uint64 `json:"unknown_cids" metric:"_unknown_cids_total" help:"Records with a connection id of no session."`
	UnknownAddress uint64 `json:"unknown_address" metric:"_unknown_address_total" help:"Records without a connection id, from an address of no session."`
	SessionsFull   uint64 `json:"sessions_full" metric:"_sessions_full_total" help:"New peers turned away, because the table was full."`
	Evicted        uint64 `json:"evicted" metric:"_evicted_total" help:"Sessions, and plain peers whose proof had expired, that made room."`
	// The sessions among Evicted, by the cases of makeRoom.
	EvictedSuperseded  uint64 `json:"evicted_superseded" metric:"_evicted_superseded_total" help:"Sessions that made room and whose identity has a newer one."`
	EvictedOverShare   uint64 `json:"evicted_over_share" metric:"_evicted_over_share_total" help:"Sessions that made room and whose identity held more than its share."`
	EvictedOwnIdentity uint64 `json:"evicted_own_identity" metric:"_evicted_own_identity_total" help:"Sessions that made room for a newer one of their identity."`
	EvictedStale       uint64 `json:"evicted_stale" metric:"_evicted_stale_total" help:"Sessions that made room after a long silence."`
	Expired            uint64 `json:"sessions_expired" metric:"_sessions_expired_total" help:"Sessions closed after session_idle."`
	Drained            uint64 `json:"sessions_drained" metric:"_sessions_drained_total" help:"Sessions closed by the drain before the server's end."`
	Closed             uint64 `json:"closed" metric:"_closed_total" help:"Sessions and plain peers that ended, for whatever reason."`
	Alerts             uint64 `json:"alerts" metric:"_alerts_total" help:"Authentic alerts received."`
	AddressChanges     uint64 `json:"address_changes" metric:"_address_changes_total" help:"Sessions whose peer came from another address."`
	// AddressesProven counts addresses that proved themselves after a change, or without DTLS after their first datagram.
	AddressesProven uint64 `json:"addresses_proven" metric:"_addresses_proven_total" help:"Addresses that proved themselves after a change, or without DTLS after their first datagram."`
	PathChallenges  uint64 `json:"path_challenges" metric:"_path_challenges_total" help:"Return routability checks sent to new addresses of sessions (RFC 9853)."`
	UnprovenPeers   uint64 `json:"unproven_peers" metric:"_unproven_peers" help:"Plain peers that may be evicted, because their address is not proven."`
	UnprovenEvicted uint64 `json:"unproven_evicted" metric:"_unproven_evicted_total" help:"Unproven plain peers that made room."`
	Amplified       uint64 `json:"amplified" metric:"_amplified_total" help:"Datagrams that were not sent, because they exceed the budget of an unproven address."`
	EarlyHeld       uint64 `json:"early_held" metric:"_early_held_total" help:"Requests that came before the Finished message and were kept."`
	SendErrors      uint64 `json:"send_errors" metric:"_send_errors_total" help:"Messages that could not be sealed or sent."`

	Foreign         uint64 `json:"foreign" metric:"_foreign_total" help:"Datagrams given to the cluster, because another node owns their session."`
	ForeignUnknown  uint64 `json:"foreign_unknown" metric:"_foreign_unknown_total" help:"Datagrams whose owner the cluster did not know."`
	Injected        uint64 `json:"injected" metric:"_injected_total" help:"Datagrams that came through another node."`
	Returned        uint64 `json:"returned" metric:"_returned_total" help:"Records sent through another node."`
	LinkSegmented   uint64 `json:"link_segmented" metric:"_link_segmented_total" help:"Sends to other nodes that carried more than one datagram (UDP_SEGMENT)."`
	LinkUnsegmented uint64 `json:"link_unsegmented" metric:"_link_unsegmented_total" help:"Such sends that the kernel refused, so that each datagram left by itself."`
	HandedOver      uint64 `json:"handed_over" metric:"_handed_over_total" help:"Datagrams given to another worker of this node."`
	QueueFull       uint64 `json:"queue_full" metric:"_queue_full_total" help:"Datagrams that another worker had no room for."`
	Truncated       uint64 `json:"truncated" metric:"_truncated_total" help:"Datagrams longer than a receive buffer."`
	KernelDrops     uint64 `json:"kernel_drops" metric:"_kernel_drops_total" help:"Datagrams dropped by the kernel, because a socket's queue was full."`

	// HandshakeTime is from the ClientHello with a valid cookie to the session, by the time of the batches they came in.
	HandshakeTime metrics.Histogram `json:"-" metric:"_handshake_duration_seconds" buckets:"100µs..25s" help:"Time from the ClientHello with a valid cookie to the session, of completed handshakes."`
	// RequestTime is from the read of a batch of datagrams to the write of the answers to its requests.
	RequestTime metrics.Histogram `json:"-" metric:"_request_duration_seconds" buckets:"5µs..1s" help:"Time from the read of a batch of datagrams to the write of its answers, once for each request."`
}

// published is a copy of a worker's counters for other goroutines, updated after every batch.
type published struct {
	mu    sync.Mutex
	stats Stats
}

func (w *Worker) publish() {
	w.stats.Sessions = uint64(w.peers.count)
	w.stats.HalfOpen = uint64(w.halfOpens.due.Len())
	w.stats.UnprovenPeers = uint64(w.plainPeers.order.Len())
	if w.server != nil {
		w.stats.Signatures = w.server.Signatures()
	}
	w.published.mu.Lock()
	defer w.published.mu.Unlock()
	w.published.stats = w.stats
}

// Stats returns the counters as of the last batch. Safe from any goroutine.
func (w *Worker) Stats() Stats {
	w.published.mu.Lock()
	defer w.published.mu.Unlock()
	return w.published.stats
}
