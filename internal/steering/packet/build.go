package packet

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/weir-lb/weir/internal/steering/flow"
)

// Build describes a packet to make; for tests, tools and ICMP errors. The zero
// value of a field gives what a host would send.
type Build struct {
	Src, Dst netip.AddrPort
	Proto    uint8  // flow.ProtoTCP, ProtoUDP, ProtoSCTP, ProtoICMP, ProtoICMPv6, or any
	TTL      uint8  // 0: 64
	Class    uint8  // DSCP and ECN
	ID       uint32 // IPv4 identification; fragment id in IPv6
	DontFrag bool   // IPv4 DF

	Flags      uint8  // TCP; 0: ACK
	Sequence   uint32 // TCP; 0: 1
	NoChecksum bool   // UDP checksum 0
	ICMPType   uint8
	ICMPCode   uint8
	ICMPRest   uint32 // the four bytes after an ICMP checksum: identifier and sequence, or MTU
	Payload    []byte

	IPv4Options []byte      // a multiple of four bytes
	Extensions  []Extension // IPv6, in order; never a fragment header
	Inner       []Extension // IPv6, behind a fragment header: part of what is fragmented
	VLANs       []uint16    // tags of AppendFrame, outer first
}

// Extension is an IPv6 extension header (RFC 8200 section 4) of 8*(1+Units) bytes;
// authentication (51) has 8+4*Units.
type Extension struct {
	Type  uint8
	Units uint8
}

// Append appends the whole IP packet.
func (s *Build) Append(buf []byte) []byte {
	return s.appendIP(buf, s.fragmentable(), 0, false)
}

// fragmentable returns the part of the packet that fragments share out: the transport header and payload, in IPv6 with
// the extension headers in front of it.
func (s *Build) fragmentable() []byte {
	if s.Dst.Addr().Unmap().Is4() {
		return s.transport(nil)
	}
	return append(appendExtensions(nil, s.Inner, s.Proto), s.transport(nil)...)
}

// nextHeader is the protocol number of the fragmentable part.
func (s *Build) nextHeader() uint8 {
	if len(s.Inner) > 0 {
		return s.Inner[0].Type
	}
	return s.Proto
}

// Fragments returns the packet in fragments whose payload is size bytes, rounded
// down to a multiple of eight; a size that holds it all gives one whole packet.
func (s *Build) Fragments(size int) [][]byte {
	whole := s.fragmentable()
	size = max(size&^7, 8)
	if len(whole) <= size {
		return [][]byte{s.Append(nil)}
	}
	var out [][]byte
	for at := 0; at < len(whole); at += size {
		end := min(at+size, len(whole))
		out = append(out, s.appendIP(nil, whole[at:end], at, end < len(whole)))
	}
	return out
}

// AppendFrame appends an Ethernet frame around an IP packet, with the Build's tags.
func (s *Build) AppendFrame(buf []byte, dst, src [6]byte, ip []byte) []byte {
	buf = append(append(buf, dst[:]...), src[:]...)
	for i, v := range s.VLANs {
		kind := uint16(etherVLAN)
		if i+1 < len(s.VLANs) {
			kind = etherQinQ
		}
		buf = binary.BigEndian.AppendUint16(buf, kind)
		buf = binary.BigEndian.AppendUint16(buf, v&0xfff)
	}
	kind := uint16(etherIPv4)
	if len(ip) > 0 && ip[0]>>4 == 6 {
		kind = etherIPv6
	}
	buf = binary.BigEndian.AppendUint16(buf, kind)
	return append(buf, ip...)
}

// Quote returns an ICMP error from router to the sender of quoted, an IP packet:
// too big with an MTU if that is not 0, else host unreachable. It quotes at most
// limit bytes.
func Quote(router netip.Addr, quoted []byte, mtu, limit int) []byte {
	var p Packet
	if err := Parse(quoted, &p); err != nil {
		return nil
	}
	e := Build{
		Src:   netip.AddrPortFrom(router, 0),
		Dst:   netip.AddrPortFrom(netip.AddrFrom16(p.SrcAddr()).Unmap(), 0),
		Proto: flow.ProtoICMP, ICMPType: icmp4Unreachable, ICMPCode: 1,
		Payload: p.Data[:min(limit, len(p.Data))],
	}
	if p.Version == 6 {
		e.Proto, e.ICMPType, e.ICMPCode = flow.ProtoICMPv6, icmp6Unreachable, 3
	}
	if mtu != 0 {
		e.ICMPRest, e.ICMPCode = uint32(mtu), 0
		if p.Version == 4 {
			e.ICMPCode = 4
		} else {
			e.ICMPType = icmp6TooBig
		}
	}
	return e.Append(nil)
}

func (s *Build) appendIP(buf, body []byte, offset int, more bool) []byte {
	src, dst := s.Src.Addr().Unmap(), s.Dst.Addr().Unmap()
	ttl := s.TTL
	if ttl == 0 {
		ttl = 64
	}
	if dst.Is4() {
		field := uint16(offset / 8)
		if more {
			field |= 0x2000
		}
		if s.DontFrag {
			field |= 0x4000
		}
		buf = appendIPv4(buf, src, dst, s.Proto, s.Class, ttl, uint16(s.ID), field, s.IPv4Options, len(body))
		return append(buf, body...)
	}
	fragmented := offset > 0 || more
	next := s.nextHeader()
	if fragmented {
		next = extFragment
	}
	ext := appendExtensions(nil, s.Extensions, next)
	if fragmented {
		field := uint16(offset)
		if more {
			field |= 1
		}
		ext = append(ext, s.nextHeader(), 0)
		ext = binary.BigEndian.AppendUint16(ext, field)
		ext = binary.BigEndian.AppendUint32(ext, s.ID)
	}
	if len(s.Extensions) > 0 {
		next = s.Extensions[0].Type
	}
	buf = appendIPv6(buf, src, dst, next, s.Class, ttl, len(ext)+len(body))
	return append(append(buf, ext...), body...)
}

// appendExtensions appends extension headers; next is the type of what follows the last one.
func appendExtensions(buf []byte, headers []Extension, next uint8) []byte {
	for i, e := range headers {
		after := next
		if i+1 < len(headers) {
			after = headers[i+1].Type
		}
		n := 8 * (1 + int(e.Units))
		if e.Type == extAuth {
			n = 8 + 4*int(e.Units)
		}
		at := len(buf)
		buf = append(buf, make([]byte, n)...)
		buf[at], buf[at+1] = after, e.Units
	}
	return buf
}

// transport appends the transport header and payload, with its checksum.
func (s *Build) transport(buf []byte) []byte {
	buf = slices.Grow(buf, 20+len(s.Payload))
	start := len(buf)
	at := -1
	switch s.Proto {
	case flow.ProtoTCP:
		flags := s.Flags
		if flags == 0 {
			flags = ACK
		}
		buf = s.ports(buf)
		buf = binary.BigEndian.AppendUint32(buf, max(s.Sequence, 1))
		buf = append(buf, 0, 0, 0, 1, 5<<4, flags, 0xff, 0xff, 0, 0, 0, 0)
		at = 16
	case flow.ProtoUDP:
		buf = s.ports(buf)
		buf = binary.BigEndian.AppendUint16(buf, uint16(8+len(s.Payload)))
		buf = append(buf, 0, 0)
		at = 6
	case flow.ProtoSCTP:
		buf = s.ports(buf)
		buf = append(buf, 0, 0, 0, 1, 0, 0, 0, 0)
	case flow.ProtoICMP, flow.ProtoICMPv6:
		buf = append(buf, s.ICMPType, s.ICMPCode, 0, 0)
		buf = binary.BigEndian.AppendUint32(buf, s.ICMPRest)
		at = 2
	}
	buf = append(buf, s.Payload...)
	b := buf[start:]
	if s.Proto == flow.ProtoSCTP {
		binary.LittleEndian.PutUint32(b[8:], sctpChecksum(b))
	}
	if at < 0 || s.Proto == flow.ProtoUDP && s.NoChecksum {
		return buf
	}
	var pseudo uint32
	if s.Proto != flow.ProtoICMP {
		pseudo = PseudoSum(flow.Address(s.Src.Addr()), flow.Address(s.Dst.Addr()), s.Proto, len(b))
	}
	check := Checksum(b, pseudo)
	if s.Proto == flow.ProtoUDP && check == 0 {
		check = 0xffff
	}
	binary.BigEndian.PutUint16(b[at:], check)
	return buf
}

func (s *Build) ports(buf []byte) []byte {
	buf = binary.BigEndian.AppendUint16(buf, s.Src.Port())
	return binary.BigEndian.AppendUint16(buf, s.Dst.Port())
}

// appendIPv4 appends an IPv4 header for length bytes of payload.
func appendIPv4(buf []byte, src, dst netip.Addr, proto, class, ttl uint8, id, fragment uint16, options []byte, length int) []byte {
	start := len(buf)
	header := ipv4MinHeader + len(options)
	buf = append(buf, 4<<4|uint8(header/4), class)
	buf = binary.BigEndian.AppendUint16(buf, uint16(header+length))
	buf = binary.BigEndian.AppendUint16(buf, id)
	buf = binary.BigEndian.AppendUint16(buf, fragment)
	buf = append(buf, ttl, proto, 0, 0)
	s, d := src.As4(), dst.As4()
	buf = append(append(append(buf, s[:]...), d[:]...), options...)
	binary.BigEndian.PutUint16(buf[start+10:], Checksum(buf[start:], 0))
	return buf
}

// appendIPv6 appends an IPv6 header for length bytes behind it.
func appendIPv6(buf []byte, src, dst netip.Addr, next, class, ttl uint8, length int) []byte {
	buf = append(buf, 6<<4|class>>4, class<<4, 0, 0)
	buf = binary.BigEndian.AppendUint16(buf, uint16(length))
	buf = append(buf, next, ttl)
	s, d := src.As16(), dst.As16()
	return append(append(buf, s[:]...), d[:]...)
}
