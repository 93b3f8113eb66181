package steer

import (
	"net/netip"
	"time"

	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// maxSNATTries bounds one search for a free source port; a flow has two searches. The search for a port of an unproven flow
// tries the same number of ports, or fewSNATTries if there was no search for a free one.
const (
	maxSNATTries = 64
	fewSNATTries = 8
)

// handshakeTime is how long after its backend's SYN-ACK a TCP handshake keeps its source port in a full pool. A backend
// whose SYN-ACK is lost sends it again after one second, and then after two more (RFC 6298).
const handshakeTime = 3 * time.Second

// reserve chooses what the backend sees as the source and records the key of the replies. Without SNAT the client's own
// address and port stay. Two flows of one client through two VIPs to one backend then collide, and the second is refused.
//
// With SNAT, the first candidate is the client's own port at the address that its hash selects: flows that an earlier NAT
// kept apart stay apart, and two NATs of equal size in series fill equally. Then candidate i of the pool of addresses ×
// ports is number (hash>>32 + i) mod pool, addresses first, the same on every data path. If all of these are taken, the
// search continues where the last such search of the service ended. New flows thereby sweep a nearly full pool, and every
// free port is found eventually. A flood must not cost a search for each packet: each snatPeriod allows maxSNATMisses failed
// searches (one in a pool that a single search covers), and one more for each port that the service releases.
//
// A flow that finds no port this way takes the port of an unproven flow (takePort), which is evicted. Ports of proven flows
// are never taken. Each snatPeriod allows maxSNATStays attempts that find no unproven flow; other new flows are refused at
// once.
func (e *Engine) reserve(en *entry, k flow.Key, b *lb.Backend, now, ttl time.Duration) lb.Reason {
	to := e.destination(k, b)
	snat := b.Service.SNAT
	switch {
	case !to.IsValid():
		return lb.ReasonFlowTableFull
	case snat == nil:
		if en.state == opening {
			e.endClosed(replyKey(k, to, k.Source()), k, now)
		}
		if !e.reserveReply(en, replyKey(k, to, k.Source()), k, now, ttl) {
			return lb.ReasonFlowTableFull
		}
		return lb.ReasonNone
	case e.replies.Len() >= e.replies.Max() && e.replies.Expire(now, 1) == 0:
		return lb.ReasonFlowTableFull
	}
	state := e.services[b.Service.Index]
	s := &sources{to: to, addresses: ofFamily(snat.Addresses, to.Addr().Is6()), first: snat.First, ports: uint64(snat.Last-snat.First) + 1}
	tries := uint64(fewSNATTries)
	if state.maySearch(s.pool(), now) {
		if e.findSNAT(en, k, s, now, ttl) {
			return lb.ReasonNone
		}
		state.snatMisses++
		tries = maxSNATTries
	}
	if state.snatStays >= maxSNATStays {
		return lb.ReasonSNATExhausted
	}
	if !e.takePort(en, k, s, tries, now, ttl) {
		state.snatStays++
		return lb.ReasonSNATExhausted
	}
	return lb.ReasonNone
}

// sources are the addresses and ports that a flow to one backend may use as its source.
type sources struct {
	to        netip.AddrPort // the backend
	addresses []netip.Addr
	first     uint16
	ports     uint64 // of each address
}

func (s *sources) pool() uint64 { return s.ports * uint64(len(s.addresses)) }

// at returns source n modulo the pool, addresses first.
func (s *sources) at(n uint64) netip.AddrPort {
	n %= s.pool()
	return netip.AddrPortFrom(s.addresses[n/s.ports], s.first+uint16(n%s.ports))
}

const (
	snatPeriod    = time.Duration(1 << 30)
	maxSNATMisses = 1024
	maxSNATStays  = maxSNATMisses * 2 * maxSNATTries / fewSNATTries
)

// maySearch reports whether a search of the service's pool may be made at now.
func (s *serviceState) maySearch(pool uint64, now time.Duration) bool {
	if period := now / snatPeriod; period != s.snatPeriod {
		s.snatPeriod, s.snatMisses, s.snatStays = period, 0, 0
	}
	return s.snatMisses == 0 || pool > maxSNATTries && s.snatMisses < maxSNATMisses
}

// findSNAT searches a pool and records the source that it finds.
func (e *Engine) findSNAT(en *entry, k flow.Key, s *sources, now, ttl time.Duration) bool {
	pool := s.pool()
	search := func(start, tries uint64) bool {
		for i := range min(pool, tries) {
			if e.reserveSource(en, k, s, start+i, now, ttl) {
				return true
			}
		}
		return false
	}
	start := e.snapshot.HashKey.Flow(k) >> 32
	own := uint64(k.SrcPort) - uint64(s.first) // far too large for a port below the pool's
	if !isEcho(k.Proto) && own < s.ports && search(start%pool/s.ports*s.ports+own, 1) {
		return true
	}
	if search(start, maxSNATTries) {
		return true
	}
	if pool <= maxSNATTries {
		return false
	}
	state := en.record.state
	next := state.snatNext
	state.snatNext += maxSNATTries
	return search(uint64(next), maxSNATTries)
}

// takePort tries a few ports of a pool without a free one, takes the port of the unproven flow that was opened or renewed
// first, and evicts that flow. With fewSNATTries, which means a flood, it takes the first flow that its backend has not
// answered. A flow whose backend has answered, as in a TCP handshake, goes after those without an answer. In the
// handshakeTime after the answer it goes only if such flows hold more than a quarter of the ports, with fewSNATTries more
// than half: they are then a flood of SYNs, which must not cause the refusal of everybody else. Each attempt starts where the last one ended, so the unproven
// flows of the whole pool go by their age. A port that is free after all is taken before any of them.
func (e *Engine) takePort(en *entry, k flow.Key, s *sources, tries uint64, now, ttl time.Duration) bool {
	state := en.record.state
	few := tries == fewSNATTries
	tries = min(s.pool(), tries)
	victim, chosen, first, young := flow.Ref(-1), uint64(0), rank{}, uint64(0)
	for range tries {
		n := uint64(state.snatNext)
		state.snatNext++
		holder, at := e.holder(replyKey(k, s.to, s.at(n)), k, now)
		if holder == nil {
			return e.reserveSource(en, k, s, n, now, ttl)
		}
		if holder.state != opening && (e.flows.Proven(at) || holder.replied && holder.state != closing) {
			continue // in a full table some answered flows may not be marked as proven
		}
		r := holder.rank(e.flows.Expiry(at), state.service, k.Proto, now)
		if r.kind == youngHandshake {
			young++
		}
		if victim < 0 || r.before(first) {
			victim, chosen, first = at, n, r
		}
		if few && r.kind == unanswered {
			break
		}
	}
	crowd := tries / 4
	if few {
		crowd = tries / 2
	}
	if victim < 0 || first.kind == youngHandshake && young <= crowd {
		return false
	}
	misses := state.snatMisses
	e.flows.Evict(victim)
	state.snatMisses = misses // the port is taken over, not released
	return e.reserveSource(en, k, s, chosen, now, ttl)
}

// rank is the order in which unproven flows lose their ports.
type rank struct {
	kind   int
	opened time.Duration // or renewed
}

const (
	unanswered = iota
	answered
	youngHandshake // answered less than handshakeTime ago
)

func (r rank) before(o rank) bool { return r.kind < o.kind || r.kind == o.kind && r.opened < o.opened }

// rank returns the rank of an unproven flow that expires at until, by the timeouts of the new flow's service.
func (en *entry) rank(until time.Duration, service *lb.Service, proto uint8, now time.Duration) rank {
	r := rank{opened: minTime}
	if until != never {
		r.opened = until - en.state.timeout(service, proto)
	}
	switch {
	case !en.replied:
	case r.opened <= now && r.opened > now-handshakeTime:
		r.kind = youngHandshake
	default:
		r.kind = answered
	}
	return r
}

// holder returns the live flow that has a reply key, if it is not k.
func (e *Engine) holder(reply, k flow.Key, now time.Duration) (*entry, flow.Ref) {
	owner := e.replies.Get(reply, now)
	if owner == nil || *owner == k {
		return nil, -1
	}
	return e.flows.Find(*owner, now)
}

// endClosed ends the closed connection that has a reply key, if it is not k. A client may use its port again, and its backend sees the same
// addresses and ports whichever VIP it goes through (RFC 9293 section 3.6.1).
func (e *Engine) endClosed(reply, k flow.Key, now time.Duration) {
	if holder, _ := e.holder(reply, k, now); holder != nil && holder.state == closing {
		e.flows.Delete(*e.replies.Get(reply, now))
	}
}

// reserveSource enters the reply key of a flow whose source is number n of a pool.
func (e *Engine) reserveSource(en *entry, k flow.Key, s *sources, n uint64, now, ttl time.Duration) bool {
	from := s.at(n)
	if !e.reserveReply(en, replyKey(k, s.to, from), k, now, ttl) {
		return false
	}
	en.snat = from
	return true
}

// reserveReply records one reply key unless another live flow has it.
func (e *Engine) reserveReply(en *entry, reply, k flow.Key, now, ttl time.Duration) bool {
	if holder, _ := e.holder(reply, k, now); holder != nil {
		return false
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

// ofFamily returns the addresses of one family; addresses is ordered, IPv4 first.
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

// destination returns the backend's endpoint for a flow: its address of the flow's family, or of the other family if it has
// none (only with a proxy).
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
