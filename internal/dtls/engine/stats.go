package engine

import "sync"

// Stats counts since Open, except Sessions and HalfOpen, which are current.
type Stats struct {
	Sessions, HalfOpen uint64

	Rounds                                     uint64 // of the workers: Datagrams in each say how well they batch
	Datagrams, RecordsIn, RecordsOut, Requests uint64
	BytesIn, BytesOut                          uint64

	HelloVerifies    uint64 // hellos answered without keeping anything
	HellosIgnored    uint64 // not well formed, in fragments, or no room
	Handshakes       uint64 // completed
	HandshakesFailed uint64 // refused, given up, wrong key, no room for the session
	HalfOpenFull     uint64 // hellos for which the table, or their prefix's share, was full
	Replaced         uint64 // sessions whose address made a new one

	BadMACs, Replays, Malformed uint64 // records
	UnknownCIDs, UnknownAddress uint64 // records of no session
	SessionsFull                uint64 // new peers turned away
	Evicted                     uint64 // idle peers that made room
	Closed                      uint64 // peers that ended, for whatever reason
	Alerts                      uint64 // received, authentic
	AddressChanges              uint64
	Amplified                   uint64 // records not sent, for an address was not validated
	EarlyHeld                   uint64 // requests that came before the Finished and were kept
	SendErrors                  uint64

	Foreign        uint64 // datagrams given to the cluster
	ForeignUnknown uint64 // the cluster did not know the owner
	Injected       uint64 // datagrams that came by way of another node
	Returned       uint64 // records sent by way of a router
	HandedOver     uint64 // datagrams given to another worker
	QueueFull      uint64 // datagrams another worker had no room for
	Truncated      uint64 // datagrams longer than a receive buffer
	KernelDrops    uint64 // datagrams the sockets' queues had no room for
}

// published is a worker's counters as others may see them, renewed after every batch.
type published struct {
	mu    sync.Mutex
	stats Stats
}

func (w *Worker) publish() {
	w.stats.Sessions = uint64(w.peers.count)
	w.stats.HalfOpen = uint64(len(w.halfOpens.heap))
	w.said.mu.Lock()
	defer w.said.mu.Unlock()
	w.said.stats = w.stats
}

// Stats returns the counters as of the last batch. Safe from any goroutine.
func (w *Worker) Stats() Stats {
	w.said.mu.Lock()
	defer w.said.mu.Unlock()
	return w.said.stats
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
	s.HandshakesFailed += o.HandshakesFailed
	s.HalfOpenFull += o.HalfOpenFull
	s.Replaced += o.Replaced
	s.BadMACs += o.BadMACs
	s.Replays += o.Replays
	s.Malformed += o.Malformed
	s.UnknownCIDs += o.UnknownCIDs
	s.UnknownAddress += o.UnknownAddress
	s.SessionsFull += o.SessionsFull
	s.Evicted += o.Evicted
	s.Closed += o.Closed
	s.Alerts += o.Alerts
	s.AddressChanges += o.AddressChanges
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
