package gateway_test

import (
	"fmt"
	"testing"

	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
	"github.com/weir-lb/weir/internal/turn/gateway"
)

// TestCoturnClientOverTCPRelays has coturn's client connect its relays to each other by RFC 6062.
func TestCoturnClientOverTCPRelays(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	netlabtest.Tools(t, "turnutils_uclient")
	for _, test := range []struct {
		protocol gateway.Protocol
		address  string
		flags    string
	}{
		{gateway.TCP, "127.0.0.1", "-T"}, {gateway.TLS, "127.0.0.1", "-T -S"}, {gateway.TCP, "::1", "-T -x"},
	} {
		t.Run(fmt.Sprint(test), func(t *testing.T) {
			t.Parallel() // they pace themselves
			port := netlabtest.UDPPort(t)
			g := start(t, streamConfig(test.protocol, test.address, port), gateway.Options{Workers: 2})
			uclient(t, port, test.address, test.flags+" -u user1 -w passwd1 -L "+test.address+" -n 20 -m 4 -z 5")
			netlabtest.Eventually(t, "every connection and its allocation ends", func() bool {
				s := g.Stats()
				return s.Totals.Allocations == 0 && s.Listeners[0].Connections == 0
			})
			if s := g.Stats(); s.Reasons["connection_bound"] == 0 || s.Totals.Up.Bytes == 0 || s.Totals.Down.Bytes == 0 {
				t.Errorf("counted %+v %v", s.Totals, s.Reasons)
			}
		})
	}
}
