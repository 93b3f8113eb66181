package neighbour

import (
	"encoding/binary"
	"net/netip"
)

// MAC is an Ethernet address.
type MAC [6]byte

// EtherTypes of the frames.
const (
	TypeARP  = 0x0806
	TypeIPv6 = 0x86dd
)

const (
	etherBytes = 14
	arpBytes   = 28
	ip6Bytes   = 40
	ndBytes    = 24 // type, code, checksum, flags, target
	optBytes   = 8  // an option with a link address

	arpRequest = 1
	arpReply   = 2

	icmpv6        = 58
	hopLimit      = 255
	solicitation  = 135
	advertisement = 136

	flagSolicited = 0x40
	flagOverride  = 0x20

	optSource = 1
	optTarget = 2
)

var (
	broadcast = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	allNodes  = netip.AddrFrom16([16]byte{0: 0xff, 1: 0x02, 15: 0x01})
)

// Announcement returns the frames that tell the segment that mac has an address.
func Announcement(mac MAC, address netip.Addr) [][]byte {
	if address.Is4() {
		return [][]byte{
			arp(broadcast, mac, arpRequest, mac, address, broadcast, address),
			arp(broadcast, mac, arpReply, mac, address, mac, address),
		}
	}
	return [][]byte{advertise(group(allNodes), mac, address, allNodes, flagOverride)}
}

// Probe returns the question which other machine has an address, asked by self. For IPv6 it is an ordinary solicitation: an answer to
// duplicate address detection goes to all hosts, and would lead them to the other machine.
func Probe(mac MAC, self, address netip.Addr) []byte {
	if address.Is4() {
		return arp(broadcast, mac, arpRequest, mac, netip.IPv4Unspecified(), MAC{}, address)
	}
	to := SolicitedNode(address)
	return discovery(group(to), mac, self, to, solicitation, 0, address, optSource)
}

// Answer returns the frame that tells a questioner that mac has the address that it looks for.
func Answer(mac MAC, q Frame) []byte {
	switch {
	case q.Address.Is4():
		return arp(q.MAC, mac, arpReply, mac, q.Address, q.MAC, q.From)
	case q.From.IsUnspecified(): // duplicate address detection
		return advertise(group(allNodes), mac, q.Address, allNodes, flagOverride)
	}
	return advertise(q.MAC, mac, q.Address, q.From, flagSolicited|flagOverride)
}

// SolicitedNode returns the multicast address to which questions for an IPv6 address are sent (RFC 4291 section 2.7.1).
func SolicitedNode(address netip.Addr) netip.Addr {
	a := address.As16()
	return netip.AddrFrom16([16]byte{0: 0xff, 1: 0x02, 11: 0x01, 12: 0xff, 13: a[13], 14: a[14], 15: a[15]})
}

// group returns the Ethernet address of an IPv6 multicast address (RFC 2464 section 7).
func group(address netip.Addr) MAC {
	a := address.As16()
	return MAC{0x33, 0x33, a[12], a[13], a[14], a[15]}
}

func ether(to, from MAC, kind uint16, room int) []byte {
	b := make([]byte, 0, etherBytes+room)
	b = append(append(b, to[:]...), from[:]...)
	return binary.BigEndian.AppendUint16(b, kind)
}

func arp(to, from MAC, operation byte, sender MAC, senderIP netip.Addr, target MAC, targetIP netip.Addr) []byte {
	b := ether(to, from, TypeARP, arpBytes)
	b = append(b, 0, 1, 8, 0, 6, 4, 0, operation) // Ethernet, IPv4
	b = append(append(b, sender[:]...), senderIP.AsSlice()...)
	return append(append(b, target[:]...), targetIP.AsSlice()...)
}

// advertise returns an advertisement from the address itself.
func advertise(to, mac MAC, address, destination netip.Addr, flags byte) []byte {
	return discovery(to, mac, address, destination, advertisement, flags, address, optTarget)
}

// discovery returns a message of neighbour discovery; option 0 adds no link address.
func discovery(to, mac MAC, source, destination netip.Addr, kind, flags byte, target netip.Addr, option byte) []byte {
	length := ndBytes
	if option != 0 {
		length += optBytes
	}
	b := ether(to, mac, TypeIPv6, ip6Bytes+length)
	b = append(b, 0x60, 0, 0, 0, 0, byte(length), icmpv6, hopLimit)
	b = append(append(b, source.AsSlice()...), destination.AsSlice()...)
	b = append(b, kind, 0, 0, 0, flags, 0, 0, 0)
	b = append(b, target.AsSlice()...)
	if option != 0 {
		b = append(append(b, option, 1), mac[:]...)
	}
	message := b[etherBytes+ip6Bytes:]
	binary.BigEndian.PutUint16(message[2:], ^sum(b[etherBytes+8:etherBytes+ip6Bytes], message))
	return b
}

// sum returns the checksum of an ICMPv6 message, not inverted, with the pseudo header of its addresses.
func sum(addresses, message []byte) uint16 {
	total := uint32(icmpv6) + uint32(len(message))
	for _, b := range [][]byte{addresses, message} {
		for ; len(b) >= 2; b = b[2:] {
			total += uint32(binary.BigEndian.Uint16(b))
		}
		if len(b) == 1 {
			total += uint32(b[0]) << 8
		}
	}
	for total > 0xffff {
		total = total>>16 + total&0xffff
	}
	return uint16(total)
}
