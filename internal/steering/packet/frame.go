package packet

import "encoding/binary"

// EtherTypes (IEEE 802).
const (
	etherIPv4 = 0x0800
	etherIPv6 = 0x86dd
	etherVLAN = 0x8100 // 802.1Q
	etherQinQ = 0x88a8 // 802.1ad
)

// EthernetHeader is the length of a frame header without tags.
const EthernetHeader = 14

// ParseFrame reads an Ethernet frame with up to two VLAN tags, then its IP
// packet. A frame of another EtherType gives ErrNotIP.
func ParseFrame(b []byte, p *Packet) error {
	*p = Packet{}
	if len(b) < EthernetHeader {
		return ErrTruncated
	}
	at, kind := EthernetHeader, binary.BigEndian.Uint16(b[12:])
	var vlans [2]uint16
	count := 0
	for kind == etherVLAN || kind == etherQinQ {
		if count == len(vlans) {
			return ErrNotIP
		}
		if len(b) < at+4 {
			return ErrTruncated
		}
		vlans[count] = binary.BigEndian.Uint16(b[at:]) & 0xfff
		count++
		kind = binary.BigEndian.Uint16(b[at+2:])
		at += 4
	}
	if kind != etherIPv4 && kind != etherIPv6 {
		return ErrNotIP
	}
	err := Parse(b[at:], p)
	p.Frame, p.VLANs, p.VLANCount = b, vlans, count
	if err == nil && (kind == etherIPv4) != (p.Version == 4) {
		return ErrVersion
	}
	return err
}

// L3 returns the offset of the IP header in Frame, 0 without a frame.
func (p *Packet) L3() int {
	if p.Frame == nil {
		return 0
	}
	return EthernetHeader + 4*p.VLANCount
}
