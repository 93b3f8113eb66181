package neighbour

import (
	"encoding/binary"
	"net/netip"
)

// Frame is what a frame of another machine says.
type Frame struct {
	// Claimed is the address that the sender has; not valid: the frame claims none.
	Claimed netip.Addr
	// Address is the one that the sender looks for; not valid: the frame is no question.
	Address netip.Addr
	From    netip.Addr // of a question: who asks; unspecified: the sender has no address yet
	MAC     MAC        // of the sender
}

// Parse reads an Ethernet frame with ARP or neighbour discovery; false: it is neither, or damaged.
func Parse(b []byte) (Frame, bool) {
	if len(b) < etherBytes {
		return Frame{}, false
	}
	var f Frame
	copy(f.MAC[:], b[6:12])
	switch binary.BigEndian.Uint16(b[12:]) {
	case TypeARP:
		return f, f.arp(b[etherBytes:])
	case TypeIPv6:
		return f, f.discovery(b[etherBytes:])
	}
	return Frame{}, false
}

func (f *Frame) arp(b []byte) bool {
	if len(b) < arpBytes || binary.BigEndian.Uint64(b)>>8 != 0x00010800060400 {
		return false
	}
	sender, target := netip.AddrFrom4([4]byte(b[14:18])), netip.AddrFrom4([4]byte(b[24:28]))
	copy(f.MAC[:], b[8:14])
	if !sender.IsUnspecified() {
		f.Claimed = sender
	}
	switch b[7] {
	case arpRequest:
		f.From, f.Address = sender, target
		return true
	case arpReply:
		return true
	}
	return false
}

// discovery accepts what RFC 4861 section 7.1 lets through.
func (f *Frame) discovery(b []byte) bool {
	if len(b) < ip6Bytes+ndBytes || b[0]>>4 != 6 || b[6] != icmpv6 || b[7] != hopLimit {
		return false
	}
	message := b[ip6Bytes:]
	if length := int(binary.BigEndian.Uint16(b[4:])); length < ndBytes || length > len(message) {
		return false
	} else {
		message = message[:length]
	}
	if message[1] != 0 || sum(b[8:ip6Bytes], message) != 0xffff {
		return false
	}
	source, target := netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(message[8:24]))
	if target.IsMulticast() {
		return false
	}
	switch message[0] {
	case solicitation:
		f.From, f.Address = source, target
		return f.options(message[ndBytes:], optSource)
	case advertisement:
		f.Claimed = target
		return f.options(message[ndBytes:], optTarget)
	}
	return false
}

// options takes the link address of an option instead of that of the frame.
func (f *Frame) options(b []byte, kind byte) bool {
	for len(b) >= 2 {
		size := int(b[1]) * 8
		if size == 0 || size > len(b) {
			return false
		}
		if b[0] == kind && size == optBytes {
			copy(f.MAC[:], b[2:8])
		}
		b = b[size:]
	}
	return true
}
