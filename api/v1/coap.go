package v1

import (
	"net/netip"
)

// CoAPStatus is the answer of GET /status of `weir coap server`.
type CoAPStatus struct {
	Version     string          `json:"version"`     // of the binary
	PID         int             `json:"pid"`         // of the serving process
	Handover    CoAPHandover    `json:"keep"`        // sockets and sessions that outlive it
	Credentials CoAPCredentials `json:"credentials"` // pre-shared keys in use
	Reverse     CoAPReverse     `json:"reverse"`     // requests and observations of the server at clients
	// Discovery is how the Pods of the other nodes are followed; absent: the nodes are no Pods.
	Discovery *CoAPDiscovery `json:"discovery,omitempty"`
	Listeners []CoAPListener `json:"listeners"` // plain, DTLS, TCP, TLS, then cluster nodes, each in the configured order
}

// CoAPHandover is what is stored beyond the life of a process, and what could not be stored.
type CoAPHandover struct {
	Supervisor string `json:"supervisor"`      // yes, systemd, gone or none
	PID        int    `json:"pid,omitempty"`   // of the supervisor; absent: none
	Starts     int    `json:"starts"`          // starts of a serving process, by this supervisor and its predecessors
	Upgrades   int    `json:"upgrades"`        // of the binary
	Last       string `json:"last,omitempty"`  // why the previous process ended; absent: there was none
	Stored     int    `json:"stored"`          // sockets, and arenas of sessions, that are stored now
	Capacity   int    `json:"capacity"`        // bound on them
	Refused    uint64 `json:"refused"`         // that could not be stored: they end with the process
	Waiting    int    `json:"waiting"`         // that the supervisor, or systemd, has not accepted yet; they are sent again
	State      string `json:"state,omitempty"` // directory with the sessions; absent: none was requested
	// Unusable is why that directory cannot be written. Absent: it can, or none was requested.
	Unusable string `json:"state_unusable,omitempty"`
}

// CoAPUpgraded is the output of `weir coap upgrade --json`.
type CoAPUpgraded struct {
	From     string  `json:"from"`     // version
	To       string  `json:"to"`       // version
	PID      int     `json:"pid"`      // of the new serving process
	Seconds  float64 `json:"seconds"`  // from the request until the new process answered
	Sessions uint64  `json:"sessions"` // of DTLS, that it took over
	Lost     uint64  `json:"lost"`     // of DTLS, that it did not take over
	Upgrades int     `json:"upgrades"` // of this server so far
}

// CoAPUpgradeAnswer is the answer of POST /upgrade: the process will be replaced.
type CoAPUpgradeAnswer struct {
	PID int `json:"pid"` // of the process that goes
}

// CoAPKept says what the DTLS sessions of a listener need to outlive the process, and what became of those of the process before.
type CoAPKept struct {
	SlotBytes int `json:"slot_bytes"` // of one session
	Damaged   int `json:"damaged"`    // sessions that were dropped, because their slot was damaged
	NoRoom    int `json:"no_room"`    // sessions that were dropped, because fewer are allowed now
}

// CoAPCredentials are the pre-shared keys in use.
type CoAPCredentials struct {
	Generation uint64 `json:"generation"`      // 1 at the start, plus 1 for every successful reload
	Identities int    `json:"identities"`      // in the PSK file
	Demo       bool   `json:"demo"`            // the public sandbox identities are accepted
	Error      string `json:"error,omitempty"` // why the last reload failed; absent: it did not
}

// CoAPReverse counts what /reverse-request and /reverse-observe were asked for, on all listeners.
type CoAPReverse struct {
	RequestsAsked         uint64 `json:"requests_asked"`         // requests to clients
	RequestsSent          uint64 `json:"requests_sent"`          // of these
	RequestsPending       int    `json:"requests_pending"`       // of these, now
	RequestsFailed        uint64 `json:"requests_failed"`        // runs that ended because a request was not answered or not sent
	RequestsRefused       uint64 `json:"requests_refused"`       // POSTs answered with 5.03
	Observations          int    `json:"observations"`           // resources of clients that are observed now
	Registrations         uint64 `json:"registrations"`          // sent to clients
	RegistrationsFailed   uint64 `json:"registrations_failed"`   // refused, or not answered
	ObservationsRefused   uint64 `json:"observations_refused"`   // POSTs answered with 5.03
	NotificationsReceived uint64 `json:"notifications_received"` // of clients
}

// CoAPListener is one listener.
type CoAPListener struct {
	URI        string         `json:"uri"`                 // such as coap://127.0.0.1:5683
	Addr       netip.AddrPort `json:"address"`             // that clients send to
	Secure     bool           `json:"secure"`              // over DTLS or TLS
	NodeID     *uint32        `json:"node_id,omitempty"`   // of a cluster node; absent: it is none
	Management netip.AddrPort `json:"management,omitzero"` // internal address of a cluster node; absent: it is none
	Engine     DTLSCounters   `json:"engine"`              // datagrams, records and sessions; zero over TCP and TLS
	Exchange   CoAPCounters   `json:"exchange"`            // messages
	Resources  CoAPResources  `json:"resources"`           // bodies in blocks, observers
	OSCORE     CoAPOSCORE     `json:"oscore"`              // protected requests
	Pending    int            `json:"pending"`             // messages that await an acknowledgement or their time
	Streams    *CoAPStreams   `json:"streams,omitempty"`   // connections over TCP or TLS; absent: the listener has datagrams
	Cluster    *CoAPCluster   `json:"cluster,omitempty"`   // what went to and came from other nodes; absent: it is no cluster node
	Kept       *CoAPKept      `json:"kept,omitempty"`      // sessions beyond the process; absent: they end with it, or there are none
	Moves      *CoAPMoves     `json:"moves,omitempty"`     // how sessions move between nodes; absent: they do not, because the link is not secured
	// Copies is how sessions are copied to another node; absent: they are not.
	Copies *CoAPReplication `json:"replication,omitempty"`
	Nodes  []CoAPNode       `json:"nodes,omitempty"` // nodes of the cluster, the one that answers first; absent: it is no cluster node
}

// DTLSCounters count since the start, except Sessions, HalfOpen and UnprovenPeers, which are current.
type DTLSCounters struct {
	Sessions uint64 `json:"sessions"`  // of DTLS, and peers of plain CoAP
	HalfOpen uint64 `json:"half_open"` // handshakes under way

	Kept        uint64 `json:"sessions_kept"`         // sessions that outlive the process, now
	NotKept     uint64 `json:"sessions_not_kept"`     // sessions that end with the process: no slot, or a long identity
	Restored    uint64 `json:"sessions_restored"`     // sessions taken over from the process before
	RestoreLost uint64 `json:"sessions_restore_lost"` // sessions of the process before that do not fit this one
	LeftHandled uint64 `json:"left_handled"`          // datagrams that the process before had read and not handled
	LeftSent    uint64 `json:"left_sent"`             // datagrams that the process before had sealed and perhaps not sent

	MovedOut uint64 `json:"sessions_moved_out"` // sessions that left for another node of the cluster
	MovedIn  uint64 `json:"sessions_moved_in"`  // sessions that came from another node of the cluster

	NotCopied  uint64 `json:"sessions_not_copied"` // sessions that no other node has copies of, for want of room
	TakenOver  uint64 `json:"sessions_taken_over"` // sessions of nodes that have failed, which go on here
	Fenced     uint64 `json:"sessions_fenced"`     // sessions dropped, because another node has taken them over
	Silenced   uint64 `json:"silenced"`            // records not opened or not sealed, because another node may have the session
	LeaseSpent uint64 `json:"lease_spent"`         // records not sealed, because the node with the copies had not acknowledged further sequence numbers

	Rounds     uint64 `json:"rounds"`         // of the workers; datagrams per round show how large batches are
	Datagrams  uint64 `json:"datagrams"`      // received
	RecordsIn  uint64 `json:"records_in"`     // received
	RecordsOut uint64 `json:"records_out"`    // sent
	Requests   uint64 `json:"requests"`       // messages given to CoAP
	BytesIn    uint64 `json:"received_bytes"` // payload of UDP
	BytesOut   uint64 `json:"sent_bytes"`     // payload of UDP

	HelloVerifies    uint64 `json:"hello_verifies"`     // ClientHellos answered without keeping anything
	HellosIgnored    uint64 `json:"hellos_ignored"`     // ClientHellos that are not well formed, or in fragments
	Signatures       uint64 `json:"signatures"`         // made with the server's certificate or raw public key
	Handshakes       uint64 `json:"handshakes"`         // completed
	Resumed          uint64 `json:"handshakes_resumed"` // of those, the ones that resumed a session
	HandshakesFailed uint64 `json:"handshakes_failed"`  // refused, given up, wrong key, no room for the session
	HalfOpenEvicted  uint64 `json:"half_open_evicted"`  // handshakes under way that made room for newer ones
	Replaced         uint64 `json:"replaced"`           // sessions whose address made a new one
	Renegotiations   uint64 `json:"renegotiations"`     // requested by clients, all refused

	BadMACs            uint64 `json:"bad_macs"`             // records that failed to open, of sessions and of handshakes
	ForgedDropped      uint64 `json:"forged_dropped"`       // records not tried, because too many from their source had failed to open
	ForgersEvicted     uint64 `json:"forgers_evicted"`      // sources of such records that made room for others
	Spent              uint64 `json:"sessions_spent"`       // sessions ended because too many records had failed to open
	Replays            uint64 `json:"replays"`              // records received again
	Malformed          uint64 `json:"malformed"`            // records that are not well formed
	UnknownCIDs        uint64 `json:"unknown_cids"`         // records whose connection id belongs to no session
	UnknownAddress     uint64 `json:"unknown_address"`      // records whose address belongs to no session
	SessionsFull       uint64 `json:"sessions_full"`        // new peers turned away
	Evicted            uint64 `json:"evicted"`              // sessions, and plain peers whose proof had expired, that made room
	EvictedSuperseded  uint64 `json:"evicted_superseded"`   // of these, sessions whose address has a newer one
	EvictedOverShare   uint64 `json:"evicted_over_share"`   // of these, sessions of the identity that held most
	EvictedOwnIdentity uint64 `json:"evicted_own_identity"` // of these, sessions of the identity that made the new one
	EvictedStale       uint64 `json:"evicted_stale"`        // of these, sessions that were silent for long
	Expired            uint64 `json:"sessions_expired"`     // sessions that were silent beyond their lifetime
	Drained            uint64 `json:"sessions_drained"`     // sessions closed by the drain before the server's end
	Closed             uint64 `json:"closed"`               // peers that ended, for whatever reason
	Alerts             uint64 `json:"alerts"`               // received, authentic
	AddressChanges     uint64 `json:"address_changes"`      // of sessions
	AddressesProven    uint64 `json:"addresses_proven"`     // addresses that proved themselves after a change, or plain peers'
	PathChallenges     uint64 `json:"path_challenges"`      // sent to new addresses of sessions (RFC 9853)
	UnprovenPeers      uint64 `json:"unproven_peers"`       // plain peers that may be evicted, now
	UnprovenEvicted    uint64 `json:"unproven_evicted"`     // unproven plain peers that made room
	Amplified          uint64 `json:"amplified"`            // datagrams not sent, because they exceed the budget of an unproven address
	EarlyHeld          uint64 `json:"early_held"`           // requests that came before the Finished and were kept
	SendErrors         uint64 `json:"send_errors"`          // datagrams that the kernel refused

	Foreign         uint64 `json:"foreign"`          // datagrams given to the cluster
	ForeignUnknown  uint64 `json:"foreign_unknown"`  // datagrams whose owner the cluster did not know
	Injected        uint64 `json:"injected"`         // datagrams that came by way of another node
	Returned        uint64 `json:"returned"`         // records sent by way of another node
	LinkSegmented   uint64 `json:"link_segmented"`   // sends to other nodes that carried more than one datagram
	LinkUnsegmented uint64 `json:"link_unsegmented"` // such sends that the kernel refused; each datagram left by itself
	HandedOver      uint64 `json:"handed_over"`      // datagrams given to another worker
	QueueFull       uint64 `json:"queue_full"`       // datagrams that another worker had no room for
	Truncated       uint64 `json:"truncated"`        // datagrams longer than a receive buffer
	KernelDrops     uint64 `json:"kernel_drops"`     // datagrams that the sockets' queues had no room for
}

// CoAPCounters count messages since the start.
type CoAPCounters struct {
	Requests         uint64 `json:"requests"`          // executed, repeated safe requests included
	Responses        uint64 `json:"responses"`         // matched to a request of this node
	Malformed        uint64 `json:"malformed"`         // datagrams that are no well-formed message
	BadOptions       uint64 `json:"bad_options"`       // messages rejected for a critical option
	Duplicates       uint64 `json:"duplicates"`        // recognised by their message id
	Forgotten        uint64 `json:"forgotten"`         // duplicates of an unsafe request whose answer was no longer stored: not executed, not answered
	Overwritten      uint64 `json:"overwritten"`       // message ids forgotten before their lifetime ended, because the table was full
	TooLarge         uint64 `json:"too_large"`         // answers not stored, or replies not sent, because they exceed a bound
	Pings            uint64 `json:"pings"`             // answered with Rst
	Separate         uint64 `json:"separate"`          // separate responses
	Probes           uint64 `json:"probes"`            // pings that require a peer to prove its address
	Sent             uint64 `json:"sent"`              // first transmissions of messages that are retransmitted
	Retransmissions  uint64 `json:"retransmissions"`   // of those
	Acks             uint64 `json:"acks"`              // acknowledgements that matched
	Resets           uint64 `json:"resets"`            // resets that matched
	Timeouts         uint64 `json:"timeouts"`          // pending messages given up
	Stray            uint64 `json:"stray"`             // acknowledgements, resets and responses that match nothing
	PendingFull      uint64 `json:"pending_full"`      // messages refused because too many are pending, in all or of one session
	Multicast        uint64 `json:"multicast"`         // messages to multicast groups
	MulticastAnswers uint64 `json:"multicast_answers"` // answers to them, sent within the leisure
	MulticastIgnored uint64 `json:"multicast_ignored"` // without an answer: confirmable, not for discovery, or with an error or nothing as the result
	MulticastRefused uint64 `json:"multicast_refused"` // without an answer, because too many answers were waiting
}

// CoAPResources count since the start, except Observers, Bodies and BodyBytes, which are current.
type CoAPResources struct {
	Observers        int    `json:"observers"`         // observations that are registered
	Bodies           int    `json:"bodies"`            // request bodies in blocks under way, and answers stored for their next block
	BodyBytes        int    `json:"body_bytes"`        // of these bodies
	Incomplete       uint64 `json:"incomplete"`        // blocks without the blocks before them: 4.08
	BodiesTooLarge   uint64 `json:"bodies_too_large"`  // beyond the bound: 4.13
	BodiesRefused    uint64 `json:"bodies_refused"`    // no room: 5.03
	BodiesEvicted    uint64 `json:"bodies_evicted"`    // made room for other ones
	BodiesExpired    uint64 `json:"bodies_expired"`    // no further block came
	Notifications    uint64 `json:"notifications"`     // sent to observers, repetitions not counted
	ObserversRefused uint64 `json:"observers_refused"` // answered without Observe, because there was no room
	ObserversEvicted uint64 `json:"observers_evicted"` // of addresses without proof, made room for other ones
	ObserversLost    uint64 `json:"observers_lost"`    // the client did not acknowledge a notification, or rejected it
}

// CoAPOSCORE count requests with the OSCORE option since the start (RFC 8613).
type CoAPOSCORE struct {
	Requests   uint64 `json:"requests"`   // verified and executed
	Malformed  uint64 `json:"malformed"`  // the option cannot be read: 4.02
	Unknown    uint64 `json:"unknown"`    // no context for the kid: 4.01
	Replays    uint64 `json:"replays"`    // sequence numbers seen before or too old: 4.01
	Forged     uint64 `json:"forged"`     // not verified: 4.00
	Challenges uint64 `json:"challenges"` // answered with an Echo option after a restart
	Renewals   uint64 `json:"renewals"`   // requests that began to agree on a new context
	Unsent     uint64 `json:"unsent"`     // responses that could not be protected
}

// CoAPStreams count since the start, except Connections, Guests and Handshakes, which are current.
type CoAPStreams struct {
	Connections int    `json:"connections"`       // open, TLS handshakes not counted
	Guests      int    `json:"guests"`            // of those, the ones that have not sent a request
	Handshakes  int    `json:"handshakes"`        // of TLS, under way
	Accepted    uint64 `json:"accepted"`          // connections
	Refused     uint64 `json:"refused"`           // closed at once, because a bound was reached
	Evicted     uint64 `json:"evicted"`           // connections without a request that made room for other ones
	Failed      uint64 `json:"handshakes_failed"` // of TLS, failed or too slow
	TimedOut    uint64 `json:"timed_out"`         // idle, or a message or the first request took too long
	Slow        uint64 `json:"slow"`              // closed because the peer did not take what was sent to it
	Aborted     uint64 `json:"aborted"`           // by the server, because the peer broke the protocol
	Overloaded  uint64 `json:"overloaded"`        // closed because incomplete messages took too much memory
	Messages    uint64 `json:"messages"`          // requests and responses received
	Pings       uint64 `json:"pings"`             // answered
	Received    uint64 `json:"received_bytes"`    // inside TLS
	Sent        uint64 `json:"sent_bytes"`        // inside TLS
}
