package turncat

import "sync/atomic"

// Stats are the counters of a Tunnel since it was opened.
type Stats struct {
	Clients     int    `json:"clients"`      // now
	ClientsEver uint64 `json:"clients_ever"` // in all
	PeakClients int    `json:"peak_clients"`
	Sessions    int    `json:"sessions"` // clients with an allocation ready for data

	Allocations      uint64 `json:"allocations"`       // made
	AllocationsLost  uint64 `json:"allocations_lost"`  // because the server disappeared
	AllocationsMoved uint64 `json:"allocations_moved"` // replaced because the credentials expired
	Failures         uint64 `json:"failures"`          // failed attempts to create one

	UpPackets   uint64 `json:"up_packets"` // from clients to the server
	UpBytes     uint64 `json:"up_bytes"`   // of user data
	DownPackets uint64 `json:"down_packets"`
	DownBytes   uint64 `json:"down_bytes"`

	DroppedGap   uint64 `json:"dropped_gap"`   // of clients without a session at that moment
	DroppedFull  uint64 `json:"dropped_full"`  // of clients beyond MaxClients
	DroppedQueue uint64 `json:"dropped_queue"` // a stream was too slow
	DroppedLong  uint64 `json:"dropped_long"`  // longer than a ChannelData message can be
	SendErrors   uint64 `json:"send_errors"`   // refused by the kernel
	Strays       uint64 `json:"strays"`        // from the server, but not for us
	Overflowed   uint64 `json:"overflowed"`    // found the listener's receive buffer full
	Idle         uint64 `json:"idle"`          // clients removed after IdleTimeout
}

// counters are written by one worker, once per batch; any goroutine may read them.
type counters struct {
	allocations, lost, moved, failures     atomic.Uint64
	upPackets, upBytes                     atomic.Uint64
	downPackets, downBytes                 atomic.Uint64
	gap, full, queue, long, errors, strays atomic.Uint64
	idle                                   atomic.Uint64
	sessions                               atomic.Int64
}

func (c *counters) addTo(s *Stats) {
	s.Sessions += int(c.sessions.Load())
	s.Allocations += c.allocations.Load()
	s.AllocationsLost += c.lost.Load()
	s.AllocationsMoved += c.moved.Load()
	s.Failures += c.failures.Load()
	s.UpPackets += c.upPackets.Load()
	s.UpBytes += c.upBytes.Load()
	s.DownPackets += c.downPackets.Load()
	s.DownBytes += c.downBytes.Load()
	s.DroppedGap += c.gap.Load()
	s.DroppedFull += c.full.Load()
	s.DroppedQueue += c.queue.Load()
	s.DroppedLong += c.long.Load()
	s.SendErrors += c.errors.Load()
	s.Strays += c.strays.Load()
	s.Idle += c.idle.Load()
}
