package steertest

import (
	"fmt"
	"net/netip"

	"github.com/weir-lb/weir/internal/steering/packet"
)

// encapsulate reads "ipip SRC > DST" or "gue SRC:PORT > DST" around inner.
func encapsulate(words []string, inner []byte) ([]byte, error) {
	if len(words) != 4 || words[2] != ">" {
		return nil, fmt.Errorf("write ipip SRC > DST carrying …")
	}
	dst, err := netip.ParseAddr(words[3])
	if err != nil {
		return nil, err
	}
	switch words[0] {
	case "ipip":
		src, err := netip.ParseAddr(words[1])
		if err != nil {
			return nil, err
		}
		return packet.AppendIPIP(nil, src, dst, inner), nil
	case "gue":
		src, err := netip.ParseAddrPort(words[1])
		if err != nil {
			return nil, err
		}
		return packet.AppendGUE(nil, src.Addr(), dst, src.Port(), inner), nil
	}
	return nil, fmt.Errorf("no tunnel %q", words[0])
}
