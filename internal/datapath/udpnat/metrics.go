package udpnat

import (
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/steer"
)

// addSteering adds what a worker's engine has counted.
func (s *Stats) addSteering(e *steer.Engine) {
	reasons := lb.ReasonCounts(e.Reasons())
	s.total.Add(&reasons)
	for i, service := range e.Snapshot().Services {
		sum, part := s.Services[service.Name], lb.ReasonCounts(e.ServiceReasons(i))
		sum.Add(&part)
		s.Services[service.Name] = sum
	}
	for backend, part := range e.Backends() {
		target := lb.Target{Service: backend.Service.Name, Backend: backend.Name}
		sum := s.Targets[target]
		sum.Packets += part.Packets
		sum.Bytes += part.Bytes
		sum.NewFlows += part.NewFlows
		s.Targets[target] = sum
	}
}

// Common returns the counters that all data paths share. Replies are counted in total only: see Counters.Backwarded.
func (s *Stats) Common() lb.Counters {
	c := &s.Counters
	common := lb.Counters{
		Datapath: Caps().Name, Packets: lb.WithoutService(s.total, s.Services), Backends: map[lb.Target]lb.BackendCounts{},
		Tables: []lb.TableCounts{{
			Name: "flows", Entries: s.Entries, Size: &s.MaxEntries, Proven: &s.Proven,
			Refused: &c.EntriesFull, Evicted: &c.Evicted, Displaced: &c.Displaced, Expired: &c.Expired,
		}},
		DumpPause: &s.pause,
	}
	for target, n := range s.Targets {
		common.Backends[target] = lb.BackendCounts{To: lb.Traffic{Packets: n.Packets, Bytes: n.Bytes}, Opened: n.NewFlows}
	}
	return common
}
