package steer

import (
	"encoding/binary"
	"time"

	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/packet"
)

// sctpHeader is the length of SCTP's common header (RFC 9260 section 3.1), udpHeader that of UDP.
const (
	sctpHeader = 12
	udpHeader  = 8
)

// inner changes k, the flow of a packet with ports, into the flow of the SCTP packet that a flow rule expects inside its UDP
// (RFC 6951), and returns the transport header of k. Other flows stay as they are.
func (e *Engine) inner(p *packet.Packet, k *flow.Key) []byte {
	header := p.Data[p.L4:]
	if len(header) >= udpHeader+sctpHeader && e.snapshot.Encapsulated(*k) {
		header = header[udpHeader:]
		k.Proto = flow.ProtoSCTP
		k.SrcPort, k.DstPort = binary.BigEndian.Uint16(header), binary.BigEndian.Uint16(header[2:])
	}
	return header
}

// quoted is inner for the packet that an ICMP error quotes: the flow in the error's own direction.
func (e *Engine) quoted(p *packet.Packet) flow.Key {
	k := p.Key
	if k.Proto != flow.ProtoUDP || !e.snapshot.Encapsulated(k) {
		return k
	}
	if header := p.Data[p.QuoteL4:]; len(header) >= udpHeader+4 {
		k.Proto = flow.ProtoSCTP
		k.SrcPort, k.DstPort = binary.BigEndian.Uint16(header[udpHeader+2:]), binary.BigEndian.Uint16(header[udpHeader:])
	}
	return k
}

// found is the service of a packet, the flow rule that chose it, and whether the service serves the client.
type found struct {
	service *lb.Service
	rule    *lb.FlowRule
	serves  bool
}

// service finds the service of a flow with ports: by flow rule, else by VIP.
func (e *Engine) service(k *flow.Key, header []byte) found {
	if len(e.snapshot.Rules) > 0 {
		if rule := e.snapshot.Match(*k, lb.ClassOf(k.Proto), header); rule != nil {
			return found{rule.Service, rule, true}
		}
	}
	service, serves := e.snapshot.Lookup(k.Proto, k.Src, k.Dst, k.DstPort)
	return found{service, nil, serves}
}

// pinged finds the service of a ping.
func (e *Engine) pinged(k flow.Key) found {
	if rule := e.snapshot.Match(k, lb.ClassEcho, nil); rule != nil {
		return found{rule.Service, rule, true}
	}
	service, serves := e.snapshot.LookupAddress(k.Src, k.Dst)
	return found{service, nil, serves}
}

// portless steers protocols without ports, and ICMP that is neither ping nor error: a flow rule may match them by addresses.
func (e *Engine) portless(p *packet.Packet, now time.Duration) (Decision, flow.Key) {
	k := p.Key
	k.SrcPort, k.DstPort = 0, 0
	if !onLink(p) {
		if rule := e.snapshot.Match(k, lb.ClassOther, nil); rule != nil {
			d := e.steer(rule.Service, k, nil, 0, now)
			d.Rule = rule
			return d, k
		}
	}
	if e.snapshot.HasAddress(k.Dst) {
		return verdict(lb.ReasonNotSteered, nil, nil), k
	}
	return verdict(lb.ReasonNotService, nil, nil), k
}

// onLink reports whether a packet keeps the link itself alive: neighbour discovery (RFC 4861 section 4) and multicast
// listeners (RFC 2710, RFC 3810), which no rule may send elsewhere.
func onLink(p *packet.Packet) bool {
	t := p.ICMPType // 0 of a later fragment, and of ICMPv6's number over IPv4
	return p.Proto == flow.ProtoICMPv6 && (t >= 133 && t <= 137 || t >= 130 && t <= 132 || t == 143)
}

// unmatched gives packets of no service the mark, or the rejection, that the spec defines.
func (e *Engine) unmatched(p *packet.Packet, d Decision) Decision {
	if d.Reason != lb.ReasonNotService && d.Reason != lb.ReasonNotSteered || d.Service != nil || onLink(p) {
		return d
	}
	if e.snapshot.NoServiceMark == lb.DropMark {
		return verdict(lb.ReasonUnmatched, nil, nil)
	}
	d.Mark = uint32(e.snapshot.NoServiceMark)
	return d
}

// noBackend returns the decision for a packet that no backend can take, with that reason.
func noBackend(reason lb.Reason, service *lb.Service) Decision {
	if service.NoBackendMark == lb.DropMark {
		return verdict(reason, service, nil)
	}
	d := verdict(lb.ReasonNoBackendMark, service, nil)
	d.Mark = uint32(service.NoBackendMark)
	return d
}

// refused is the decision about a packet whose share of the service is a backend without a server. In mode mark a rule rejects it
// by its mark. No entry is made: once there is a server, the next packet goes there.
func refused(b *lb.Backend) Decision {
	if b.Action == lb.ActReject && b.Service.Mode == lb.Mark {
		return noBackend(lb.ReasonShareRefused, b.Service)
	}
	d := verdict(lb.ReasonShareRefused, b.Service, nil)
	d.Reject = b.Action == lb.ActReject
	return d
}

// byPorts reports whether the service hashes the flow by its ports. All addresses of an SCTP association then share one
// conntrack entry, whose key has none, so that it stays with its backend over each of them.
func byPorts(service *lb.Service, k *flow.Key) bool {
	return service.SCTPHash == lb.SCTPPorts && k.Proto == flow.ProtoSCTP
}
