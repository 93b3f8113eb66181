package cluster

import "sync/atomic"

// Stats counts since New. The first eight are those of Californium's cluster health.
type Stats struct {
	Forwarded          uint64 `json:"forwarded"`           // foreign datagrams sent to their owner
	Backwarded         uint64 `json:"backwarded"`          // replies sent to the router
	ProcessedForwarded uint64 `json:"processed_forwarded"` // "in" frames taken as own datagrams
	SentBackwarded     uint64 `json:"sent_backwarded"`     // "out" frames sent to their client
	DroppedForward     uint64 `json:"dropped_forward"`     // foreign datagrams of unknown nodes, malformed "in" frames
	DroppedBackward    uint64 `json:"dropped_backward"`    // malformed "out" frames
	BadForward         uint64 `json:"bad_forward"`         // "in" frames with a wrong MAC; 0 without MAC
	BadBackward        uint64 `json:"bad_backward"`        // "out" frames with a wrong MAC; 0 without MAC
	ManagementReceived uint64 `json:"management_received"` // pings and pongs
	ManagementSent     uint64 `json:"management_sent"`
	MistakenIDs        uint64 `json:"mistaken_ids"`    // pings that announce our own id, or another one than configured
	RefusedTargets     uint64 `json:"refused_targets"` // frames for loopback, this host, metadata services, or an address that is no single client
	Strangers          uint64 `json:"strangers"`       // anything from an address that is no node
	Malformed          uint64 `json:"malformed"`       // neither frame nor ping
}

// counters is one worker's share, padded to cache lines of its own.
type counters struct {
	forwarded, backwarded, processedForwarded, sentBackwarded atomic.Uint64
	droppedForward, droppedBackward                           atomic.Uint64
	pingsReceived, pingsSent, mistakenIDs                     atomic.Uint64
	strangers, malformed, refusedTargets                      atomic.Uint64
	_                                                         [4 * 8]byte
}

// Stats adds up the workers' counters.
func (c *Cluster) Stats() Stats {
	var s Stats
	for i := range c.counters {
		n := &c.counters[i]
		s.Forwarded += n.forwarded.Load()
		s.Backwarded += n.backwarded.Load()
		s.ProcessedForwarded += n.processedForwarded.Load()
		s.SentBackwarded += n.sentBackwarded.Load()
		s.DroppedForward += n.droppedForward.Load()
		s.DroppedBackward += n.droppedBackward.Load()
		s.ManagementReceived += n.pingsReceived.Load()
		s.ManagementSent += n.pingsSent.Load()
		s.MistakenIDs += n.mistakenIDs.Load()
		s.RefusedTargets += n.refusedTargets.Load()
		s.Strangers += n.strangers.Load()
		s.Malformed += n.malformed.Load()
	}
	return s
}
