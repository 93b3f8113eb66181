package gateway_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
	"github.com/weir-lb/weir/internal/turn/gateway"
)

// coturn's client sends through the gateway to a peer that echoes and gets everything back: on channels, by Send
// and Data indications, and over IPv6.
func TestCoturnClientOverUDP(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	netlabtest.Tools(t, "turnutils_uclient")
	for _, test := range []struct {
		name, address string
		args          []string
	}{
		{"channels", "127.0.0.1", nil},
		{"one channel each", "127.0.0.1", []string{"-c"}},
		{"indications", "127.0.0.1", []string{"-c", "-s"}},
		{"IPv6", "::1", []string{"-c", "-x"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel() // they pace themselves
			ip := netip.MustParseAddr(test.address)
			port, peer := netlabtest.UDPPort(t), peerPort(t, test.address)
			g := start(t, config(test.address, port), gateway.Options{Workers: 2})
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
			defer cancel()
			args := append([]string{
				"-u", "user1", "-w", "passwd1", "-e", ip.String(), "-r", fmt.Sprint(peer), "-p", fmt.Sprint(port),
				"-m", "2", "-n", "10", "-l", "170",
			}, test.args...)
			out, err := exec.CommandContext(ctx, "turnutils_uclient", append(args, ip.String())...).CombinedOutput()
			if err != nil || !strings.Contains(string(out), "Total lost packets 0 ") || !strings.Contains(string(out), "tot_send_msgs=20, tot_recv_msgs=20") {
				t.Fatalf("turnutils_uclient %s: %v\n%s", strings.Join(args, " "), err, out)
			}
			if s := g.Stats(); s.Totals.Up.Packets != 20 || s.Totals.Down.Packets != 20 {
				t.Errorf("the gateway counted %+v", s.Totals)
			}
		})
	}
}

// peerPort is the first of two adjacent ports with an echo: coturn's client sends to the next one, as RTCP, unless it has the option
// -c. Its echo turnutils_peer is not used, because it goes on in silence where it cannot bind a port.
func peerPort(t testing.TB, address string) uint16 {
	t.Helper()
	for range 10 {
		port := netlabtest.UDPPortPair(t)
		first, err := bindUDP(address, port)
		if err != nil {
			continue // a program has taken it that does not know of the others
		}
		second, err := bindUDP(address, port+1)
		if err != nil {
			_ = first.Close()
			continue
		}
		for _, peer := range []*net.UDPConn{first, second} {
			t.Cleanup(func() { _ = peer.Close() })
			go echoFrom(peer, new(atomic.Int64))
		}
		return port
	}
	t.Fatal("no two adjacent ports are free")
	return 0
}

func bindUDP(address string, port uint16) (*net.UDPConn, error) {
	return net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(address), port)))
}
