package kernelrelay

import (
	"bytes"
	"encoding/binary"
	"net/netip"

	"github.com/weir-lb/weir/internal/steering/packet"
)

// relayModel says what becomes of a frame, from RFC 8656 and the rules of docs/turn-offload.md, and shares nothing with the
// programs: it takes packets apart and puts new ones together.
type relayModel struct {
	channels []modelChannel
	mtu      int
	macs     [12]byte // of the only next hop
	partial  bool     // checksums that a local sender left to the card are finished
}

type modelChannel struct {
	Channel
	shut bool
}

// udpPacket is one plain UDP packet.
type udpPacket struct {
	src, dst netip.AddrPort
	ttl, tos byte
	data     []byte
	check    uint16
	right    bool // the checksum
	left     bool // the checksum holds the pseudo-header only
}

// frame returns what the packet ends as, and the frame that leaves by which channel.
func (m *relayModel) frame(b []byte) (end string, out []byte, channel int) {
	var p packet.Packet
	if packet.ParseFrame(b, &p) != nil || p.Kind != packet.KindUDP {
		return "other", nil, 0
	}
	d, ok := plainDatagram(b)
	if !ok {
		return "unsuited", nil, 0
	}
	channel, number := m.find(d)
	if channel < 0 {
		return "other", nil, 0
	}
	c := &m.channels[channel]
	end, from, to := "down", c.Listener, c.Client
	if number != 0 {
		end, from, to = "up", c.Relay, c.Peer
	}
	switch {
	case end == "down" && c.shut:
		return "permission", nil, 0
	case d.ttl <= 1:
		return "ttl", nil, 0
	case d.check == 0 && to.Addr().Is6():
		return "no_checksum", nil, 0
	}
	var data []byte
	if end == "up" {
		n := int(binary.BigEndian.Uint16(d.data[2:]))
		if rest := len(d.data) - 4 - n; rest < 0 || rest > 3 {
			return "unsuited", nil, 0
		}
		data = d.data[4 : 4+n]
	} else {
		data = binary.BigEndian.AppendUint16(nil, c.Number)
		data = binary.BigEndian.AppendUint16(data, uint16(len(d.data)))
		data = append(data, d.data...)
	}
	if b[14]>>4 == 4 && packet.Checksum(b[14:34], 0) != 0 {
		return "unsuited", nil, 0
	}
	if b[14]>>4 == 6 && d.check == 0 {
		return "unsuited", nil, 0
	}
	build := packet.Build{Src: from, Dst: to, Proto: 17, TTL: d.ttl - 1, Class: d.tos, DontFrag: true, Payload: data, NoChecksum: d.check == 0}
	ip := build.Append(nil)
	if len(ip) > m.mtu {
		return "too_big", nil, 0
	}
	if !d.right && !(d.left && m.partial) { // what was wrong stays wrong
		spoil(ip)
	}
	return end, build.AppendFrame(nil, [6]byte(m.macs[:6]), [6]byte(m.macs[6:]), ip), channel
}

// Marks of a checksum that must not be right; two, for one of them may be just the right one.
const spoiled, spoiledToo = 0xdead, 0xbeef

// spoil marks the checksum of a packet, which is right.
func spoil(ip []byte) {
	field := ip[transportOf(ip)+6:]
	if binary.BigEndian.Uint16(field) == spoiled {
		binary.BigEndian.PutUint16(field, spoiledToo)
		return
	}
	binary.BigEndian.PutUint16(field, spoiled)
}

func transportOf(ip []byte) int {
	if ip[0]>>4 == 4 {
		return 20
	}
	return 40
}

func (m *relayModel) find(d udpPacket) (channel int, number uint16) {
	if len(d.data) >= 4 && d.data[0]>>4 == 4 {
		number := binary.BigEndian.Uint16(d.data)
		for i := range m.channels {
			if c := &m.channels[i]; c.Client == d.src && c.Listener == d.dst && c.Number == number {
				return i, number
			}
		}
	}
	for i := range m.channels {
		if c := &m.channels[i]; c.Peer == d.src && c.Relay == d.dst {
			return i, 0
		}
	}
	return -1, 0
}

// plainDatagram reads UDP in IPv4 without options or IPv6 without extension headers, whole and of lengths that agree.
func plainDatagram(b []byte) (d udpPacket, ok bool) {
	if len(b) < 14 || b[0]&1 != 0 {
		return d, false
	}
	ip := b[14:]
	var udp []byte
	var pseudo []byte
	switch binary.BigEndian.Uint16(b[12:]) {
	case 0x0800:
		if len(ip) < 28 || ip[0] != 0x45 || binary.BigEndian.Uint16(ip[6:])&0x3fff != 0 || ip[9] != 17 {
			return d, false
		}
		n := int(binary.BigEndian.Uint16(ip[2:]))
		if n > len(ip) || n < 28 {
			return d, false
		}
		udp, d.tos, d.ttl = ip[20:n], ip[1], ip[8]
		d.src = netip.AddrPortFrom(netip.AddrFrom4([4]byte(ip[12:])), binary.BigEndian.Uint16(udp))
		d.dst = netip.AddrPortFrom(netip.AddrFrom4([4]byte(ip[16:])), binary.BigEndian.Uint16(udp[2:]))
		pseudo = append(pseudo, ip[12:20]...)
	case 0x86dd:
		if len(ip) < 48 || ip[6] != 17 {
			return d, false
		}
		n := 40 + int(binary.BigEndian.Uint16(ip[4:]))
		if n > len(ip) || n < 48 {
			return d, false
		}
		udp, d.tos, d.ttl = ip[40:n], ip[0]<<4|ip[1]>>4, ip[7]
		d.src = netip.AddrPortFrom(netip.AddrFrom16([16]byte(ip[8:])), binary.BigEndian.Uint16(udp))
		d.dst = netip.AddrPortFrom(netip.AddrFrom16([16]byte(ip[24:])), binary.BigEndian.Uint16(udp[2:]))
		pseudo = append(pseudo, ip[8:40]...)
	default:
		return d, false
	}
	if int(binary.BigEndian.Uint16(udp[4:])) != len(udp) {
		return d, false
	}
	d.data, d.check = udp[8:], binary.BigEndian.Uint16(udp[6:])
	pseudo = append(pseudo, 0, 17, udp[4], udp[5])
	d.left = ^packet.Checksum(pseudo, 0) == d.check
	d.right = d.check == 0 || packet.Checksum(append(pseudo, udp...), 0) == 0
	return d, true
}

// sameFrame compares what left with what the model says; a checksum that it spoilt must be wrong there too.
func sameFrame(got, want []byte) bool {
	if len(got) != len(want) || len(want) < 42 {
		return false
	}
	at := 14 + transportOf(want[14:]) + 6
	if check := binary.BigEndian.Uint16(want[at:]); check == spoiled || check == spoiledToo {
		var p packet.Packet
		if packet.ParseFrame(append([]byte(nil), want...), &p) == nil && !p.Verify() {
			if packet.ParseFrame(got, &p) != nil || p.Verify() {
				return false
			}
			got, want = append([]byte(nil), got...), append([]byte(nil), want...)
			copy(got[at:], want[at:at+2])
		}
	}
	return bytes.Equal(got, want)
}
