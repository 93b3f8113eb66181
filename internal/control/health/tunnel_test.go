package health

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/steering/flow"
)

// The table of probes through tunnels is bounded; a port that is in it may be used again.
func TestProbesThroughTunnelsAreBounded(t *testing.T) {
	tunnels, p := &tunnels{probed: map[flow.Key]*tunnelled{}}, &tunnelled{}
	source := func(i int) flow.Key {
		return sourceKey(netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), uint16(1024+i)), 17)
	}
	for i := range maxProbed {
		if err := tunnels.register(source(i), p); err != nil {
			t.Fatal(err)
		}
	}
	if err := tunnels.register(source(maxProbed), p); err == nil || !strings.Contains(err.Error(), "make the interval of health longer") {
		t.Errorf("one more: %v", err)
	}
	if err := tunnels.register(source(7), p); err != nil {
		t.Errorf("the same port again: %v", err)
	}
}
