package gateway_test

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
	"github.com/weir-lb/weir/internal/turn/gateway"
)

// coturn's client sends through the gateway to coturn's echoing peer and gets everything back: on channels, by Send
// and Data indications, and over IPv6.
func TestCoturnClientOverUDP(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	netlabtest.Tools(t, "turnutils_uclient", "turnutils_peer")
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

// peerPort starts coturn's echo. It is two: the one at the next port is for RTCP, which coturn's client sends there unless it
// has the option -c. The program goes on where it cannot bind that one, and half of the client's messages are lost.
func peerPort(t testing.TB, address string) uint16 {
	t.Helper()
	port := netlabtest.UDPPortPair(t)
	echo := exec.Command("turnutils_peer", "-L", address, "-p", fmt.Sprint(port))
	if err := echo.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = echo.Process.Kill(); _ = echo.Wait() })
	for at := port; at <= port+1; at++ {
		probe := listenUDP(t, address)
		netlabtest.Eventually(t, "the echo answers", func() bool {
			_, _ = probe.WriteToUDPAddrPort([]byte("are you there?"), netip.AddrPortFrom(netip.MustParseAddr(address), at))
			_ = probe.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
			n, _ := probe.Read(make([]byte, 100))
			return n > 0
		})
	}
	return port
}
