package vrrp

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"time"
)

const (
	// Protocol is the number of VRRP in the IP header.
	Protocol = 112
	// HopLimit is the TTL of every advertisement. Packets with another one have passed a router and are ignored (section 5.1.1.3).
	HopLimit = 255
	// Owner is the priority of the router whose own addresses the virtual ones are.
	Owner = 255
	// MaxAddresses is how many addresses an advertisement can hold.
	MaxAddresses = 255
	// Step is the unit of intervals in packets.
	Step = 10 * time.Millisecond
	// MaxInterval is the longest interval that a packet can hold.
	MaxInterval = 4095 * Step

	version3      = 3
	advertisement = 1 // the only type
	headerBytes   = 8
)

// Group returns the multicast address of advertisements.
func Group(is6 bool) netip.Addr {
	if is6 {
		return netip.AddrFrom16([16]byte{0: 0xff, 1: 0x02, 15: 0x12})
	}
	return netip.AddrFrom4([4]byte{224, 0, 0, 18})
}

// Advertisement is the only message of the protocol.
type Advertisement struct {
	ID        uint8         // of the virtual router, 1 to 255
	Priority  uint8         // 0: the sender gives the addresses up
	Interval  time.Duration // until the next one at most: a multiple of Step from Step to MaxInterval
	Addresses []netip.Addr  // of the virtual router, 1 to 255, of one family
}

// Append appends the packet that source sends to the group of its family.
func (a *Advertisement) Append(b []byte, source netip.Addr) []byte {
	start := len(b)
	b = append(b, version3<<4|advertisement, a.ID, a.Priority, uint8(len(a.Addresses)))
	b = binary.BigEndian.AppendUint16(b, uint16(a.Interval/Step))
	b = append(b, 0, 0)
	for _, address := range a.Addresses {
		b = append(b, address.AsSlice()...)
	}
	message := b[start:]
	sum := fold(add(pseudoHeader(len(message), source, Group(source.Is6())), message))
	binary.BigEndian.PutUint16(message[6:], ^sum)
	return b
}

// Errors of Parse.
var (
	ErrShort     = errors.New("shorter than its header and addresses, or longer")
	ErrVersion   = errors.New("not VRRP version 3")
	ErrType      = errors.New("not an advertisement")
	ErrID        = errors.New("virtual router id 0")
	ErrAddresses = errors.New("no address")
	ErrInterval  = errors.New("interval 0")
	ErrChecksum  = errors.New("wrong checksum")
)

// Parse reads a packet that source sent to destination. Its error is one of those above. It allocates only the addresses.
func Parse(b []byte, source, destination netip.Addr) (Advertisement, error) {
	if len(b) < headerBytes {
		return Advertisement{}, ErrShort
	}
	a := Advertisement{ID: b[1], Priority: b[2], Interval: time.Duration(binary.BigEndian.Uint16(b[4:])&0xfff) * Step}
	size, count := 4, int(b[3])
	if source.Is6() {
		size = 16
	}
	switch {
	case b[0]>>4 != version3:
		return Advertisement{}, ErrVersion
	case b[0]&0xf != advertisement:
		return Advertisement{}, ErrType
	case len(b) != headerBytes+count*size:
		return Advertisement{}, ErrShort
	case a.ID == 0:
		return Advertisement{}, ErrID
	case count == 0:
		return Advertisement{}, ErrAddresses
	case a.Interval == 0:
		return Advertisement{}, ErrInterval
	case !checks(b, source, destination):
		return Advertisement{}, ErrChecksum
	}
	a.Addresses = make([]netip.Addr, count)
	for i := range a.Addresses {
		a.Addresses[i], _ = netip.AddrFromSlice(b[headerBytes+i*size:][:size])
	}
	return a, nil
}

func checks(b []byte, source, destination netip.Addr) bool {
	const right = 0xffff // of a sum that includes the checksum
	if fold(add(pseudoHeader(len(b), source, destination), b)) == right {
		return true
	}
	return source.Is4() && fold(add(0, b)) == right
}

// pseudoHeader returns the sum of the pseudo header (RFC 9568 section 5.2.8).
func pseudoHeader(length int, source, destination netip.Addr) uint32 {
	return add(add(Protocol+uint32(length), source.AsSlice()), destination.AsSlice())
}

// add adds 16-bit words to a sum, the last one padded with a zero.
func add(sum uint32, b []byte) uint32 {
	for ; len(b) >= 2; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		sum += uint32(b[0]) << 8
	}
	return sum
}

func fold(sum uint32) uint16 {
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}
