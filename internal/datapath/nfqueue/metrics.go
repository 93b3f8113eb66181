package nfqueue

import "github.com/weir-lb/weir/internal/steering/lb"

// Common returns the counters that all data paths share. Replies do not pass through the queues.
func (s *Stats) Common() lb.Counters {
	t := &s.Tables
	common := lb.Counters{
		Datapath: Caps().Name, Packets: lb.WithoutService(s.Reasons, s.Services), Backends: map[lb.Target]lb.BackendCounts{},
		Tables: []lb.TableCounts{
			{
				Name: "flows", Entries: t.Flows, Size: &t.MaxFlows, Proven: &t.ProvenFlows,
				Refused: &t.FlowsRefused, Evicted: &t.FlowsEvicted, Displaced: &t.FlowsDisplaced, Expired: &t.FlowsExpired,
			},
			{Name: "fragments", Entries: t.Fragments.Entries},
		},
		DumpPause: &s.pause,
	}
	for target, n := range s.Backends {
		common.Backends[target] = lb.BackendCounts{To: lb.Traffic{Packets: n.Packets, Bytes: n.Bytes}, Opened: n.NewFlows}
	}
	return common
}
