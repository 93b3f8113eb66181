package packet

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"

	"github.com/weir-lb/weir/internal/steering/flow"
)

// Checksum returns the Internet checksum of b (RFC 1071): the complement of the
// folded ones' complement sum, with initial added.
func Checksum(b []byte, initial uint32) uint16 {
	return ^fold(sum(b, uint64(initial)))
}

// sum adds the 16-bit words of b to acc, an odd last byte padded with zero.
func sum(b []byte, acc uint64) uint64 {
	var carry uint64
	for ; len(b) >= 8; b = b[8:] {
		acc, carry = bits.Add64(acc, binary.BigEndian.Uint64(b), carry)
	}
	acc, carry = bits.Add64(acc, 0, carry)
	acc += carry
	var rest uint64
	for ; len(b) >= 2; b = b[2:] {
		rest += uint64(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		rest += uint64(b[0]) << 8
	}
	acc, carry = bits.Add64(acc, rest, 0)
	return acc + carry
}

func fold(acc uint64) uint16 {
	acc = acc>>32 + acc&0xffffffff
	acc = acc>>32 + acc&0xffffffff
	acc = acc>>16 + acc&0xffff
	acc = acc>>16 + acc&0xffff
	return uint16(acc>>16 + acc&0xffff)
}

// PseudoSum returns the unfolded sum of the pseudo-header (RFC 9293 section 3.1,
// RFC 8200 section 8.1) of length bytes of proto between two addresses.
func PseudoSum(src, dst [16]byte, proto uint8, length int) uint32 {
	s, d := src[:], dst[:]
	if is4(src) {
		s, d = src[12:], dst[12:]
	}
	acc := sum(d, sum(s, 0)) // at most 2^64-1 folded below
	return uint32(fold(acc)) + uint32(proto) + uint32(length>>16) + uint32(length&0xffff)
}

func is4(a [16]byte) bool {
	return [12]byte(a[:12]) == [12]byte{10: 0xff, 11: 0xff}
}

// delta is a running change of a ones' complement sum (RFC 1624, equation 3:
// HC' = ~(~HC + ~m + m')). It is sum(new) + sum(~old).
type delta uint64

// words adds the replacement of old by new, both of one even length.
func (d *delta) words(old, new []byte) {
	for i := 0; i+1 < len(old); i += 2 {
		*d += delta(^binary.BigEndian.Uint16(old[i:])) + delta(binary.BigEndian.Uint16(new[i:]))
	}
}

// apply returns the checksum check after the change.
func (d delta) apply(check uint16) uint16 {
	return ^fold(uint64(d) + uint64(^check))
}

// checksumOffset returns where in its header the checksum of an L4 protocol
// is, or -1 if none of it depends on the addresses.
func checksumOffset(proto uint8) int {
	switch proto {
	case flow.ProtoTCP:
		return 16
	case flow.ProtoUDP:
		return 6
	case flow.ProtoICMP, flow.ProtoICMPv6:
		return 2
	}
	return -1
}

// updateL4 adjusts the checksum of the transport header at b by change, if it
// is there. UDP's zero (none) stays; a result of zero becomes ffff, which is the
// same number in ones' complement (RFC 768).
func updateL4(b []byte, proto uint8, change delta) (old, new uint16) {
	at := checksumOffset(proto)
	if at < 0 || len(b) < at+2 {
		return 0, 0
	}
	old = binary.BigEndian.Uint16(b[at:])
	if proto == flow.ProtoUDP && old == 0 {
		return old, old
	}
	new = change.apply(old)
	if proto == flow.ProtoUDP && new == 0 {
		new = 0xffff
	}
	binary.BigEndian.PutUint16(b[at:], new)
	return old, new
}

// castagnoli returns the table of SCTP's CRC32c (RFC 9260 appendix A).
func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// Verify says whether every checksum of the packet that it can compute is
// right: IPv4 header, and TCP, UDP, ICMP or SCTP if the packet is whole. For
// tests and for weir explain; the data paths leave it to the receiver.
func (p *Packet) Verify() bool {
	if p.Version == 4 && Checksum(p.Data[:int(p.Data[0]&15)*4], 0) != 0 {
		return false
	}
	if p.First || p.Later || p.Truncated {
		return true
	}
	b := p.Data[p.L4:]
	switch p.Proto {
	case flow.ProtoUDP:
		if binary.BigEndian.Uint16(b[6:]) == 0 && p.Version == 4 {
			return true
		}
		b = b[:binary.BigEndian.Uint16(b[4:])]
		fallthrough
	case flow.ProtoTCP, flow.ProtoICMPv6:
		return Checksum(b, PseudoSum(p.SrcAddr(), p.DstAddr(), p.Proto, len(b))) == 0
	case flow.ProtoICMP:
		return Checksum(b, 0) == 0
	case flow.ProtoSCTP:
		return binary.LittleEndian.Uint32(b[8:]) == sctpChecksum(b)
	}
	return true
}

// sctpChecksum returns the CRC32c of b with its checksum field taken as zero.
func sctpChecksum(b []byte) uint32 {
	var zero [4]byte
	c := crc32.Update(0, castagnoli(), b[:8])
	c = crc32.Update(c, castagnoli(), zero[:])
	return crc32.Update(c, castagnoli(), b[12:])
}
