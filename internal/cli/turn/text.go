package turn

import (
	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/handover"
	"github.com/weir-lb/weir/internal/turn/gateway"
)

// turnText returns the state of a gateway in its public form.
func turnText(s gateway.Stats) v1.TurnStats {
	text := v1.TurnStats{
		Workers: s.Workers, Ready: s.Ready, Draining: s.Draining, Totals: v1.TurnCounts(s.Totals), Reasons: s.Reasons,
		Offload: s.Offload, Withheld: v1.TurnWithheld(s.Withheld), Displaced: s.Displaced,
	}
	for i := range s.Listeners {
		l := &s.Listeners[i]
		text.Listeners = append(text.Listeners, v1.TurnListener{
			Name: l.Name, Protocol: l.Protocol, Address: l.Address, Connections: l.Connections, ReadBuffer: l.ReadBuffer,
			Overflowed: l.Overflowed, Reasons: l.Reasons, TurnCounts: v1.TurnCounts(l.Counts),
		})
	}
	for _, c := range s.Clusters {
		text.Clusters = append(text.Clusters, v1.TurnCluster{Name: c.Name, TurnCounts: v1.TurnCounts(c.Counts)})
	}
	return text
}

// handoverText returns what is stored beyond the life of a process in its public form.
func handoverText(s handover.Stats) v1.HandoverStats {
	return v1.HandoverStats{
		Supervisor: s.Supervisor, PID: s.PID, Starts: s.Starts, Upgrades: s.Upgrades, Last: s.Last, Sockets: s.Sockets,
		Capacity: s.Capacity, Refused: s.Refused, Waiting: s.Waiting, State: s.State, Unusable: s.Unusable, Journal: v1.HandoverJournal(s.Journal),
	}
}
