package steer

import (
	"net/netip"
	"time"

	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/packet"
)

// ICMP echo requests (RFC 792, RFC 4443 section 4.1).
const (
	echoRequest4 = 8
	echoRequest6 = 128
)

// echo steers pings: a request to a VIP goes where the identifier hashes to.
// Mode NAT needs an entry for the reply, the others keep none.
func (e *Engine) echo(p *packet.Packet, now time.Duration) (Decision, flow.Key) {
	k := p.Key
	service := e.snapshot.LookupAddress(k.Dst)
	if p.ICMPType != echoRequest4 && p.ICMPType != echoRequest6 {
		if service != nil {
			return verdict(lb.ReasonNotSteered, nil, nil), k
		}
		return e.reply(k, 0, now)
	}
	switch {
	case service == nil:
		return verdict(lb.ReasonNotService, nil, nil), k
	case service.Down:
		return verdict(lb.ReasonServiceDown, service, nil), k
	}
	if service.Mode == lb.NAT {
		if en, at := e.find(k, service, now); en != nil {
			e.touch(en, at, k.Proto, 0, true, now)
			return e.forward(lb.ReasonEcho, k, en.place.backend, en.snat, false), k
		}
		if !e.services[service.Index].rate.take(now) {
			return verdict(lb.ReasonNewFlowRate, service, nil), k
		}
	}
	b := service.Select(e.hash(service, k))
	switch {
	case b == nil:
		return verdict(lb.ReasonNoBackend, service, nil), k
	case service.Mode == lb.NAT:
		return e.enter(lb.ReasonEcho, k, b, 0, now), k
	}
	return e.forward(lb.ReasonEcho, k, b, netip.AddrPort{}, false), k
}

// icmpError steers an ICMP error by the flow it quotes. p.Key is that flow in
// the error's own direction: client > VIP if the error is for a backend,
// backend > client if it is for a client.
func (e *Engine) icmpError(p *packet.Packet, now time.Duration) (Decision, flow.Key) {
	k := p.Key
	if p.QuoteLater {
		return e.quotedFragment(p, now)
	}
	service := e.quotedService(k)
	if service == nil || p.DstAddr() != k.Dst {
		return e.icmpReply(p, now)
	}
	if service.Down {
		return verdict(lb.ReasonServiceDown, service, nil), k
	}
	if en, _ := e.find(k, service, now); en != nil {
		return e.forward(lb.ReasonICMPError, k, en.place.backend, en.snat, false), k
	}
	// No entry: where Maglev sends the flow is the best guess for modes that
	// may hold none. An error opens nothing and counts against no rate.
	if b := service.Select(e.hash(service, k)); b != nil && service.Mode != lb.NAT {
		return e.forward(lb.ReasonICMPError, k, b, netip.AddrPort{}, false), k
	}
	return verdict(lb.ReasonICMPUnknown, service, nil), k
}

func (e *Engine) quotedService(k flow.Key) *lb.Service {
	if isEcho(k.Proto) {
		return e.snapshot.LookupAddress(k.Dst)
	}
	return e.snapshot.Lookup(k.Proto, k.Dst, k.DstPort)
}

// icmpReply steers an error from a backend, or a router behind it, to a client.
func (e *Engine) icmpReply(p *packet.Packet, now time.Duration) (Decision, flow.Key) {
	if owner := e.replies.Get(p.Key, now); owner != nil && p.DstAddr() == p.Key.Dst {
		client := *owner
		if en := e.flows.Get(client, now); en != nil && en.place.backend != nil && en.reply == p.Key {
			d := verdict(lb.ReasonICMPReply, en.place.backend.Service, en.place.backend)
			fromBackend(&d, client, en.snat)
			return d, client
		}
	}
	if e.snapshot.HasAddress(p.DstAddr()) {
		return verdict(lb.ReasonICMPUnknown, nil, nil), p.Key
	}
	return verdict(lb.ReasonNotService, nil, nil), p.Key
}
