package steer

import (
	"time"

	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/packet"
)

// follow is what the later fragments of a datagram do: what the first one did.
type follow struct {
	record *backendRecord // nil: passed or dropped, for reason
	reason lb.Reason
	mark   uint32   // reserved mark of what passed
	client flow.Key // the flow as seen from the client
	back   bool     // from the backend to the client
	// service of a ping that passes because the kernel answers it (Options.KernelAnswers), else nil
	service *lb.Service
}

// firstFragment remembers the decision on a first fragment.
func (e *Engine) firstFragment(p *packet.Packet, d Decision, client flow.Key, now time.Duration) Decision {
	if d.Reason == lb.ReasonNotService && !e.watches(p.Fragment) {
		return d // its later fragments will not be looked up either
	}
	f := follow{reason: d.Reason, mark: d.Mark, client: client}
	if d.Reason == lb.ReasonNotSteered {
		f.service = d.Service
	}
	if d.Backend != nil {
		f.record = e.placeOf(d.Backend)
		f.back = d.Reason == lb.ReasonReply || d.Reason == lb.ReasonICMPReply || d.Reason == lb.ReasonOutbound
	}
	if _, held := e.fragments.First(p.Fragment, f, now); d.Action == lb.Forward {
		switch held {
		case flow.FragmentRefused:
			return verdict(lb.ReasonFragmentTableFull, d.Service, nil)
		case flow.FragmentLost:
			return verdict(lb.ReasonHoldFull, d.Service, nil)
		}
	}
	if f.record != nil && d.Service.Mode == lb.NAT {
		// A router's complaint will quote the datagram as it left. That this
		// has no room loses such complaints only.
		e.fragments.First(rewritten(p.Fragment, d), f, now)
	}
	return d
}

// rewritten is the fragment key after NAT, apart from those of datagrams that come.
func rewritten(k flow.FragmentKey, d Decision) flow.FragmentKey {
	if d.Source.IsValid() {
		k.Src = flow.Address(d.Source.Addr())
	}
	if d.Destination.IsValid() {
		k.Dst = flow.Address(d.Destination.Addr())
	}
	k.Left = true
	return k
}

// watches says whether later fragments of a datagram are looked up: to a VIP's
// address, or from a backend that may be replying.
func (e *Engine) watches(k flow.FragmentKey) bool {
	_, isBackend := e.natBackends[k.Src]
	return isBackend || e.snapshot.HasAddress(k.Dst)
}

// laterFragment steers a fragment without ports.
func (e *Engine) laterFragment(p *packet.Packet, now time.Duration) Decision {
	if !e.watches(p.Fragment) {
		return verdict(lb.ReasonNotService, nil, nil)
	}
	if e.options.NoHold {
		if _, ok := e.fragments.Peek(p.Fragment, now); !ok {
			return e.lost(p.Fragment, lb.ReasonFragmentUnknown)
		}
	}
	f, held := e.fragments.Later(p.Fragment, now)
	switch {
	case held == flow.FragmentWait:
		return verdict(lb.ReasonFragmentEarly, nil, nil)
	case held == flow.FragmentLost:
		return e.lost(p.Fragment, lb.ReasonHoldFull)
	case f.record == nil:
		d := verdict(f.reason, f.service, nil)
		d.Mark = f.mark
		return d
	}
	return e.followFirst(f, lb.ReasonFragment, now)
}

// lost drops a fragment to a VIP. A backend's traffic to elsewhere, which may
// not concern us at all, passes.
func (e *Engine) lost(k flow.FragmentKey, reason lb.Reason) Decision {
	if !e.snapshot.HasAddress(k.Dst) {
		return verdict(lb.ReasonNotService, nil, nil)
	}
	return verdict(reason, nil, nil)
}

// followFirst repeats a first fragment's decision.
func (e *Engine) followFirst(f follow, reason lb.Reason, now time.Duration) Decision {
	b := f.record.backend
	if b == nil || b.State == lb.Down {
		return verdict(lb.ReasonFragmentUnknown, nil, nil)
	}
	d := verdict(reason, b.Service, b)
	if b.Service.Mode != lb.NAT {
		return d
	}
	en := e.flows.Get(f.client, now)
	if en == nil || en.record != f.record {
		return verdict(lb.ReasonFragmentUnknown, b.Service, nil)
	}
	if f.back {
		fromBackend(&d, f.client, en.snat)
	} else {
		e.toBackend(&d, f.client, en.snat)
	}
	return d
}

// quotedFragment steers an ICMP error that quotes a later fragment. Only mode
// NAT saw that datagram leave.
func (e *Engine) quotedFragment(p *packet.Packet, now time.Duration) (Decision, flow.Key) {
	left := p.Fragment
	left.Left = true
	f, ok := e.fragments.Peek(left, now)
	if !ok || p.DstAddr() != p.Key.Dst {
		if e.snapshot.HasAddress(p.DstAddr()) {
			return verdict(lb.ReasonICMPUnknown, nil, nil), p.Key
		}
		return verdict(lb.ReasonNotService, nil, nil), p.Key
	}
	// The error goes against the datagram it quotes.
	f.back = !f.back
	reason := lb.ReasonICMPError
	if f.back {
		reason = lb.ReasonICMPReply
	}
	return e.followFirst(f, reason, now), f.client
}
