package gateway_test

import (
	"log/slog"
	"net"
	"net/netip"
	"testing"

	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
	"github.com/weir-lb/weir/internal/turn/gateway"
)

// start runs a gateway until the test's end.
func start(t testing.TB, c gateway.Config, o gateway.Options) *gateway.Gateway {
	t.Helper()
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	g, err := gateway.Open(c, o)
	if err != nil {
		t.Fatal(err)
	}
	netlabtest.Run(t, g.Run)
	return g
}

// config is a gateway with one UDP listener on a loopback address that opens the loopback range.
func config(address string, port uint16) gateway.Config {
	return gateway.Config{
		Realm: "weir.example",
		Auth:  gateway.AuthConfig{Users: []gateway.UserConfig{{Name: "user1", Password: "passwd1"}}},
		Listeners: []gateway.ListenerConfig{{
			Name: "udp", Protocol: gateway.UDP, Address: netip.MustParseAddr(address), Port: port, Routes: []string{"local"},
		}},
		Clusters: []gateway.ClusterConfig{{Name: "local", Endpoints: []string{"127.0.0.0/8", "::1"}}},
	}
}

func listenUDP(t testing.TB, address string) *net.UDPConn {
	t.Helper()
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(address), 0)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func addrOf(c interface{ LocalAddr() net.Addr }) netip.AddrPort {
	return c.LocalAddr().(*net.UDPAddr).AddrPort()
}

// peerAddress is where peers are: permissions are for an address, and other programs on 127.0.0.1 may still send to a
// relay port that was theirs.
const peerAddress = "127.77.0.1"
