package steer

import (
	"net/netip"
	"time"

	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/packet"
)

// Packet steers one parsed packet and changes nothing in it; Apply does.
// Now must not go back.
func (e *Engine) Packet(p *packet.Packet, now time.Duration) Decision {
	d := e.decide(p, now)
	if e.snapshot.NoServiceMark != 0 {
		d = e.unmatched(p, d)
	}
	if d.Action == lb.Forward && e.options.Router && p.TTL <= 1 && (d.Service == nil || d.Service.Mode != lb.Mark) {
		d.Action, d.Reason = lb.Drop, lb.ReasonTTLExpired
	}
	return e.count(d, p.Length)
}

func (e *Engine) decide(p *packet.Packet, now time.Duration) Decision {
	if (p.First || p.Later) && e.snapshot.Tier != nil {
		if d, sent := e.toMember(p, now); sent {
			return d
		}
	}
	if p.Later {
		return e.laterFragment(p, now)
	}
	var d Decision
	var k flow.Key
	switch p.Kind {
	case packet.KindTCP, packet.KindUDP, packet.KindSCTP:
		d, k = e.transport(p, now)
	case packet.KindEcho:
		d, k = e.echo(p, now)
	case packet.KindICMPError:
		d, k = e.icmpError(p, now)
	default:
		d, k = e.portless(p, now)
	}
	if p.First {
		d = e.firstFragment(p, d, k, now)
	}
	return d
}

// transport steers TCP, UDP and SCTP. The key returned is the flow as seen from
// the client.
func (e *Engine) transport(p *packet.Packet, now time.Duration) (Decision, flow.Key) {
	k, header := p.Key, []byte(nil)
	if len(e.snapshot.Rules) > 0 {
		header = e.inner(p, &k)
	}
	to := e.service(&k, header)
	switch {
	case to.service == nil:
		return e.reply(k, p.TCPFlags, now)
	case !to.serves:
		return verdict(lb.ReasonSourceRefused, to.service, nil), k
	}
	d := e.steer(to.service, k, p.PayloadBytes(), p.TCPFlags, now)
	if to.rule != nil {
		d.Rule = to.rule
	}
	return d, k
}

// Datagram steers one UDP datagram (or the first of a flow of any protocol) that
// a user-space data path received: k is client > VIP. Source and Destination of
// the Decision are for its sockets.
func (e *Engine) Datagram(k flow.Key, payload []byte, now time.Duration) Decision {
	to := e.service(&k, nil)
	switch {
	case to.service == nil:
		return e.count(verdict(lb.ReasonNotService, nil, nil), len(payload))
	case !to.serves:
		return e.count(verdict(lb.ReasonSourceRefused, to.service, nil), len(payload))
	}
	d := e.steer(to.service, k, payload, packet.ACK, now)
	if to.rule != nil {
		d.Rule = to.rule
	}
	return e.count(d, len(payload))
}

// NamesOwner reports whether a datagram's connection id names an owner that is alive, so that a data path with a table of
// its own can make room for it.
func (e *Engine) NamesOwner(k flow.Key, payload []byte) bool {
	to := e.service(&k, nil)
	service := to.service
	if !to.serves || service.CID == nil || service.Down {
		return false
	}
	layout, id, _ := service.CID.Find(payload)
	b := service.Owner(layout, id)
	return b != nil && b.State != lb.Down
}

// steer is the order behind the service look-up: CID, conntrack, Maglev.
func (e *Engine) steer(service *lb.Service, k flow.Key, payload []byte, flags uint8, now time.Duration) Decision {
	if service.Down {
		return noBackend(lb.ReasonServiceDown, service)
	}
	if byPorts(service, &k) {
		k.Src, k.Dst = [16]byte{}, [16]byte{}
	}
	unknown := false
	if service.CID != nil { // then the service is udp's alone, see lb.Compile
		var d Decision
		var done bool
		if d, done, unknown = e.byCID(service, k, payload, now); done {
			return d
		}
	}
	if en, at := e.find(k, service, now); en != nil {
		if en.state == closing && opens(flags) {
			if b := service.Select(e.hash(service, k)); b != en.record.backend {
				return e.replace(k, b, service, flags, now)
			}
		}
		e.touch(en, at, k.Proto, flags, true, now)
		return e.forward(reasonOr(unknown, lb.ReasonConntrack), k, en.record.backend, en.snat, false)
	}
	enter := !service.Stateless && e.mayEnter(service, now)
	if !enter && service.Mode == lb.NAT {
		return verdict(lb.ReasonNewFlowRate, service, nil)
	}
	b, reason := e.choose(service, k, flags, enter)
	switch {
	case b == nil:
		return noBackend(lb.ReasonNoBackend, service)
	case b.Refuses():
		return refused(b)
	case !enter:
		return e.forward(reasonOr(unknown, reason), k, b, netip.AddrPort{}, false)
	}
	return e.enter(reasonOr(unknown, reason), k, b, flags, now)
}

// choose picks the backend of a flow without an entry. A packet that opens a connection goes by the present table, if it gets
// an entry; one that gets none goes as the packets after it, which may not open one.
func (e *Engine) choose(service *lb.Service, k flow.Key, flags uint8, enter bool) (*lb.Backend, lb.Reason) {
	h := e.hash(service, k)
	if enter && k.Proto == lb.TCP && opens(flags) {
		return service.Select(h), lb.ReasonMaglev
	}
	b, earlier := service.SelectMidstream(h, k.Proto)
	if earlier {
		return b, lb.ReasonEarlierTable
	}
	return b, lb.ReasonMaglev
}

// replace steers a new connection on the ports of a closed one to b, which is not the backend of the old one. It takes over
// the old entry, so new_flow_rate does not count it.
func (e *Engine) replace(k flow.Key, b *lb.Backend, service *lb.Service, flags uint8, now time.Duration) Decision {
	if b == nil {
		return noBackend(lb.ReasonNoBackend, service)
	}
	if b.Refuses() {
		return refused(b)
	}
	e.Forget(k)
	return e.enter(lb.ReasonMaglev, k, b, flags, now)
}

func reasonOr(unknown bool, reason lb.Reason) lb.Reason {
	if unknown {
		return lb.ReasonCIDUnknown
	}
	return reason
}

// byCID steers by the owner id in the datagram's connection id. Done false: it
// names no owner that lives; unknown says that there was a CID.
func (e *Engine) byCID(service *lb.Service, k flow.Key, payload []byte, now time.Duration) (d Decision, done, unknown bool) {
	layout, id, found := service.CID.Find(payload)
	if !found {
		return d, false, false
	}
	b := service.Owner(layout, id)
	if b == nil || b.State == lb.Down {
		return d, false, true
	}
	en, at := e.find(k, service, now)
	switch {
	case en != nil && en.record.backend == b:
		e.touch(en, at, k.Proto, 0, true, now)
		return e.forward(lb.ReasonCID, k, b, en.snat, false), true, false
	case service.Mode != lb.NAT && en == nil && !e.needsEntry(service, k, b, now):
		return e.forward(lb.ReasonCID, k, b, netip.AddrPort{}, false), true, false
	}
	return e.enter(lb.ReasonCID, k, b, 0, now), true, false
}

// needsEntry reports whether a flow without an entry, which a CID steers to b, gets one. It does if Maglev would steer
// packets without a CID (also ICMP errors about the flow) elsewhere, and if new_flow_rate permits it.
func (e *Engine) needsEntry(service *lb.Service, k flow.Key, b *lb.Backend, now time.Duration) bool {
	if service.Stateless {
		return false
	}
	other, _ := service.SelectMidstream(e.hash(service, k), k.Proto)
	return other != b && e.mayEnter(service, now)
}

// enter opens the flow's conntrack entry and forwards. If the table is full of proven flows, only mode NAT drops the packet,
// because its replies could not be translated.
func (e *Engine) enter(reason lb.Reason, k flow.Key, b *lb.Backend, flags uint8, now time.Duration) Decision {
	en, problem := e.open(k, b, flags, now)
	if problem == lb.ReasonFlowTableFull && reason == lb.ReasonCID && b.Service.Mode == lb.NAT && e.displace(b.Service) {
		en, problem = e.open(k, b, flags, now)
	}
	switch {
	case problem == lb.ReasonNone:
		return e.forward(reason, k, b, en.snat, true)
	case b.Service.Mode == lb.NAT:
		return verdict(problem, b.Service, nil)
	}
	return e.forward(reason, k, b, netip.AddrPort{}, false)
}

func (e *Engine) forward(reason lb.Reason, k flow.Key, b *lb.Backend, snat netip.AddrPort, new bool) Decision {
	d := verdict(reason, b.Service, b)
	d.New = new
	e.toBackend(&d, k, snat)
	return d
}

// reply steers a packet whose destination is no VIP: a backend's reply in mode NAT, or a packet that is not ours.
func (e *Engine) reply(k flow.Key, flags uint8, now time.Duration) (Decision, flow.Key) {
	owner := e.replies.Get(k, now)
	if owner == nil {
		return e.outbound(k, now)
	}
	client := *owner
	en, at := e.flows.Find(client, now)
	if en == nil || en.record.backend == nil || en.reply != k {
		return e.outbound(k, now)
	}
	e.touch(en, at, client.Proto, flags, false, now)
	d := verdict(lb.ReasonReply, en.record.backend.Service, en.record.backend)
	fromBackend(&d, client, en.snat)
	return d, client
}

// hash is the hash that picks a Maglev slot: of the flow, or of the source.
func (e *Engine) hash(service *lb.Service, k flow.Key) uint64 {
	h := e.snapshot.FlowHash(service, k)
	if e.roll == 0 {
		return h
	}
	// One step of SplitMix64: each roll gives an unrelated choice.
	x := h + e.roll*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	return x ^ x>>27
}
