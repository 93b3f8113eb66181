package steer

import (
	"iter"
	"time"

	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// BackendCounters are running totals of one backend.
type BackendCounters struct {
	Packets, Bytes           uint64 // to the backend; bytes of the IP packet, or of the datagram's payload
	ReplyPackets, ReplyBytes uint64 // from it, where the data path sees them
	NewFlows                 uint64
}

// serviceState is the state that the Engine keeps for a service across its generations.
type serviceState struct {
	service *lb.Service
	records []*backendRecord // by lb.Backend.Index
	reasons [lb.NumReasons]uint64
	rate    bucket
	// entries bounds the entries for new flows of a table that is nearly full, see mayEnter.
	entries bucket
	echoes  bucket // answered pings
	// snatMisses counts failed searches of the SNAT pool in snatPeriod, less the ports released since.
	snatMisses uint32
	// snatStays counts how often in snatPeriod no unproven flow was found whose port could be taken.
	snatStays  uint32
	snatPeriod time.Duration
	// snatNext is where the next search of a nearly full SNAT pool begins.
	snatNext uint32
}

// TableCounters describe the Engine's tables.
type TableCounters struct {
	Flows, MaxFlows int
	ProvenFlows     int    // of Flows
	FlowsRefused    uint64 // the table was full of proven flows
	FlowsExpired    uint64
	FlowsEvicted    uint64                // unproven, each for a new one
	FlowsDisplaced  uint64                // proven, each for one steered by CID
	Fragments       flow.FragmentCounters `metric:"weir_fragment_events_total" help:"What happened in the fragment table, by event."`
	Tier            TierCounters          `metric:"weir_tier_fragments_total" help:"Fragments for other balancers of the tier, by what became of them."`
}

// TierCounters are running totals of fragments that another member of the tier should take.
type TierCounters struct {
	Sent      uint64 `metric:"_,fate=sent"`      // handed to a member
	Returned  uint64 `metric:"_,fate=returned"`  // came back because the members' tables differ, and were taken here
	Unguarded uint64 `metric:"_,fate=unguarded"` // of Sent: handed on without a record, because limits.fragments were reached
}

// Rules yields how many packets each flow rule of the snapshot in force decided
// about, in order.
func (e *Engine) Rules() iter.Seq2[*lb.FlowRule, uint64] {
	return func(yield func(*lb.FlowRule, uint64) bool) {
		for i := range e.snapshot.Rules {
			if !yield(e.Rule(i)) {
				return
			}
		}
	}
}

// Rule returns one flow rule of the snapshot in force and how many packets it decided about.
func (e *Engine) Rule(i int) (*lb.FlowRule, uint64) { return e.snapshot.Rules[i], *e.ruleHits[i] }

// Reasons returns how many packets left with each reason, indexed by lb.Reason.
func (e *Engine) Reasons() [lb.NumReasons]uint64 { return e.reasons }

// ServiceReasons returns the same for one service of the snapshot in force, by
// its index.
func (e *Engine) ServiceReasons(index int) [lb.NumReasons]uint64 {
	return e.services[index].reasons
}

// Backends yields the counters of every backend of the snapshot in force, in order.
func (e *Engine) Backends() iter.Seq2[*lb.Backend, BackendCounters] {
	return func(yield func(*lb.Backend, BackendCounters) bool) {
		for i := range e.ordered {
			if !yield(e.Backend(i)) {
				return
			}
		}
	}
}

// NumBackends returns how many backends the snapshot in force has, of all services.
func (e *Engine) NumBackends() int { return len(e.ordered) }

// Backend returns one of them, in the order of Backends, with its counters.
func (e *Engine) Backend(i int) (*lb.Backend, BackendCounters) {
	p := e.ordered[i]
	return p.backend, p.traffic
}

// Tables returns the state of the tables.
func (e *Engine) Tables() TableCounters {
	return TableCounters{
		Flows: e.flows.Len(), MaxFlows: e.flows.Max(),
		ProvenFlows: e.flows.ProvenLen(), FlowsRefused: e.flows.Refused(), FlowsExpired: e.flows.Expired(),
		FlowsEvicted: e.flows.Evicted(), FlowsDisplaced: e.displaced,
		Fragments: e.fragments.Counters(), Tier: e.tier,
	}
}

// Malformed counts a packet that could not be parsed and returns its decision.
func (e *Engine) Malformed() Decision { return e.count(verdict(lb.ReasonMalformed, nil, nil), 0) }

// NotIP counts a frame that is neither IPv4 nor IPv6 and returns its decision.
func (e *Engine) NotIP() Decision { return e.count(verdict(lb.ReasonNotIP, nil, nil), 0) }

// Count adds one packet that the data path itself disposed of (a failed send,
// a fault the operator switched on, a next hop not known yet).
func (e *Engine) Count(reason lb.Reason, service *lb.Service) {
	e.count(verdict(reason, service, nil), 0)
}

// verdict makes a Decision whose action follows from its reason.
func verdict(reason lb.Reason, service *lb.Service, backend *lb.Backend) Decision {
	mark := uint32(0)
	if backend != nil {
		mark = backend.Mark
	}
	return Decision{Decision: lb.Decision{
		Action: reason.Action(), Reason: reason, Mark: mark, Service: service, Backend: backend,
	}}
}

// count is the only function that counts decisions.
func (e *Engine) count(d Decision, bytes int) Decision {
	e.reasons[d.Reason]++
	if d.Rule != nil && d.Rule.Index < len(e.ruleHits) {
		*e.ruleHits[d.Rule.Index]++
	}
	if d.Service == nil || d.Service.Index >= len(e.services) || e.services[d.Service.Index].service != d.Service {
		return d // of no service, or of a snapshot that is gone
	}
	state := e.services[d.Service.Index]
	state.reasons[d.Reason]++
	if d.Backend == nil {
		return d
	}
	t := &state.records[d.Backend.Index].traffic
	if d.Reason == lb.ReasonReply || d.Reason == lb.ReasonICMPReply || d.Reason == lb.ReasonOutbound {
		t.ReplyPackets++
		t.ReplyBytes += uint64(bytes)
	} else {
		t.Packets++
		t.Bytes += uint64(bytes)
	}
	if d.New {
		t.NewFlows++
	}
	return d
}
