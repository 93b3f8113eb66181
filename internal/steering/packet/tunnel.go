package packet

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"github.com/weir-lb/weir/internal/steering/flow"
)

// GUEPort is the UDP destination port of Generic UDP Encapsulation (IANA).
const GUEPort = 6080

// tunnelTTL is the outer TTL or hop limit (RFC 2003 section 3.1 leaves it to us).
const tunnelTTL = 64

// Protocol numbers of IP in IP.
const (
	protoIPv4 = 4
	protoIPv6 = 41
)

// Errors of Decapsulate.
var (
	ErrNotTunnel = errors.New("not an IP-in-IP or GUE packet")
)

// AppendIPIP appends inner, an IP packet of either family, inside an IP header
// from src to dst (RFC 2003, RFC 2473, RFC 4213). DSCP and ECN are copied out
// (RFC 6040 normal mode), an IPv4 outer header never fragments (DF, id 0; RFC
// 6864), the flow label is zero. It returns nil if src and dst are not of one
// family or the result exceeds 65,535 bytes.
func AppendIPIP(buf []byte, src, dst netip.Addr, inner []byte) []byte {
	if len(inner) < ipv4MinHeader {
		return nil
	}
	proto := uint8(protoIPv4)
	if inner[0]>>4 == 6 {
		proto = protoIPv6
	}
	buf = appendOuter(buf, src, dst, proto, trafficClass(inner), len(inner))
	if buf == nil {
		return nil
	}
	return append(buf, inner...)
}

// AppendGUE appends inner as variant 1 of GUE (draft-ietf-intarea-gue section
// 4: the IP packet directly behind the UDP header), from source port srcPort.
// The UDP checksum is zero, which RFC 6935 allows tunnels over IPv6.
func AppendGUE(buf []byte, src, dst netip.Addr, srcPort uint16, inner []byte) []byte {
	if len(inner) < ipv4MinHeader {
		return nil
	}
	buf = appendOuter(buf, src, dst, flow.ProtoUDP, trafficClass(inner), 8+len(inner))
	if buf == nil {
		return nil
	}
	buf = binary.BigEndian.AppendUint16(buf, srcPort)
	buf = binary.BigEndian.AppendUint16(buf, GUEPort)
	buf = binary.BigEndian.AppendUint16(buf, uint16(8+len(inner)))
	buf = append(buf, 0, 0)
	return append(buf, inner...)
}

// trafficClass returns DSCP and ECN of an IP packet.
func trafficClass(b []byte) uint8 {
	if b[0]>>4 == 6 {
		return b[0]<<4 | b[1]>>4
	}
	return b[1]
}

func appendOuter(buf []byte, src, dst netip.Addr, proto, class uint8, length int) []byte {
	src, dst = src.Unmap(), dst.Unmap()
	if !src.IsValid() || !dst.IsValid() || src.Is4() != dst.Is4() {
		return nil
	}
	if dst.Is4() {
		if length+ipv4MinHeader > 65535 {
			return nil
		}
		return appendIPv4(buf, src, dst, proto, class, tunnelTTL, 0, 0x4000, nil, length)
	}
	if length > 65535 {
		return nil
	}
	return appendIPv6(buf, src, dst, proto, class, tunnelTTL, length)
}
