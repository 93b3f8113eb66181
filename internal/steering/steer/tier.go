package steer

import (
	"time"

	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/packet"
)

// relayed is what the Engine remembers of a datagram whose fragments it handed to another member of the tier.
type relayed struct {
	ttl  uint8 // of its first fragment that came by
	home bool  // it came back: its fragments stay here
}

// toMember hands a fragment to the member of the tier that sees all fragments between its addresses; sent false: this
// balancer takes it.
//
// Members whose tables differ, as while a change spreads, would send a fragment round for ever. A fragment that comes
// back has lost hops on its way, so one with a lower hop limit than its datagram had when it was handed on is taken
// here, and all that follow of that datagram. This needs neither room in the packet nor a word between members, and
// ends each circle at the first member that it meets twice.
func (e *Engine) toMember(p *packet.Packet, now time.Duration) (d Decision, sent bool) {
	k := p.Fragment
	m := e.snapshot.Member(k.Src, k.Dst)
	if m == nil || !e.snapshot.HasAddress(k.Dst) {
		return d, false
	}
	if seen, at := e.relayed.Find(k, now); seen != nil {
		if seen.home || p.TTL < seen.ttl {
			seen.home = true
			e.tier.Returned++
			return d, false
		}
		e.relayed.RenewAt(at, now, e.snapshot.Limits.FragmentTTL, 0)
	} else if !e.relayed.Put(k, relayed{ttl: p.TTL}, now, e.snapshot.Limits.FragmentTTL) {
		e.tier.Unguarded++
	}
	e.tier.Sent++
	d = verdict(lb.ReasonTier, nil, nil)
	d.Member, d.Mark = m, m.Mark
	return d, true
}
