package packet

import (
	"encoding/binary"

	"github.com/weir-lb/weir/internal/steering/flow"
)

// Decapsulate returns the IP packet inside an IP-in-IP or GUE variant 1 packet.
// It aliases b.
func Decapsulate(b []byte) ([]byte, error) {
	h, err := parseIP(b, false)
	if err != nil {
		return nil, err
	}
	if h.first || h.later {
		return nil, ErrNotTunnel
	}
	inner := b[h.l4:h.end]
	if h.proto == flow.ProtoUDP {
		if len(inner) < 8 || binary.BigEndian.Uint16(inner[2:]) != GUEPort {
			return nil, ErrNotTunnel
		}
		inner = inner[8:]
		// Variant 1 begins with bits 01: the version nibble of IPv4 and IPv6.
		if len(inner) < 1 || inner[0]>>6 != 1 {
			return nil, ErrNotTunnel
		}
	} else if h.proto != protoIPv4 && h.proto != protoIPv6 {
		return nil, ErrNotTunnel
	}
	if _, err := parseIP(inner, true); err != nil {
		return nil, err
	}
	if h.proto == protoIPv4 && inner[0]>>4 != 4 || h.proto == protoIPv6 && inner[0]>>4 != 6 {
		return nil, ErrVersion
	}
	return inner, nil
}
