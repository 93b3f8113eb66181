package steer

import (
	"net/netip"
	"time"

	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// maxSNATTries bounds one search for a free source port; a flow has two.
const maxSNATTries = 64

// reserve picks what the backend sees as the source and enters the key of the
// replies. Without SNAT the client's own address and port stay; two flows of
// one client through two VIPs to one backend then collide, and the second is refused.
//
// With SNAT the client's own port comes first, at the address where its hash
// leads: what a NAT before this one has kept apart stays apart, and two of equal
// size in series fill alike. Then candidate i of the pool of addresses × ports is
// number (hash>>32 + i) mod pool, addresses first: the same on every data path. Where
// all of those are taken the search goes on where the last flow of the service
// that had to ended its own: so a nearly full pool is swept by those who come,
// and no port stays unfound. A flood must not cost a search for each packet: of
// failed ones maxSNATMisses are made in each snatPeriod (one in a pool that a
// single search covers), and one more for each port that the service releases.
// Other new flows are refused at once.
func (e *Engine) reserve(en *entry, k flow.Key, b *lb.Backend, now, ttl time.Duration) lb.Reason {
	to := e.destination(k, b)
	snat := b.Service.SNAT
	switch {
	case !to.IsValid():
		return lb.ReasonFlowTableFull
	case snat == nil:
		if !e.reserveReply(en, replyKey(k, to, k.Source()), k, now, ttl) {
			return lb.ReasonFlowTableFull
		}
		return lb.ReasonNone
	case e.replies.Len() >= e.replies.Max() && e.replies.Expire(now, 1) == 0:
		return lb.ReasonFlowTableFull
	}
	state := e.services[b.Service.Index]
	addresses := ofFamily(snat.Addresses, to.Addr().Is6())
	pool := (uint64(snat.Last-snat.First) + 1) * uint64(len(addresses))
	if !state.maySearch(pool, now) {
		return lb.ReasonSNATExhausted
	}
	if !e.findSNAT(en, k, to, snat, addresses, now, ttl) {
		state.snatMisses++
		return lb.ReasonSNATExhausted
	}
	return lb.ReasonNone
}

const (
	snatPeriod    = time.Duration(1 << 30)
	maxSNATMisses = 1024
)

// maySearch says whether a search of the service's pool may be made at now.
func (s *serviceState) maySearch(pool uint64, now time.Duration) bool {
	if period := now / snatPeriod; period != s.snatPeriod {
		s.snatPeriod, s.snatMisses = period, 0
	}
	return s.snatMisses == 0 || pool > maxSNATTries && s.snatMisses < maxSNATMisses
}

// findSNAT searches addresses × ports and enters what it finds.
func (e *Engine) findSNAT(en *entry, k flow.Key, to netip.AddrPort, snat *lb.SNAT, addresses []netip.Addr, now, ttl time.Duration) bool {
	ports := uint64(snat.Last-snat.First) + 1
	pool := ports * uint64(len(addresses))
	search := func(start, tries uint64) bool {
		for i := range min(pool, tries) {
			n := (start + i) % pool
			from := netip.AddrPortFrom(addresses[n/ports], snat.First+uint16(n%ports))
			if e.reserveReply(en, replyKey(k, to, from), k, now, ttl) {
				en.snat = from
				return true
			}
		}
		return false
	}
	start := e.snapshot.HashKey.Flow(k) >> 32
	if !isEcho(k.Proto) && k.SrcPort >= snat.First && k.SrcPort <= snat.Last && search(start%pool/ports*ports+uint64(k.SrcPort-snat.First), 1) {
		return true
	}
	if search(start, maxSNATTries) {
		return true
	}
	if pool <= maxSNATTries {
		return false
	}
	state := en.place.state
	next := state.snatNext
	state.snatNext += maxSNATTries
	return search(uint64(next), maxSNATTries)
}

// reserveReply enters one reply key unless another live flow has it.
func (e *Engine) reserveReply(en *entry, reply, k flow.Key, now, ttl time.Duration) bool {
	if owner := e.replies.Get(reply, now); owner != nil && *owner != k {
		if e.flows.Get(*owner, now) != nil {
			return false
		}
	}
	if !e.replies.Put(reply, k, now, ttl) {
		return false
	}
	en.reply = reply
	return true
}

// replyKey is the flow of packets from the backend at to, to what it sees as
// the client. An echo's identifier is the same in both directions.
func replyKey(k flow.Key, to, from netip.AddrPort) flow.Key {
	if isEcho(k.Proto) {
		from = netip.AddrPortFrom(from.Addr(), 0)
		to = netip.AddrPortFrom(to.Addr(), k.SrcPort)
	}
	return flow.NewKey(to, from, k.Proto)
}

func isEcho(proto uint8) bool { return proto == flow.ProtoICMP || proto == flow.ProtoICMPv6 }

// ofFamily returns the addresses of one family; they are ordered, IPv4 first.
func ofFamily(addresses []netip.Addr, is6 bool) []netip.Addr {
	first := 0
	for first < len(addresses) && !addresses[first].Is6() {
		first++
	}
	if is6 {
		return addresses[first:]
	}
	return addresses[:first]
}

// destination returns the backend's endpoint for a flow: its address of the
// flow's family, or of the other if it has no such one (a proxy only).
func (e *Engine) destination(k flow.Key, b *lb.Backend) netip.AddrPort {
	is6 := k.Destination().Addr().Is6()
	addr, ok := b.Address(is6)
	if !ok {
		addr, _ = b.Address(!is6)
	}
	port := b.Port
	if port == 0 || isEcho(k.Proto) {
		port = k.DstPort
	}
	return netip.AddrPortFrom(addr, port)
}

// toBackend fills in the rewrite of a packet on its way to d.Backend.
func (e *Engine) toBackend(d *Decision, k flow.Key, snat netip.AddrPort) {
	if d.Service.Mode != lb.NAT {
		return
	}
	d.Destination = e.destination(k, d.Backend)
	d.Source = snat
}

// fromBackend fills in the rewrite of a packet back to the client of flow k.
func fromBackend(d *Decision, k flow.Key, snat netip.AddrPort) {
	d.Source = k.Destination()
	if snat.IsValid() {
		d.Destination = k.Source()
	}
}
