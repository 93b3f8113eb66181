package engine

import "sync"

// Stats counts since Open, except Sessions, HalfOpen and UnprovenPeers, which are current.
type Stats struct {
	Sessions uint64 `json:"sessions"`
	HalfOpen uint64 `json:"half_open"`

	Rounds     uint64 `json:"rounds"` // of the workers; Datagrams per round show how large batches are
	Datagrams  uint64 `json:"datagrams"`
	RecordsIn  uint64 `json:"records_in"`
	RecordsOut uint64 `json:"records_out"`
	Requests   uint64 `json:"requests"`
	BytesIn    uint64 `json:"received_bytes"`
	BytesOut   uint64 `json:"sent_bytes"`

	HelloVerifies    uint64 `json:"hello_verifies"`     // hellos answered without keeping anything
	HellosIgnored    uint64 `json:"hellos_ignored"`     // not well formed, or in fragments
	Handshakes       uint64 `json:"handshakes"`         // completed
	Resumed          uint64 `json:"handshakes_resumed"` // of Handshakes
	HandshakesFailed uint64 `json:"handshakes_failed"`  // refused, given up, wrong key, no room for the session
	HalfOpenEvicted  uint64 `json:"half_open_evicted"`  // handshakes under way that made room for newer ones
	Replaced         uint64 `json:"replaced"`           // sessions whose address made a new one

	Renegotiations uint64 `json:"renegotiations"` // asked for by clients, and refused

	BadMACs        uint64 `json:"bad_macs"`        // records that failed to open, of sessions and of handshakes
	ForgedDropped  uint64 `json:"forged_dropped"`  // records not tried, because too many from their source had failed to open
	ForgersEvicted uint64 `json:"forgers_evicted"` // sources of such records that made room for others
	Spent          uint64 `json:"sessions_spent"`  // sessions ended because too many records had failed to open
	Replays        uint64 `json:"replays"`         // records
	Malformed      uint64 `json:"malformed"`       // records
	UnknownCIDs    uint64 `json:"unknown_cids"`    // records of no session
	UnknownAddress uint64 `json:"unknown_address"` // records of no session
	SessionsFull   uint64 `json:"sessions_full"`   // new peers turned away
	Evicted        uint64 `json:"evicted"`         // sessions, and plain peers whose proof had expired, that made room
	// The sessions among Evicted, by the cases of makeRoom.
	EvictedSuperseded  uint64 `json:"evicted_superseded"`
	EvictedOverShare   uint64 `json:"evicted_over_share"`
	EvictedOwnIdentity uint64 `json:"evicted_own_identity"`
	EvictedStale       uint64 `json:"evicted_stale"`
	Expired            uint64 `json:"sessions_expired"` // after Config.SessionIdle
	Closed             uint64 `json:"closed"`           // peers that ended, for whatever reason
	Alerts             uint64 `json:"alerts"`           // received, authentic
	AddressChanges     uint64 `json:"address_changes"`
	// AddressesProven counts addresses that proved themselves after a change, or without DTLS after their first datagram.
	AddressesProven uint64 `json:"addresses_proven"`
	PathChallenges  uint64 `json:"path_challenges"`  // sent to new addresses of sessions (RFC 9853)
	UnprovenPeers   uint64 `json:"unproven_peers"`   // current: plain peers that may be evicted
	UnprovenEvicted uint64 `json:"unproven_evicted"` // unproven plain peers that made room
	Amplified       uint64 `json:"amplified"`        // datagrams not sent, because they exceed the budget of an unproven address
	EarlyHeld       uint64 `json:"early_held"`       // requests that came before the Finished and were kept
	SendErrors      uint64 `json:"send_errors"`

	Foreign        uint64 `json:"foreign"`         // datagrams given to the cluster
	ForeignUnknown uint64 `json:"foreign_unknown"` // the cluster did not know the owner
	Injected       uint64 `json:"injected"`        // datagrams that came by way of another node
	Returned       uint64 `json:"returned"`        // records sent by way of a router
	HandedOver     uint64 `json:"handed_over"`     // datagrams given to another worker
	QueueFull      uint64 `json:"queue_full"`      // datagrams another worker had no room for
	Truncated      uint64 `json:"truncated"`       // datagrams longer than a receive buffer
	KernelDrops    uint64 `json:"kernel_drops"`    // datagrams the sockets' queues had no room for
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

func (s *Stats) add(o *Stats) {
	s.Sessions += o.Sessions
	s.HalfOpen += o.HalfOpen
	s.Rounds += o.Rounds
	s.Datagrams += o.Datagrams
	s.RecordsIn += o.RecordsIn
	s.RecordsOut += o.RecordsOut
	s.Requests += o.Requests
	s.BytesIn += o.BytesIn
	s.BytesOut += o.BytesOut
	s.HelloVerifies += o.HelloVerifies
	s.HellosIgnored += o.HellosIgnored
	s.Handshakes += o.Handshakes
	s.Resumed += o.Resumed
	s.HandshakesFailed += o.HandshakesFailed
	s.HalfOpenEvicted += o.HalfOpenEvicted
	s.Replaced += o.Replaced
	s.Renegotiations += o.Renegotiations
	s.BadMACs += o.BadMACs
	s.ForgedDropped += o.ForgedDropped
	s.ForgersEvicted += o.ForgersEvicted
	s.Spent += o.Spent
	s.Replays += o.Replays
	s.Malformed += o.Malformed
	s.UnknownCIDs += o.UnknownCIDs
	s.UnknownAddress += o.UnknownAddress
	s.SessionsFull += o.SessionsFull
	s.EvictedSuperseded += o.EvictedSuperseded
	s.EvictedOverShare += o.EvictedOverShare
	s.EvictedOwnIdentity += o.EvictedOwnIdentity
	s.EvictedStale += o.EvictedStale
	s.Expired += o.Expired
	s.Closed += o.Closed
	s.Alerts += o.Alerts
	s.AddressChanges += o.AddressChanges
	s.AddressesProven += o.AddressesProven
	s.PathChallenges += o.PathChallenges
	s.UnprovenPeers += o.UnprovenPeers
	s.UnprovenEvicted += o.UnprovenEvicted
	s.Amplified += o.Amplified
	s.EarlyHeld += o.EarlyHeld
	s.SendErrors += o.SendErrors
	s.Foreign += o.Foreign
	s.ForeignUnknown += o.ForeignUnknown
	s.Injected += o.Injected
	s.Returned += o.Returned
	s.HandedOver += o.HandedOver
	s.QueueFull += o.QueueFull
	s.Truncated += o.Truncated
	s.KernelDrops += o.KernelDrops
}
