package steer

import (
	"net/netip"

	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/packet"
)

// Egress is what the data path adds to a decision when it sends the packet.
type Egress struct {
	// Source4 and Source6 are the outer sources of tunnels.
	Source4, Source6 netip.Addr
	// Router: count down the hop limit of the packet.
	Router bool
	// HashKey gives GUE's source port its entropy: 0xc000 plus 14 bits of the flow hash.
	HashKey flow.HashKey
}

// Answer makes an echo request of ReasonEchoAnswered its reply, in place (RFC 792, RFC 4443 section 4.2), and appends it to buf.
func (g Egress) Answer(buf []byte, p *packet.Packet) []byte {
	p.EchoReply()
	return append(buf, p.Data...)
}

// Append appends to buf the IP packet that a forwarded packet becomes, changing
// p on the way. L2-DSR and mark change no byte of it but the hop limit. It
// returns nil when the packet cannot be sent: no tunnel source, a family that
// does not fit, or too long with its tunnel header.
func (g Egress) Append(buf []byte, p *packet.Packet, d Decision) []byte {
	if g.Router && !p.DecrementTTL() {
		return nil
	}
	if d.Destination.IsValid() && !p.SetDestination(d.Destination) {
		return nil
	}
	if d.Source.IsValid() && !p.SetSource(d.Source) {
		return nil
	}
	if d.Service == nil || d.Service.Mode != lb.L3DSR { // nil: for a member of the tier
		return append(buf, p.Data...)
	}
	to, ok := d.Backend.Address(p.Version == 6)
	if !ok {
		to, _ = d.Backend.Address(p.Version != 6)
	}
	from := g.Source4
	if to.Is6() {
		from = g.Source6
	}
	if d.Service.Tunnel == lb.GUE {
		port := 0xc000 | uint16(g.HashKey.Flow(p.Key)&0x3fff)
		return packet.AppendGUE(buf, from, to, port, p.Data)
	}
	return packet.AppendIPIP(buf, from, to, p.Data)
}
