package ebpf

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/datapath/ebpf/decap"
	"github.com/weir-lb/weir/internal/datapath/ebpf/ebpftest"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// TestRootPathMTUThroughL3DSR has no room for the tunnel: senders learn what
// remains, and large transfers pass.
func TestRootPathMTUThroughL3DSROnTCX(t *testing.T) { pathMTUThroughL3DSR(t, attach.HookTCX) }
func TestRootPathMTUThroughL3DSROnXDP(t *testing.T) { pathMTUThroughL3DSR(t, attach.HookXDP) }

func pathMTUThroughL3DSR(t *testing.T, hook attach.Hook) {
	t.Parallel()
	overheads := []struct {
		tunnel, backend string
		over            int
	}{
		{"ipip", `address: "10.2.0.2"`, 20},
		{"gue", `address: "10.2.0.2"`, 28},
		{"ipip", `address: "2001:db8::2:2"`, 40},
		{"gue", `address: "2001:db8::2:2"`, 48},
	}
	for _, c := range overheads {
		t.Run(fmt.Sprint(c.tunnel, c.over), func(t *testing.T) {
			t.Parallel()
			topology := netlab.DSR()
			topology.Name = "ebpm" + hook.String()
			lab := netlabtest.Up(t, topology)
			serveVIPs(t, lab.Namespace("zone1"))
			b := start(t, lab.Namespace("gateway"), Config{Interfaces: []string{"veth0", "veth2"}, Hook: hook},
				"services:\n- name: echo\n  mode: l3dsr\n  tunnel: "+c.tunnel+vips+"  backends:\n  - {name: a, "+c.backend+"}\n")
			openTunnels(t, lab.Namespace("zone1"), decap.Config{
				Interface: "veth3", Hook: decap.TCX, From: netlab.Prefixes("10.2.0.1/32", "2001:db8::2:1/128"),
			})
			client := lab.Namespace("zone0")
			for i, vip := range bothVIPs {
				sendTCP(t, client, vip, 1<<20)
				header := []int{28, 48}[i]
				if got := probeMTU(t, client, vip, 1500-header); got != 1500-c.over {
					t.Errorf("%s: path MTU %d, want %d", vip, got, 1500-c.over)
				}
				sendUDP(t, client, "", vip, 1500-c.over-header) // exactly fits
			}
			if counted(t, b, "too_big") == 0 {
				t.Error("nothing counted as too_big")
			}
		})
	}
}

// TestRootPathMTUThroughNAT has narrow links next to the balancer and beyond
// it, on either side: each end learns the MTU from errors that quote its own flow.
func TestRootPathMTUThroughNATOnTCX(t *testing.T) { pathMTUThroughNAT(t, attach.HookTCX) }
func TestRootPathMTUThroughNATOnXDP(t *testing.T) { pathMTUThroughNAT(t, attach.HookXDP) }

func pathMTUThroughNAT(t *testing.T, hook attach.Hook) {
	t.Parallel()
	for narrow, at := range []string{"", "balancer in", "balancer out", "backend"} {
		if narrow == 0 {
			continue // the client's own link: it requests small segments itself
		}
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			lab := netlabtest.Up(t, narrowChain(narrow, hook))
			backend, client := lab.Namespace("backend"), lab.Namespace("client")
			serve(t, backend, ":8080")
			serveBytes(t, backend, ":8081", 1<<20)
			start(t, lab.Namespace("lb"), Config{Interfaces: []string{"left", "right"}, Hook: hook}, chainSpec("nat"))
			for i, vip := range bothVIPs {
				readBytes(t, client, strings.Replace(vip, ":80", ":81", 1), 1<<20)
				sendTCP(t, client, vip, 1<<20)
				header := []int{28, 48}[i]
				if narrow >= 2 { // the client's own kernel knows the first link
					if got := probeMTU(t, client, vip, 1500-header); got != 1400 {
						t.Errorf("%s: the client found %d, want 1400", vip, got)
					}
				} else {
					wantRouteMTU(t, backend, []string{"10.1.0.2", "2001:db8:1::2"}[i], 1400)
				}
				sendUDP(t, client, "", vip, 1400-header)
			}
		})
	}
}

// TestRootErrorsReachBackendsOfDSR: what a router says about a reply, whose
// source is the VIP, reaches the backend that sent it.
func TestRootErrorsReachBackendsOfDSR(t *testing.T) {
	t.Parallel()
	for _, hook := range hooks {
		t.Run(hook.String(), func(t *testing.T) {
			t.Parallel()
			lab := netlabtest.Up(t, narrowChain(1, hook))
			backend, client := lab.Namespace("backend"), lab.Namespace("client")
			for _, vip := range bothVIPs {
				serveBytes(t, backend, vip, 1<<20)
			}
			b := start(t, lab.Namespace("lb"), Config{Interfaces: []string{"left", "right"}, Hook: hook}, chainSpec("l3dsr"))
			openTunnels(t, backend, decap.Config{Interface: "eth0", Hook: decap.TCX, From: netlab.Prefixes("10.3.0.1/32", "2001:db8:3::1/128")})
			for i, vip := range bothVIPs {
				readBytes(t, client, vip, 1<<20)
				wantRouteMTU(t, backend, []string{"10.1.0.2", "2001:db8:1::2"}[i], 1400)
			}
			if counted(t, b, "icmp_error") == 0 {
				t.Error("no error was steered")
			}
		})
	}
}

// narrowChain is the chain with its narrow link elsewhere: 0 next to the
// client, 3 next to the backend. Behind the first router there is otherwise room
// for a tunnel.
func narrowChain(narrow int, hook attach.Hook) netlab.Topology {
	topology := netlab.Chain()
	topology.Name = fmt.Sprintf("ebch%d%s", narrow, hook)
	for i := range topology.Links {
		topology.Links[i].MTU = 1560
	}
	topology.Links[0].MTU, topology.Links[narrow].MTU = 1500, 1400
	return topology
}

func chainSpec(mode string) string {
	port := ", port: 8080"
	if mode != "nat" {
		port = ""
	}
	spec := "services:\n- name: echo\n  mode: " + mode + vips + `  backends:
  - {name: a, address: "10.4.0.2", address2: "2001:db8:4::2"` + port + "}\n"
	if mode == "nat" {
		spec += "- name: bytes\n  mode: nat\n" + strings.ReplaceAll(vips[1:], "port: 80", "port: 81") + `  backends:
  - {name: a, address: "10.4.0.2", address2: "2001:db8:4::2", port: 8081}
`
	}
	return spec
}

// serveBytes sends so many bytes to everyone who connects.
func serveBytes(t *testing.T, host *netlab.Host, address string, size int) {
	t.Helper()
	ebpftest.Do(t, host, func() error { return accept(t, address, func(c net.Conn) { c.Write(pattern(size)) }) })
}

func pattern(size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(i>>8 ^ i*7)
	}
	return b
}

func readBytes(t *testing.T, host *netlab.Host, from string, size int) {
	t.Helper()
	ebpftest.Do(t, host, func() error {
		c, err := net.DialTimeout("tcp", from, 10*time.Second)
		if err != nil {
			return err
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(30 * time.Second))
		got, err := io.ReadAll(c)
		if err != nil || string(got) != string(pattern(size)) {
			return fmt.Errorf("from %s: %d bytes, %w", from, len(got), err)
		}
		return nil
	})
}

// wantRouteMTU checks the path MTU that a host's kernel has learnt.
func wantRouteMTU(t *testing.T, host *netlab.Host, to string, want int) {
	t.Helper()
	out, err := host.Exec(t.Context(), "ip", "route", "get", to)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out, fmt.Sprintf(" mtu %d", want)) {
		t.Errorf("%s has learnt of the way to %s: %swant mtu %d", host.Name(), to, out, want)
	}
}
