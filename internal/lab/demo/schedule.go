package demo

import (
	"fmt"
	"time"
)

// kind of a disturbance.
type kind string

const (
	natClear  kind = "clear"     // every NAT entry dropped: every client appears with a new source port
	rebalance kind = "rebalance" // every NAT entry drawn anew: records land on nodes that do not own them
	drain     kind = "drain"     // one node gets no new flows; what it owns reaches it through the others
)

// Event is one disturbance of a run, as it happened.
type Event struct {
	At    float64 `json:"at_s"` // seconds since the first request
	Kind  string  `json:"kind"`
	Label string  `json:"label"`           // what was done, with the balancer's own answer
	Error string  `json:"error,omitempty"` // why it could not be done; then the run proves nothing
}

type planned struct {
	at   time.Duration
	kind kind
}

// schedule spreads 3 clears, 2 rebalances and 1 drain over the run: far enough apart
// that each shows in the plots, and with a quiet start and end to compare with.
func schedule(run time.Duration) []planned {
	at := func(percent int) time.Duration { return run * time.Duration(percent) / 100 }
	return []planned{
		{at(15), natClear},
		{at(29), rebalance},
		{at(43), natClear},
		{at(57), rebalance},
		{at(71), natClear},
		{at(83), drain},
	}
}

func (k kind) words(node int) string {
	switch k {
	case natClear:
		return "NAT entries cleared: every client's source address changes"
	case rebalance:
		return "rebalanced: records land on nodes that do not own them"
	case drain:
		return fmt.Sprintf("node %d drained", node)
	}
	return string(k)
}
