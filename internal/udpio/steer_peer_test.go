package udpio_test

import (
	"net"
	"net/netip"
	"testing"

	"github.com/weir-lb/weir/internal/udpio"
)

// Every datagram arrives at the socket that PeerSocket names: both families, and IPv4 through an IPv6 socket.
func TestSteerByPeer(t *testing.T) {
	for _, test := range []struct{ name, listen, client, to string }{
		{"IPv4", "127.0.0.1:0", "127.0.0.1", "127.0.0.1"},
		{"IPv6", "[::1]:0", "::1", "::1"},
		{"IPv4 at an IPv6 socket", "[::]:0", "127.0.0.1", "127.0.0.1"},
		{"IPv6 at a wildcard", "[::]:0", "::1", "::1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			const sockets = 3
			group, err := udpio.Listen(udpio.Config{
				Addr: netip.MustParseAddrPort(test.listen), Sockets: sockets, Steer: &udpio.Steering{ByPeer: true},
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = group.Close() })
			to := netip.AddrPortFrom(netip.MustParseAddr(test.to), group.LocalAddr().Port())
			seen := [sockets]int{}
			for range 50 {
				client, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(test.client), 0)))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = client.Close() })
				from := client.LocalAddr().(*net.UDPAddr).AddrPort()
				if _, err := client.WriteToUDPAddrPort([]byte("hello"), to); err != nil {
					t.Fatal(err)
				}
				socket := udpio.PeerSocket(from, sockets)
				messages := udpio.NewMessages(1, 100)
				n, err := group.Conn(socket).ReadBatch(messages, timeout)
				if err != nil || n != 1 || messages[0].Addr.Port() != from.Port() {
					t.Fatalf("socket %d read %d datagrams for %v: %v", socket, n, from, err)
				}
				seen[socket]++
			}
			for i, n := range seen {
				if n == 0 {
					t.Errorf("socket %d got none of 50 peers: %v", i, seen)
				}
			}
		})
	}
}

func TestSteerByPeerTakesNoRules(t *testing.T) {
	_, err := udpio.Listen(udpio.Config{
		Addr: netip.MustParseAddrPort("127.0.0.1:0"), Sockets: 2,
		Steer: &udpio.Steering{ByPeer: true, Rules: []udpio.SteerRule{udpio.SteerDTLS12(0, 0, 1)}},
	})
	if err == nil {
		t.Fatal("rules with ByPeer were accepted")
	}
}
