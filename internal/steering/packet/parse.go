package packet

import (
	"encoding/binary"

	"github.com/weir-lb/weir/internal/steering/flow"
)

const (
	ipv4MinHeader = 20
	ipv6Header    = 40
	// maxExtensions bounds the walk; real packets carry two or three.
	maxExtensions = 8
)

// IPv6 extension headers that Parse walks over (RFC 8200, RFC 4302).
const (
	extHopByHop = 0
	extRouting  = 43
	extFragment = 44
	extAuth     = 51
	extDestOpts = 60
)

// Parse reads the IP packet at the start of b into p, overwriting it. Bytes
// after the packet's own length are ignored; a capture shorter than the packet
// is accepted, marked Truncated, as long as its headers are whole.
func Parse(b []byte, p *Packet) error {
	*p = Packet{}
	h, err := parseIP(b, false)
	if err != nil {
		return err
	}
	p.Data, p.Truncated, p.Length = b[:h.end], h.cut, h.total
	p.Version, p.TTL, p.Proto = h.version, h.ttl, h.proto
	p.L4, p.First, p.Later = h.l4, h.first, h.later
	p.Key = flow.Key{Src: h.src, Dst: h.dst, Proto: h.proto}
	if h.first || h.later {
		p.Fragment = h.fragment()
	}
	return p.transport()
}

// ipHeader is what one IP header and its extension headers say.
type ipHeader struct {
	version, ttl, proto uint8
	src, dst            [16]byte
	l4, end             int // offset of the transport header; end of the packet
	total               int // its length as it says itself
	cut                 bool
	first, later        bool
	id                  uint32
}

// fragment names the datagram of a fragment. In IPv6 the next header is no part of the name: that of a first fragment is
// its transport's here, that of a later one the fragment header's.
func (h *ipHeader) fragment() flow.FragmentKey {
	k := flow.FragmentKey{Src: h.src, Dst: h.dst, ID: h.id}
	if h.version == 4 {
		k.Proto = h.proto
	}
	return k
}

// parseIP reads an IP header. A quoted packet may end anywhere behind its
// headers, and its length fields describe the packet that was sent.
func parseIP(b []byte, quoted bool) (h ipHeader, err error) {
	if len(b) < 1 {
		return h, ErrTruncated
	}
	switch b[0] >> 4 {
	case 4:
		return parseIPv4(b, quoted)
	case 6:
		return parseIPv6(b, quoted)
	}
	return h, ErrVersion
}

func parseIPv4(b []byte, quoted bool) (h ipHeader, err error) {
	if len(b) < ipv4MinHeader {
		return h, ErrTruncated
	}
	h.version, h.ttl, h.proto = 4, b[8], b[9]
	h.l4 = int(b[0]&15) * 4
	total := int(binary.BigEndian.Uint16(b[2:]))
	if h.l4 < ipv4MinHeader || total < h.l4 {
		return h, ErrHeader
	}
	if h.l4 > len(b) {
		return h, ErrTruncated
	}
	h.end, h.total = min(total, len(b)), total
	h.cut = total > len(b) && !quoted
	h.src, h.dst = mapped(b[12:]), mapped(b[16:])
	fragment := binary.BigEndian.Uint16(b[6:])
	h.later = fragment&0x1fff != 0
	h.first = !h.later && fragment&0x2000 != 0
	h.id = uint32(binary.BigEndian.Uint16(b[4:]))
	return h, nil
}

func parseIPv6(b []byte, quoted bool) (h ipHeader, err error) {
	if len(b) < ipv6Header {
		return h, ErrTruncated
	}
	h.version, h.ttl = 6, b[7]
	total := ipv6Header + int(binary.BigEndian.Uint16(b[4:]))
	h.end, h.total = min(total, len(b)), total
	h.cut = total > len(b) && !quoted
	h.src, h.dst = [16]byte(b[8:24]), [16]byte(b[24:40])
	if is4(h.src) || is4(h.dst) {
		return h, ErrMapped
	}
	h.proto, h.l4 = b[6], ipv6Header
	return h, h.extensions(b[:h.end])
}

// extensions walks the extension headers up to the transport header, or to the
// end of a fragment header whose rest is a later fragment's.
func (h *ipHeader) extensions(b []byte) error {
	for range maxExtensions {
		var length int
		switch h.proto {
		case extHopByHop, extRouting, extDestOpts, extFragment, extAuth:
		default:
			return nil
		}
		if len(b) < h.l4+8 {
			return ErrTruncated
		}
		switch h.proto {
		case extFragment:
			length = 8
			field := binary.BigEndian.Uint16(b[h.l4+2:])
			h.later = field&0xfff8 != 0
			h.first = !h.later && field&1 != 0 // neither: an atomic fragment (RFC 6946)
			h.id = binary.BigEndian.Uint32(b[h.l4+4:])
		case extAuth:
			length = (int(b[h.l4+1]) + 2) * 4
		default:
			length = (int(b[h.l4+1]) + 1) * 8
		}
		h.proto = b[h.l4]
		h.l4 += length
		if h.l4 > len(b) {
			return ErrTruncated
		}
		if h.later {
			return nil
		}
	}
	switch h.proto {
	case extHopByHop, extRouting, extDestOpts, extFragment, extAuth:
		return ErrExtensions
	}
	return nil
}

// transport reads what follows the IP header.
func (p *Packet) transport() error {
	b := p.Data[p.L4:]
	p.Payload = p.L4
	p.Kind = kindOf(p.Proto, p.Version)
	if p.Later {
		return nil
	}
	switch p.Kind {
	case KindTCP:
		if len(b) < 20 {
			return ErrTruncated
		}
		header := int(b[12]>>4) * 4
		if header < 20 {
			return ErrHeader
		}
		p.TCPFlags = b[13]
		p.Payload = p.L4 + header
		if p.Payload > len(p.Data) && !p.Truncated && !p.First {
			return ErrHeader
		}
	case KindUDP:
		if len(b) < 8 {
			return ErrTruncated
		}
		length := int(binary.BigEndian.Uint16(b[4:]))
		if length < 8 || length > len(b) && !p.Truncated && !p.First {
			return ErrHeader
		}
		p.Payload = p.L4 + 8
	case KindSCTP:
		if len(b) < 12 {
			return ErrTruncated
		}
		p.Payload = p.L4 + 12
	case KindICMPOther:
		return p.icmp(b)
	default:
		return nil
	}
	p.Key.SrcPort = binary.BigEndian.Uint16(b)
	p.Key.DstPort = binary.BigEndian.Uint16(b[2:])
	return nil
}

func kindOf(proto, version uint8) Kind {
	switch {
	case proto == flow.ProtoTCP:
		return KindTCP
	case proto == flow.ProtoUDP:
		return KindUDP
	case proto == flow.ProtoSCTP:
		return KindSCTP
	case proto == flow.ProtoICMP && version == 4, proto == flow.ProtoICMPv6 && version == 6:
		return KindICMPOther
	}
	return KindOther
}

// ICMP types (RFC 792; RFC 4443).
const (
	icmp4EchoReply, icmp4Unreachable, icmp4Quench       = 0, 3, 4
	icmp4Redirect, icmp4Echo, icmp4Exceeded, icmp4Param = 5, 8, 11, 12
	icmp6Unreachable, icmp6TooBig, icmp6Exceeded        = 1, 2, 3
	icmp6Param, icmp6Echo, icmp6EchoReply               = 4, 128, 129
)

// icmpHeader is the length of the header before an echo's data or an error's quote.
const icmpHeader = 8

func (p *Packet) icmp(b []byte) error {
	if len(b) < icmpHeader {
		if len(b) < 4 {
			return ErrTruncated
		}
		p.ICMPType, p.ICMPCode = b[0], b[1]
		return nil
	}
	p.ICMPType, p.ICMPCode = b[0], b[1]
	p.Payload = p.L4 + icmpHeader
	switch {
	case p.isEcho():
		p.Kind = KindEcho
		p.Key.SrcPort = binary.BigEndian.Uint16(b[4:])
	case p.isError():
		return p.quote()
	}
	return nil
}

func (p *Packet) isEcho() bool {
	if p.Version == 4 {
		return p.ICMPType == icmp4Echo || p.ICMPType == icmp4EchoReply
	}
	return p.ICMPType == icmp6Echo || p.ICMPType == icmp6EchoReply
}

func (p *Packet) isError() bool {
	if p.Version == 6 {
		return p.ICMPType >= icmp6Unreachable && p.ICMPType <= icmp6Param
	}
	switch p.ICMPType {
	case icmp4Unreachable, icmp4Quench, icmp4Redirect, icmp4Exceeded, icmp4Param:
		return true
	}
	return false
}

// quote reads the packet an ICMP error quotes. RFC 792 promises its IP header
// and eight bytes, which is enough for the ports.
func (p *Packet) quote() error {
	inner := p.Data[p.Payload:]
	h, err := parseIP(inner, true)
	if err != nil || h.version != p.Version {
		return ErrQuote
	}
	p.Kind = KindICMPError
	p.Quote, p.QuoteL4 = p.Payload, p.Payload+h.l4
	p.Key = flow.Key{Src: h.dst, Dst: h.src, Proto: h.proto}
	if h.later {
		p.QuoteLater = true
		p.Fragment = h.fragment()
		return nil
	}
	l4 := p.Data[p.QuoteL4:]
	switch kindOf(h.proto, h.version) {
	case KindTCP, KindUDP, KindSCTP:
		if len(l4) < 4 {
			return ErrQuote
		}
		p.Key.SrcPort = binary.BigEndian.Uint16(l4[2:])
		p.Key.DstPort = binary.BigEndian.Uint16(l4)
	case KindICMPOther:
		if len(l4) < icmpHeader {
			return ErrQuote
		}
		p.Key.SrcPort = binary.BigEndian.Uint16(l4[4:]) // an echo's identifier
	}
	return nil
}
