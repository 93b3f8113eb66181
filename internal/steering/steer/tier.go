package steer

import (
	"time"

	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/packet"
)

// relayed is the record of a datagram whose fragments the Engine handed to another member of the tier.
type relayed struct {
	ttl  uint8 // of its first fragment that came by
	home bool  // it came back: its fragments stay here
}

// toMember hands a fragment to the member of the tier that sees all fragments between its addresses. sent false: this
// balancer takes it.
//
// Members with different tables, as during a change, could send a fragment in a circle for ever. A fragment that comes back
// has a lower hop limit than its datagram had when it was handed on. This member then takes it and all following fragments
// of that datagram. This needs no room in the packet and no message between members, and ends each circle at the first
// member that it reaches twice.
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
