package demo

import (
	"fmt"
	"time"
)

// kind of a disturbance.
type kind string

const (
	natClear  kind = "clear"     // every NAT entry dropped: every client appears with a new source port
	rebalance kind = "rebalance" // the node of every NAT entry chosen again: records reach nodes that do not own them
	drain     kind = "drain"     // one node gets no new flows; what it owns reaches it through the others
)

type planned struct {
	at   time.Duration
	kind kind
}

// schedule spreads 3 clears, 2 rebalances and 1 drain over the run: far enough apart that each shows in the plots, and
// with a quiet start and end to compare with. The drain comes before the last clear, which then leaves no one on that node.
func schedule(run time.Duration) []planned {
	at := func(percent int) time.Duration { return run * time.Duration(percent) / 100 }
	return []planned{
		{at(15), natClear},
		{at(29), rebalance},
		{at(43), natClear},
		{at(57), rebalance},
		{at(71), drain},
		{at(83), natClear},
	}
}

// words is what is done to so many clients, or to a node.
func (k kind) words(clients, node int) string {
	switch k {
	case natClear:
		return fmt.Sprintf("clear: %d clients got new addresses", clients)
	case rebalance:
		return fmt.Sprintf("rebalance: new nodes for %d clients", clients)
	case drain:
		return fmt.Sprintf("drain: no new clients for node %d", node)
	}
	return string(k)
}
