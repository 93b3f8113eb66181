package gateway_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/pion/stun/v4"

	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
	"github.com/weir-lb/weir/internal/turn/gateway"
)

// Clients and peers in networks of their own, with links of 1500 bytes: the relay address is the configured one of
// the peers' network, bursts leave in segments, and what is longer than a link takes arrives all the same.
func TestRootNetworks(t *testing.T) {
	lab := netlabtest.Up(t, netlab.Topology{
		Name:       "turngw",
		Namespaces: []netlab.Namespace{{Name: "client"}, {Name: "gw"}, {Name: "peer"}},
		Links: []netlab.Link{
			netlab.Cable("client eth0 10.8.1.2/24 fd08:1::2/64", "gw left 10.8.1.1/24 fd08:1::1/64"),
			netlab.Cable("peer eth0 10.8.2.2/24 fd08:2::2/64", "gw right 10.8.2.1/24 fd08:2::1/64"),
		},
	})
	in := func(namespace string, f func()) {
		t.Helper()
		if err := lab.Namespace(namespace).Do(func() error { f(); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	startIn(t, lab.Namespace("gw"))
	for _, test := range []struct {
		server, peer string
		family       byte
	}{
		{"10.8.1.1:3478", "10.8.2.2", 1}, {"[fd08:1::1]:3478", "fd08:2::2", 2}, {"10.8.1.1:3478", "fd08:2::2", 2},
	} {
		t.Run(test.server+" to "+test.peer, func(t *testing.T) {
			var c *turnClient
			var peer *net.UDPConn
			in("client", func() { c = dial(t, netip.MustParseAddrPort(test.server)) })
			in("peer", func() { peer = listenUDP(t, test.peer) })
			c.allocate(raw(stun.AttrRequestedAddressFamily, test.family, 0, 0, 0))
			c.bind(0x4001, addrOf(peer))
			for _, size := range []int{0, 100, 1400, 1472, 1473, 3000, 60000} {
				for i := range 5 {
					payload := fmt.Sprint(i, strings.Repeat("x", size))
					c.send(0x4001, payload)
					if from := wantFrom(t, peer, payload); from != c.relays[0] {
						t.Fatalf("came from %v, want %v", from, c.relays[0])
					}
					sendTo(t, peer, c.relays[0], payload)
					c.wantChannelData(0x4001, payload)
				}
			}
			for i := range 100 { // without waiting: runs
				c.send(0x4001, fmt.Sprintf("%03d", i))
				sendTo(t, peer, c.relays[0], fmt.Sprintf("%03d", i))
			}
			for i := range 100 {
				wantFrom(t, peer, fmt.Sprintf("%03d", i))
				c.wantChannelData(0x4001, fmt.Sprintf("%03d", i))
			}
		})
	}
}

// inNamespace says that this process is the gateway of TestRootNetworks.
const inNamespace = "WEIR_TEST_GATEWAY"

// startIn runs a gateway in a process inside a namespace: its workers bind relay sockets on threads of their own.
func startIn(t *testing.T, host *netlab.Host) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestGatewayProcess$", "-test.v")
	cmd.Env = append(os.Environ(), inNamespace+"=1")
	cmd.Stderr = t.Output()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := host.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the gateway's process: %v", err)
		}
	})
	for lines := bufio.NewScanner(out); ; {
		if !lines.Scan() {
			t.Fatal("the gateway did not start")
		}
		if strings.Contains(lines.Text(), "serving") {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return
		}
	}
}

// TestGatewayProcess is that process; it serves until its standard input ends.
func TestGatewayProcess(t *testing.T) {
	if os.Getenv(inNamespace) == "" {
		return // a part of TestRootNetworks
	}
	cfg := config("::", 3478)
	cfg.Listeners[0].Relay = []netip.Addr{netip.MustParseAddr("10.8.2.1"), netip.MustParseAddr("fd08:2::1")}
	cfg.Clusters[0].Endpoints = []string{"10.8.2.0/24", "fd08:2::/64"}
	g := start(t, cfg, gateway.Options{Workers: 2})
	netlabtest.Eventually(t, "the gateway is ready", func() bool { return g.Ready() == nil })
	fmt.Println("serving")
	_, _ = io.Copy(io.Discard, os.Stdin)
	if refused := g.Stats().Reasons["send_refused"]; refused != 0 {
		t.Errorf("%d datagrams were refused", refused)
	}
}
