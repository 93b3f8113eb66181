package evict

import (
	"encoding/binary"
	"net/netip"
)

// Source identifies who is accountable for an address, as far as addresses show: the IPv4 address (all clients behind
// one NAT are one source), or the IPv6 /48 (one site can use all addresses in it).
type Source uint64

// SourceOf returns the source of an address. IPv4-mapped IPv6 addresses are IPv4 addresses.
func SourceOf(a netip.Addr) Source { return SourceOf16(a.As16()) }

// mapped is the prefix ::ffff:0:0/96 of IPv4-mapped addresses (RFC 4291 section 2.5.5.2).
var mapped = [12]byte{10: 0xff, 11: 0xff}

// SourceOf16 is SourceOf for an address of 16 bytes in network order.
func SourceOf16(a [16]byte) Source {
	if [12]byte(a[:12]) == mapped {
		return 1<<63 | Source(binary.BigEndian.Uint32(a[12:]))
	}
	return Source(binary.BigEndian.Uint64(a[:8]) >> 16)
}
