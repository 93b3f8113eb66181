package steer

import (
	"iter"
	"net/netip"
	"time"

	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// Flow is a conntrack entry as an operator sees it.
type Flow struct {
	Key     flow.Key // as seen from the client
	Backend *lb.Backend
	Source  netip.AddrPort // what the backend sees as the source, if SNAT changed it
	State   string         // opening, established or closing for TCP, else empty
	Left    time.Duration  // until it expires if nothing comes
}

// Flows yields the live conntrack entries at now, in no order. The loop must not
// steer; it may Forget the flow it was given.
func (e *Engine) Flows(now time.Duration) iter.Seq[Flow] {
	return func(yield func(Flow) bool) { e.ScanFlows(0, e.flows.Max(), now, yield) }
}

// ScanFlows is Flows in steps, between which the Engine may steer: a step looks
// at n places of the table from number from on and returns where the next one
// begins, 0 after the last one. A flow that lives through all steps is yielded
// once.
func (e *Engine) ScanFlows(from, n int, now time.Duration, yield func(Flow) bool) (next int) {
	return e.flows.Scan(from, n, now, func(k flow.Key, en *entry, until time.Duration) bool {
		return en.record.backend == nil ||
			yield(Flow{Key: k, Backend: en.record.backend, Source: en.snat, State: en.state.String(), Left: until - now})
	})
}

// Owner returns the backend that conntrack has for a flow, as seen from the
// client; nil if there is no live entry, or its backend is down.
func (e *Engine) Owner(k flow.Key, now time.Duration) *lb.Backend {
	en, _ := e.flows.Find(k, now)
	if en == nil || en.record.backend == nil || en.record.backend.State == lb.Down {
		return nil
	}
	return en.record.backend
}

// String names the state; empty without TCP.
func (s tcpState) String() string {
	return [...]string{notTCP: "", opening: "opening", established: "established", closing: "closing"}[s]
}
