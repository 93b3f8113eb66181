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
	if p.ICMPType != echoRequest4 && p.ICMPType != echoRequest6 {
		if e.snapshot.HasAddress(k.Dst) {
			return e.portless(p, now)
		}
		return e.reply(k, 0, now)
	}
	to := e.pinged(k)
	switch {
	case to.service == nil:
		return verdict(lb.ReasonNotService, nil, nil), k
	case !to.serves:
		return verdict(lb.ReasonSourceRefused, to.service, nil), k
	}
	d := e.ping(p, to.service, now)
	d.Rule = to.rule
	return d, k
}

// answer decides about an echo request to a service whose pings the balancer answers itself.
func (e *Engine) answer(p *packet.Packet, service *lb.Service, now time.Duration) Decision {
	switch {
	case e.options.KernelAnswers:
		return verdict(lb.ReasonNotSteered, service, nil)
	case !answerable(p):
		return verdict(lb.ReasonEchoRefused, service, nil)
	case !e.services[service.Index].echoes.take(now):
		return verdict(lb.ReasonEchoRate, service, nil)
	}
	return verdict(lb.ReasonEchoAnswered, service, nil)
}

// answerable reports whether an echo request gets an answer of the balancer: it is whole, has no options or extension headers,
// and its sender is a single host (RFC 1122 section 3.2.2, RFC 4443 section 2.4).
func answerable(p *packet.Packet) bool {
	a, header := p.SrcAddr(), 40
	if p.Version == 4 {
		header = 20
	}
	if p.First || p.Truncated || p.L4 != header {
		return false
	}
	if p.Version == 4 {
		return a[12] > 0 && a[12] != 127 && a[12] < 224
	}
	return a[0] != 0xff && [8]byte(a[:8]) != [8]byte{}
}

// ping steers an echo request to a service.
func (e *Engine) ping(p *packet.Packet, service *lb.Service, now time.Duration) Decision {
	k := p.Key
	if service.Down {
		return noBackend(lb.ReasonServiceDown, service)
	}
	if service.Ping == lb.PingBalancer {
		return e.answer(p, service, now)
	}
	if service.Mode == lb.NAT {
		if en, at := e.find(k, service, now); en != nil {
			e.touch(en, at, k.Proto, 0, true, now)
			return e.forward(lb.ReasonEcho, k, en.record.backend, en.snat, false)
		}
		if !e.services[service.Index].rate.take(now) {
			return verdict(lb.ReasonNewFlowRate, service, nil)
		}
	}
	b := service.Select(e.hash(service, k))
	switch {
	case b == nil:
		return noBackend(lb.ReasonNoBackend, service)
	case b.Refuses():
		d := refused(b)
		d.Reject = false // an answer to a ping says nothing about ports
		return d
	case service.Mode == lb.NAT:
		return e.enter(lb.ReasonEcho, k, b, 0, now)
	}
	return e.forward(lb.ReasonEcho, k, b, netip.AddrPort{}, false)
}

// icmpError steers an ICMP error by the flow it quotes. p.Key is that flow in
// the error's own direction: client > VIP if the error is for a backend,
// backend > client if it is for a client.
func (e *Engine) icmpError(p *packet.Packet, now time.Duration) (Decision, flow.Key) {
	if p.QuoteLater {
		return e.quotedFragment(p, now)
	}
	k := e.quoted(p)
	to := e.quotedService(k, now)
	service := to.service
	if !to.serves || p.DstAddr() != k.Dst {
		return e.icmpReply(p, now)
	}
	known := k
	if byPorts(service, &k) {
		known.Src, known.Dst = [16]byte{}, [16]byte{}
	}
	d := e.aboutFlow(service, known, now)
	d.Rule = to.rule
	return d, k
}

// ErrorAbout is Packet for an ICMP error about a flow that this Engine may not know; owner, if not nil, is the backend that
// another Engine of the data path has for it.
func (e *Engine) ErrorAbout(p *packet.Packet, owner *lb.Backend, now time.Duration) Decision {
	if owner != nil && owner.Service.Index < len(e.services) && e.services[owner.Service.Index].service == owner.Service {
		e.lent = owner
	}
	d := e.Packet(p, now)
	e.lent = nil
	return d
}

// aboutFlow steers an ICMP error about a flow of a service.
func (e *Engine) aboutFlow(service *lb.Service, k flow.Key, now time.Duration) Decision {
	if service.Down {
		return noBackend(lb.ReasonServiceDown, service)
	}
	if isEcho(k.Proto) && service.Ping == lb.PingBalancer {
		return verdict(lb.ReasonICMPUnknown, service, nil) // about a reply of this machine
	}
	if en, _ := e.find(k, service, now); en != nil {
		return e.forward(lb.ReasonICMPError, k, en.record.backend, en.snat, false)
	}
	if b := e.lent; b != nil && b.Service == service && b.State != lb.Down && service.Mode != lb.NAT {
		return e.forward(lb.ReasonICMPError, k, b, netip.AddrPort{}, false)
	}
	// Without an entry, the backend of the Maglev table is the best guess for the modes that may have no entry. An error
	// opens no entry and counts against no rate.
	if b, _ := service.SelectMidstream(e.hash(service, k), k.Proto); b != nil && !b.Refuses() && service.Mode != lb.NAT {
		return e.forward(lb.ReasonICMPError, k, b, netip.AddrPort{}, false)
	}
	return verdict(lb.ReasonICMPUnknown, service, nil)
}

// quotedService finds the service of the flow that an ICMP error is about. Of the fields that flow rules compare in the
// client's packets, a quoted reply contains only the ports. Therefore an existing entry, which knows the service, decides
// first.
func (e *Engine) quotedService(k flow.Key, now time.Duration) found {
	if isEcho(k.Proto) {
		return e.pinged(k)
	}
	if len(e.snapshot.Rules) > 0 {
		if en := e.flows.Get(k, now); en != nil && en.record.backend != nil {
			return found{en.record.backend.Service, nil, true}
		}
		if e.lent != nil {
			return found{e.lent.Service, nil, true}
		}
	}
	header := [4]byte{byte(k.SrcPort >> 8), byte(k.SrcPort), byte(k.DstPort >> 8), byte(k.DstPort)}
	return e.service(&k, header[:])
}

// icmpReply steers an error from a backend, or a router behind it, to a client.
func (e *Engine) icmpReply(p *packet.Packet, now time.Duration) (Decision, flow.Key) {
	if owner := e.replies.Get(p.Key, now); owner != nil && p.DstAddr() == p.Key.Dst {
		client := *owner
		if en := e.flows.Get(client, now); en != nil && en.record.backend != nil && en.reply == p.Key {
			d := verdict(lb.ReasonICMPReply, en.record.backend.Service, en.record.backend)
			fromBackend(&d, client, en.snat)
			return d, client
		}
	}
	if e.snapshot.HasAddress(p.DstAddr()) {
		return verdict(lb.ReasonICMPUnknown, nil, nil), p.Key
	}
	return verdict(lb.ReasonNotService, nil, nil), p.Key
}
