package steer

import (
	"fmt"
	"net/netip"

	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/packet"
)

// Why explains a decision to a person, in steps. Call it directly after the Packet that made d. It allocates, so it is for
// weir explain and not for data paths.
func (e *Engine) Why(p *packet.Packet, d Decision) []string {
	var steps []string
	say := func(format string, args ...any) { steps = append(steps, fmt.Sprintf(format, args...)) }
	k := p.Key
	if p.Kind == packet.KindICMPError {
		say("the ICMP error quotes the packet %s, so its flow is %s", k.Reverse(), k)
	}
	if p.Kind == packet.KindUDP && !p.Later {
		if e.inner(p, &k); k != p.Key {
			say("it carries SCTP inside of UDP (udp_encap), so its flow is %s", k)
		}
	}
	if d.Rule != nil {
		say("flow rule %s, number %d of %d, is the first that matches", d.Rule, d.Rule.Index+1, len(e.snapshot.Rules))
	}
	if d.Service != nil {
		say("service %s: mode %s, affinity %s", d.Service.Name, d.Service.Mode, d.Service.Affinity)
		if vip, ok := e.matched(d.Service, k); ok && !p.Later && d.Rule == nil {
			say("its VIP %s is the most specific that matches", vip)
			if prefix := sourceOf(d.Service, k); prefix != "" && d.Reason != lb.ReasonSourceRefused {
				say("its sources have %s, the longest prefix of the services of this VIP with the client", prefix)
			}
		}
	}
	if text := e.because(p, k, d); text != "" {
		say("%s", text)
	}
	if d.Action == lb.Forward && d.Service != nil {
		say("%s", leaves(p, d))
	}
	return steps
}

// because explains what decided.
func (e *Engine) because(p *packet.Packet, k flow.Key, d Decision) string {
	switch d.Reason {
	case lb.ReasonNotService:
		return e.notService(p, k, d)
	case lb.ReasonNotSteered:
		return "the address is a VIP's, but no service balances this protocol or ICMP type: passed to the kernel"
	case lb.ReasonUnmatched:
		return "no flow rule and no VIP matches, and no_service_mark is -1: dropped"
	case lb.ReasonNoBackendMark:
		return fmt.Sprintf("no backend of the service can take it: passed to the kernel with fwmark %#x (no_backend_mark)", d.Mark)
	case lb.ReasonTier:
		return fmt.Sprintf("a fragment: by the hash of its addresses, member %s of the tier sees all of them; it gets its fwmark %#x", d.Member.Name, d.Member.Mark)
	case lb.ReasonICMPUnknown:
		return "no service or flow is known for the quoted packet: passed to the kernel"
	case lb.ReasonFragment:
		return "a later fragment: it follows the first one of its datagram"
	case lb.ReasonFragmentEarly:
		return "a later fragment that came before the first one: held until the first one shows where to send it"
	case lb.ReasonFragmentUnknown:
		return "a later fragment whose first one is unknown: dropped"
	case lb.ReasonCID:
		layout, owner, _ := d.Service.CID.Find(p.PayloadBytes())
		return fmt.Sprintf("its connection id names owner %d%s, which is backend %s", owner, ofLayout(d.Service, layout), d.Backend.Name)
	case lb.ReasonCIDUnknown:
		return cidUnknown(p, d)
	case lb.ReasonConntrack:
		return "a conntrack entry of this flow exists"
	case lb.ReasonMaglev:
		return "a new flow: " + e.slot(d.Service, k)
	case lb.ReasonEarlierTable:
		return "a flow that another balancer has opened: " + e.slot(d.Service, k) + fmt.Sprintf(" now, and belonged to %s before the backends changed", d.Backend.Name)
	case lb.ReasonEcho:
		return "a ping: " + e.slot(d.Service, k)
	case lb.ReasonReply:
		return "the reply of a flow that was translated: translated back"
	case lb.ReasonOutbound:
		return "a flow that the backend starts: it leaves with the VIP, and answers come back to that backend"
	case lb.ReasonICMPError:
		return "it goes to the backend of the quoted flow"
	case lb.ReasonICMPReply:
		return "it goes to the client of the quoted flow, translated back"
	case lb.ReasonNoBackend:
		return "no backend of the service takes new flows (weight 0, draining or down): dropped"
	case lb.ReasonShareRefused:
		return e.whyRefused(p, d, k)
	case lb.ReasonServiceDown:
		return "the service was taken down: dropped"
	case lb.ReasonFlowTableFull:
		return "mode nat needs an entry, and the conntrack table is full of flows that have proven themselves (limits.flows), or another flow has the same replies: dropped"
	case lb.ReasonNewFlowRate:
		return fmt.Sprintf("more than %d new flows per second (new_flow_rate), and mode nat needs an entry: dropped", d.Service.NewFlowRate)
	case lb.ReasonSNATExhausted:
		return "no source address and port toward the backend (snat) is free, and flows that have proven themselves hold them: dropped"
	case lb.ReasonMalformed:
		return "its headers lie about lengths or are cut short: dropped"
	}
	return becauseClient(k, d)
}

// becauseClient explains decisions about clients that are not served, and about pings that the balancer answers itself.
func becauseClient(k flow.Key, d Decision) string {
	switch d.Reason {
	case lb.ReasonSourceRefused:
		return fmt.Sprintf("no service of this VIP has the client %s among its sources: dropped", k.Source().Addr())
	case lb.ReasonEchoAnswered:
		return "a ping of a service with ping: balancer: the balancer answers it; with the data paths nfqueue and udp the kernel does, if it has the address"
	case lb.ReasonEchoRefused:
		return "the balancer would answer this ping (ping: balancer), but it is a fragment, has IP options or extension headers, is cut short, or has no single sender: dropped"
	case lb.ReasonEchoRate:
		return fmt.Sprintf("the balancer answers at most %d pings of a service per second (ping: balancer): dropped", lb.EchoRate)
	}
	return ""
}

func (e *Engine) whyRefused(p *packet.Packet, d Decision, k flow.Key) string {
	if d.Service == nil {
		return "a later fragment: it follows the first one of its datagram, which belongs to the share of a backend without a server: dropped"
	}
	text := "a new flow: " + e.slot(d.Service, k) + ", which stands for no server: dropped"
	switch {
	case !d.Reject:
		return text
	case p.Kind == packet.KindTCP:
		return text + ", and answered with a TCP reset"
	}
	return text + ", and answered with an ICMP error, port unreachable"
}

func (e *Engine) notService(p *packet.Packet, k flow.Key, d Decision) string {
	if d.Mark != 0 {
		return fmt.Sprintf("no flow rule and no VIP matches: passed to the kernel with fwmark %#x (no_service_mark)", d.Mark)
	}
	if e.snapshot.HasAddress(p.DstAddr()) {
		return fmt.Sprintf("a service has the address %s, but not this protocol and port, and no flow has it as its reply: passed to the kernel", k.Destination().Addr())
	}
	return "no service has this destination, and no flow has it as its reply: passed to the kernel"
}

func cidUnknown(p *packet.Packet, d Decision) string {
	layout, owner, _ := d.Service.CID.Find(p.PayloadBytes())
	if layout < 0 {
		return "it has a connection id, but of no layout of the service; conntrack or Maglev decided instead"
	}
	return fmt.Sprintf("its connection id names owner %d%s, which is unknown or down; conntrack or Maglev decided instead", owner, ofLayout(d.Service, layout))
}

// ofLayout names the layout of an owner id where a service has several.
func ofLayout(service *lb.Service, layout int) string {
	if len(service.CID.Layouts) < 2 {
		return ""
	}
	return fmt.Sprintf(" of layout %d", layout)
}

// slot explains how the Maglev table chose the backend.
func (e *Engine) slot(service *lb.Service, k flow.Key) string {
	what := "the flow"
	switch {
	case service.Affinity == lb.BySource:
		what = "its source address"
	case service.Affinity == lb.NoSourcePort:
		what = "the flow without its source port"
	case service.Affinity == lb.DestinationPort:
		what = "its destination"
	case k.Proto == flow.ProtoSCTP && service.SCTPHash == lb.SCTPPorts:
		what = "its ports"
	}
	h, owner, size := e.hash(service, k), "no backend", len(service.Maglev)
	if b := service.Select(h); b != nil {
		owner = b.Name
	} else {
		size = len(service.Earlier.TCP)
	}
	return fmt.Sprintf("the hash of %s, %016x, is slot %d of %d in the Maglev table, which belongs to %s",
		what, h, h%uint64(size), size, owner)
}

// matched returns the VIP of a service that covers a destination, written out.
func (e *Engine) matched(service *lb.Service, k flow.Key) (string, bool) {
	to := k.Destination()
	for _, v := range service.VIPs {
		if v.Prefix.Contains(to.Addr()) && (isEcho(k.Proto) || v.Protocol == k.Proto && v.First <= to.Port() && to.Port() <= v.Last) {
			return v.String(), true
		}
	}
	return "", false
}

// sourceOf returns the longest prefix of the service's sources that has the client of a flow, written out.
func sourceOf(service *lb.Service, k flow.Key) string {
	client, best := k.Source().Addr(), netip.Prefix{}
	for _, p := range service.Sources {
		if p.Contains(client) && (!best.IsValid() || p.Bits() > best.Bits()) {
			best = p
		}
	}
	if !best.IsValid() {
		return ""
	}
	return best.String()
}

// leaves explains how the packet travels on.
func leaves(p *packet.Packet, d Decision) string {
	switch d.Service.Mode {
	case lb.L2DSR:
		return fmt.Sprintf("to the link address of %s; no byte of the IP packet changes", address(p, d.Backend))
	case lb.L3DSR:
		return fmt.Sprintf("inside a %s tunnel to %s", d.Service.Tunnel, address(p, d.Backend))
	case lb.Mark:
		return fmt.Sprintf("with fwmark %#x; routing does the rest", d.Backend.Mark)
	}
	src, dst := p.Key.Source(), p.Key.Destination()
	if d.Source.IsValid() {
		src = d.Source
	}
	if d.Destination.IsValid() {
		dst = d.Destination
	}
	if p.Later || isEcho(p.Key.Proto) {
		return fmt.Sprintf("rewritten to %s > %s", src.Addr(), dst.Addr())
	}
	if p.Kind == packet.KindICMPError {
		return fmt.Sprintf("rewritten, with the packet it quotes, to %s > %s", src, dst)
	}
	return fmt.Sprintf("rewritten to %s > %s", src, dst)
}

func address(p *packet.Packet, b *lb.Backend) netip.Addr {
	a, ok := b.Address(p.Version == 6)
	if !ok {
		a, _ = b.Address(p.Version != 6)
	}
	return a
}
