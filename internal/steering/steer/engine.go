package steer

import (
	"net/netip"
	"time"

	"github.com/weir-lb/weir/internal/steering/evict"
	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// Options are what a data path is, as far as steering must know. The zero value
// suits one that sees both directions and lets the kernel forward.
type Options struct {
	// Proxy: the data path is a user-space proxy whose sockets translate replies.
	// The Engine then keeps no reply entries and allocates no source ports.
	Proxy bool
	// Router: the data path sends packets on itself, so it must count down the
	// hop limit; a packet whose limit is spent gets lb.ReasonTTLExpired.
	Router bool
	// NoHold: early fragments cannot wait (lb.ReasonFragmentUnknown).
	NoHold bool
	// KernelAnswers: the network stack of this machine answers the pings of services with lb.PingBalancer, so they pass.
	KernelAnswers bool
	// DropHeld is called when a datagram's early fragments must make room for
	// others: the data path drops those it holds. It must not use the Engine.
	DropHeld func(flow.FragmentKey)
	// MaxFlows bounds conntrack entries; 0: the snapshot's limit. A data path of
	// n workers gives each its share.
	MaxFlows int
	// Journal is told of entries that are to outlive the process; nil: none does. Not for mode NAT.
	Journal Journal
	// Workers is how many Engines a data path runs side by side; each gives its part of a service's new_flow_rate. 0: 1.
	Workers int
}

// Decision is an lb.Decision with what mode NAT must rewrite.
type Decision struct {
	lb.Decision
	// Source and Destination are the packet's new endpoints. The zero AddrPort
	// leaves an endpoint alone, port 0 leaves the port. Set only in mode NAT.
	Source, Destination netip.AddrPort
	// New is true if this packet opened the flow's conntrack entry.
	New bool
}

// Engine steers the packets of one worker. Not for concurrent use.
type Engine struct {
	options     Options
	snapshot    *lb.Snapshot
	flows       *flow.Table[flow.Key, entry]
	replies     *flow.Table[flow.Key, flow.Key] // reply as it arrives → key in flows
	fragments   *flow.Fragments[follow]
	records     map[identity]*backendRecord
	services    []*serviceState  // by lb.Service.Index
	ordered     []*backendRecord // of all services, in order
	natBackends map[[16]byte]struct{}
	reasons     [lb.NumReasons]uint64
	relayed     *flow.Table[flow.FragmentKey, relayed]
	tier        TierCounters
	ruleHits    []*uint64 // by lb.FlowRule.Index
	roll        uint64
	displaced   uint64      // flows, by displace
	lent        *lb.Backend // by ErrorAbout

	fingerprints map[uint64]*backendRecord // of the snapshot in force; nil: not needed yet
}

// identity is what makes a backend the same backend in two snapshots: flows that
// one address or one mode has do not suit another.
type identity struct {
	service, backend string
	mode             lb.Mode
	mark             uint32
	address4         netip.Addr
	address6         netip.Addr
	port             uint16
}

// backendRecord represents one backend across the snapshots that have it. Entries point to records. The record of a removed
// backend stays empty for ever, so its entries are stale without a search for them.
type backendRecord struct {
	backend     *lb.Backend // nil: gone
	state       *serviceState
	traffic     BackendCounters
	fingerprint uint64 // 0: there is no journal
}

// New returns an Engine that steers by snapshot.
func New(snapshot *lb.Snapshot, options Options) *Engine {
	limits := snapshot.Limits
	maxFlows := options.MaxFlows
	if maxFlows == 0 {
		maxFlows = limits.Flows
	}
	options.NoHold = options.NoHold || limits.HeldFragments == 0
	e := &Engine{
		options: options,
		replies: flow.NewTable[flow.Key, flow.Key](maxFlows),
		fragments: flow.NewFragments[follow](
			limits.Fragments, limits.HeldFragments, limits.HeldPerDatagram, limits.FragmentTTL, options.DropHeld),
		relayed: flow.NewTable[flow.FragmentKey, relayed](limits.Fragments),
		records: map[identity]*backendRecord{},
	}
	e.flows = flow.NewProvingTable(maxFlows, func(k *flow.Key) evict.Source { return evict.SourceOf16(k.Src) }, e.release)
	e.SetSnapshot(snapshot)
	return e
}

// Snapshot returns the snapshot in force.
func (e *Engine) Snapshot() *lb.Snapshot { return e.snapshot }

// SetSnapshot changes to another generation. Flows keep their backend as long
// as the new snapshot has it. Bounds of tables stay those of New.
func (e *Engine) SetSnapshot(s *lb.Snapshot) {
	e.keepRuleHits(s)
	old := map[string]*serviceState{}
	for _, state := range e.services {
		old[state.service.Name] = state
	}
	records := make(map[identity]*backendRecord)
	e.services = make([]*serviceState, len(s.Services))
	e.ordered = nil
	e.natBackends = map[[16]byte]struct{}{}
	for i, service := range s.Services {
		state := old[service.Name]
		if state == nil {
			state = &serviceState{}
		}
		state.service = service
		state.limit(s, max(e.options.Workers, 1))
		state.records = make([]*backendRecord, len(service.Backends))
		for j, b := range service.Backends {
			id := identity{service.Name, b.Name, service.Mode, b.Mark, b.Address4, b.Address6, b.Port}
			p := e.records[id]
			if p == nil {
				p = &backendRecord{}
				if e.options.Journal != nil {
					p.fingerprint = id.fingerprint()
				}
			}
			p.backend, p.state = b, state
			records[id], state.records[j] = p, p
			e.ordered = append(e.ordered, p)
			if service.Mode == lb.NAT {
				e.addNATBackend(b)
			}
		}
		e.services[i] = state
	}
	for id, p := range e.records {
		if records[id] == nil {
			p.backend = nil
		}
	}
	e.snapshot, e.records, e.fingerprints = s, records, nil
}

// keepRuleHits carries the counters of flow rules over to the rules of the same service and name.
func (e *Engine) keepRuleHits(s *lb.Snapshot) {
	type name struct{ service, rule string }
	old := map[name]*uint64{}
	for i, hits := range e.ruleHits {
		rule := e.snapshot.Rules[i]
		old[name{rule.Service.Name, rule.Name}] = hits
	}
	e.ruleHits = make([]*uint64, len(s.Rules))
	for i, rule := range s.Rules {
		if e.ruleHits[i] = old[name{rule.Service.Name, rule.Name}]; e.ruleHits[i] == nil {
			e.ruleHits[i] = new(uint64)
		}
	}
}

// addNATBackend remembers the addresses whose fragments may be replies.
func (e *Engine) addNATBackend(b *lb.Backend) {
	for _, a := range []netip.Addr{b.Address4, b.Address6} {
		if a.IsValid() {
			e.natBackends[a.As16()] = struct{}{}
		}
	}
}

// placeOf returns the record of a backend of the snapshot in force.
func (e *Engine) placeOf(b *lb.Backend) *backendRecord {
	return e.services[b.Service.Index].records[b.Index]
}

// Expire reclaims up to limit entries per table whose time is over (limit < 0:
// all). Tables also reclaim in passing; an idle data path calls this now and then.
func (e *Engine) Expire(now time.Duration, limit int) int {
	e.fragments.Expire(now)
	e.relayed.Expire(now, limit)
	return e.flows.Expire(now, limit) + e.replies.Expire(now, limit)
}
