package packet

import (
	"encoding/binary"
	"net/netip"

	"github.com/weir-lb/weir/internal/steering/flow"
)

// SetDestination sends the packet to another address and port (0: keep the
// port), as NAT does on the way to a backend. In an ICMP error the quoted
// source, which is the same endpoint, changes too. It returns false and changes
// nothing if the family differs. Key follows.
func (p *Packet) SetDestination(to netip.AddrPort) bool {
	return p.translate(to, true)
}

// SetSource makes the packet come from another address and port (0: keep), as
// NAT does on the way back to the client. In an ICMP error the quoted
// destination changes too; the outer source only if it is that endpoint,
// because the sender may be a router on the way.
func (p *Packet) SetSource(from netip.AddrPort) bool {
	return p.translate(from, false)
}

func (p *Packet) translate(to netip.AddrPort, destination bool) bool {
	addr := to.Addr().Unmap()
	if !addr.IsValid() || addr.Is4() != (p.Version == 4) {
		return false
	}
	new := addr.As16()
	outer := p.srcOffset()
	if destination {
		outer += p.addrLen()
	}
	if p.Quote == 0 {
		p.translatePlain(outer, new, to.Port(), destination)
	} else {
		p.translateError(outer, new, to.Port(), destination)
	}
	p.rename(new, to.Port(), destination)
	return true
}

// rename applies the translation to Key and Fragment.
func (p *Packet) rename(new [16]byte, port uint16, destination bool) {
	addr, at := &p.Key.Src, &p.Key.SrcPort
	if destination {
		addr, at = &p.Key.Dst, &p.Key.DstPort
	}
	*addr = new
	if port != 0 && !p.Later && !p.QuoteLater && hasPorts(p.Key.Proto) {
		*at = port
	}
	if p.First || p.Later {
		p.Fragment.Src, p.Fragment.Dst = p.Key.Src, p.Key.Dst
	}
}

func hasPorts(proto uint8) bool {
	return proto == flow.ProtoTCP || proto == flow.ProtoUDP || proto == flow.ProtoSCTP
}

// translateError rewrites the outer header and the quote of an ICMP error and
// brings the ICMP checksum, which covers the quote, up to date.
func (p *Packet) translateError(outer int, new [16]byte, port uint16, destination bool) {
	var icmp delta
	endpoint := p.Key.Src
	if destination {
		endpoint = p.Key.Dst
	}
	n := p.addrLen()
	if p.address(outer) == endpoint {
		change := p.replaceAddress(outer, new)
		if p.Version == 4 {
			p.updateIPv4Header(0, change)
		} else {
			icmp += change // ICMPv6 covers its pseudo-header
		}
	}
	// The quote runs the other way: our destination is its source.
	inner := p.Quote + p.srcOffset()
	if !destination {
		inner += n
	}
	change := p.replaceAddress(inner, new)
	icmp += change
	if p.Version == 4 {
		old, now := p.updateIPv4Header(p.Quote, change)
		icmp += delta(^old) + delta(now)
	}
	icmp += p.translateQuotedL4(change, port, destination)
	updateL4(p.Data[p.L4:], p.Proto, icmp)
}

// translateQuotedL4 rewrites port and checksum of the quoted transport header
// as far as they are quoted, and returns what that changes in the ICMP sum.
func (p *Packet) translateQuotedL4(change delta, port uint16, destination bool) delta {
	if p.QuoteLater {
		return 0
	}
	var total delta
	proto, b := p.Key.Proto, p.Data[p.QuoteL4:]
	if port != 0 && hasPorts(proto) && len(b) >= 4 {
		at := 2
		if destination {
			at = 0
		}
		moved := replacePort(b[at:], port)
		change += moved
		total += moved
		if proto == flow.ProtoSCTP {
			return total // its quoted CRC cannot be recomputed from a part
		}
	}
	if proto == flow.ProtoICMP {
		return total // covers no address
	}
	old, now := updateL4(b, proto, change)
	return total + delta(^old) + delta(now)
}

// translatePlain rewrites one endpoint of a packet that is not an ICMP error.
func (p *Packet) translatePlain(outer int, new [16]byte, port uint16, destination bool) {
	change := p.replaceAddress(outer, new)
	if p.Version == 4 {
		p.updateIPv4Header(0, change)
	}
	if p.Later {
		return // a later fragment: the checksum is in the first, whose change covers it
	}
	b, proto := p.Data[p.L4:], p.Proto
	if hasPorts(proto) && port != 0 {
		at := 0
		if destination {
			at = 2
		}
		moved := replacePort(b[at:], port)
		change += moved
		if proto == flow.ProtoSCTP {
			if moved.changes() && !p.First && !p.Truncated {
				binary.LittleEndian.PutUint32(b[8:], sctpChecksum(b))
			}
			return
		}
	}
	if proto == flow.ProtoICMP {
		return // covers no address (RFC 792)
	}
	updateL4(b, proto, change)
}

// changes says whether the sum moved: ffff is zero in ones' complement.
func (d delta) changes() bool { f := fold(uint64(d)); return f != 0 && f != 0xffff }

func (p *Packet) replaceAddress(at int, new [16]byte) (d delta) {
	field := p.Data[at : at+p.addrLen()]
	bytes := new[16-len(field):]
	d.words(field, bytes)
	copy(field, bytes)
	return d
}

func replacePort(b []byte, port uint16) (d delta) {
	old := binary.BigEndian.Uint16(b)
	d = delta(^old) + delta(port)
	binary.BigEndian.PutUint16(b, port)
	return d
}

func (p *Packet) updateIPv4Header(at int, change delta) (old, now uint16) {
	field := p.Data[at+10:]
	old = binary.BigEndian.Uint16(field)
	now = change.apply(old)
	binary.BigEndian.PutUint16(field, now)
	return old, now
}

// EchoReply makes an ICMP echo request, which is no fragment and has no options, the reply to it: the addresses are swapped and
// the hop limit is 64. Checksums change by difference, so that a wrong one stays wrong.
func (p *Packet) EchoReply() {
	var change delta
	src, n := p.srcOffset(), p.addrLen()
	for i := range n {
		p.Data[src+i], p.Data[src+n+i] = p.Data[src+n+i], p.Data[src+i]
	}
	old := [2]byte(p.Data[p.L4:])
	p.ICMPType = 0
	if p.Version == 6 {
		p.ICMPType = 129
	}
	p.Data[p.L4] = p.ICMPType
	change.words(old[:], p.Data[p.L4:p.L4+2])
	check := p.Data[p.L4+2:]
	binary.BigEndian.PutUint16(check, change.apply(binary.BigEndian.Uint16(check)))
	p.Key.Src, p.Key.Dst = p.Key.Dst, p.Key.Src
	p.TTL = 64
	if p.Version == 6 {
		p.Data[7] = p.TTL
		return
	}
	change = 0
	old = [2]byte(p.Data[8:])
	p.Data[8] = p.TTL
	change.words(old[:], p.Data[8:10])
	p.updateIPv4Header(0, change)
}

// DecrementTTL lowers the TTL or hop limit by one and returns true, or returns
// false and changes nothing if the packet must not travel on (RFC 1812 section 5.3.1).
func (p *Packet) DecrementTTL() bool {
	if p.TTL <= 1 {
		return false
	}
	p.TTL--
	if p.Version == 6 {
		p.Data[7] = p.TTL
		return true
	}
	var d delta
	old := [2]byte{p.Data[8], p.Data[9]}
	p.Data[8] = p.TTL
	d.words(old[:], p.Data[8:10])
	p.updateIPv4Header(0, d)
	return true
}
