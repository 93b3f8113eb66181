package flow

import (
	"net/netip"
	"strconv"
)

// Protocol numbers (IANA) that a Key carries.
const (
	ProtoICMP   uint8 = 1
	ProtoTCP    uint8 = 6
	ProtoUDP    uint8 = 17
	ProtoICMPv6 uint8 = 58
	ProtoSCTP   uint8 = 132
)

// Key is a flow: one 5-tuple in the direction of the packet it was read from.
// Ports are in host order. The zero Key is no flow.
type Key struct {
	Src, Dst         [16]byte
	SrcPort, DstPort uint16
	Proto            uint8
}

// NewKey returns the key of packets from src to dst. Invalid addresses become
// the unspecified one; IPv6 zones are ignored.
func NewKey(src, dst netip.AddrPort, proto uint8) Key {
	return Key{
		Src: Address(src.Addr()), Dst: Address(dst.Addr()),
		SrcPort: src.Port(), DstPort: dst.Port(), Proto: proto,
	}
}

// Address returns the 16-byte form of a, IPv4 mapped into IPv6.
func Address(a netip.Addr) [16]byte {
	if !a.IsValid() {
		return [16]byte{}
	}
	return a.As16()
}

// Source returns the sender, IPv4 unmapped.
func (k Key) Source() netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom16(k.Src).Unmap(), k.SrcPort)
}

// Destination returns the receiver, IPv4 unmapped.
func (k Key) Destination() netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom16(k.Dst).Unmap(), k.DstPort)
}

// Reverse returns the key of packets in the other direction.
func (k Key) Reverse() Key {
	k.Src, k.Dst = k.Dst, k.Src
	k.SrcPort, k.DstPort = k.DstPort, k.SrcPort
	return k
}

// String returns "udp 10.0.0.1:5000 > 192.0.2.1:5684".
func (k Key) String() string {
	return ProtocolName(k.Proto) + " " + k.Source().String() + " > " + k.Destination().String()
}

// ProtocolName returns the usual short name of an IP protocol, or its number.
func ProtocolName(proto uint8) string {
	switch proto {
	case ProtoICMP:
		return "icmp"
	case ProtoTCP:
		return "tcp"
	case ProtoUDP:
		return "udp"
	case ProtoICMPv6:
		return "icmpv6"
	case ProtoSCTP:
		return "sctp"
	}
	return strconv.Itoa(int(proto))
}
