package ebpf

import (
	"context"
	"fmt"
	"testing"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/datapath/ebpf/decap"
	"github.com/weir-lb/weir/internal/datapath/ebpf/ebpftest"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

var hooks = ebpftest.Hooks()

// vips is the part of a spec that gives a service both VIPs, TCP and UDP.
const vips = `
  vips:
  - {address: "10.0.0.1", protocol: tcp, port: 80}
  - {address: "10.0.0.1", protocol: udp, port: 80}
  - {address: "2001:db8::1", protocol: tcp, port: 80}
  - {address: "2001:db8::1", protocol: udp, port: 80}
`

// bothVIPs are what clients dial.
var bothVIPs = []string{"10.0.0.1:80", "[2001:db8::1]:80"}

// serveVIPs has a backend of DSR answer for the VIPs themselves: a socket bound
// to no address would answer UDP from another one.
func serveVIPs(t *testing.T, host *netlab.Host) {
	t.Helper()
	for _, vip := range bothVIPs {
		serve(t, host, vip)
	}
}

// echoOn sends and wants back TCP and UDP over both families.
func echoOn(t *testing.T, client *netlab.Host) {
	t.Helper()
	for _, vip := range bothVIPs {
		for range 2 {
			sendTCP(t, client, vip, 1<<20)
		}
		for _, size := range []int{0, 1, 1200, 1400} {
			sendUDP(t, client, "", vip, size)
		}
	}
}

// openTunnels runs the decapsulator of a backend.
func openTunnels(t *testing.T, host *netlab.Host, c decap.Config) *decap.Decap {
	t.Helper()
	var d *decap.Decap
	ebpftest.Do(t, host, func() (err error) {
		d, err = decap.Open(c)
		return err
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// segment is one wire with a client, the balancer and two backends, whose
// replies go to the client directly.
func segment(name string) netlab.Topology {
	wire := netlab.Namespace{Name: "wire", Bridges: []netlab.Bridge{{Name: "br0"}}}
	topology := netlab.Topology{Name: name, Namespaces: []netlab.Namespace{wire}}
	for i, host := range []string{"gateway", "client", "zone1", "zone2"} {
		ns := netlab.Namespace{Name: host}
		switch host {
		case "gateway":
			ns.Forward = true
		case "client":
			ns.Routes = []netlab.Route{
				netlab.Via("10.0.0.1/32", "10.2.0.1"),
				netlab.Via("2001:db8::1/128", "2001:db8::2:1"),
			}
		default:
			ns.Loopback = netlab.Prefixes("10.0.0.1/32", "2001:db8::1/128")
			ns.Sysctls = []netlab.Sysctl{{Key: "net.ipv4.conf.all.arp_ignore", Value: "1"}, {Key: "net.ipv4.conf.all.arp_announce", Value: "2"}}
		}
		topology.Namespaces = append(topology.Namespaces, ns)
		topology.Links = append(topology.Links, netlab.Link{
			A: netlab.End{Namespace: host, Name: "eth0", Addresses: netlab.Prefixes(fmt.Sprintf("10.2.0.%d/24", i+1), fmt.Sprintf("2001:db8::2:%d/112", i+1))},
			B: netlab.End{Namespace: "wire", Name: "to-" + host, Bridge: "br0"},
		})
	}
	return topology
}

const segmentBackends = `
  backends:
  - {name: a, address: "10.2.0.3", address2: "2001:db8::2:3"}
  - {name: b, address: "10.2.0.4", address2: "2001:db8::2:4"}
`

func TestRootL2DSROnOneSegment(t *testing.T) {
	t.Parallel()
	for _, hook := range hooks {
		t.Run(hook.String(), func(t *testing.T) {
			t.Parallel()
			lab := netlabtest.Up(t, segment("ebseg"+hook.String()))
			for _, zone := range []string{"zone1", "zone2"} {
				serveVIPs(t, lab.Namespace(zone))
			}
			b := start(t, lab.Namespace("gateway"), Config{Interfaces: []string{"eth0"}, Hook: hook},
				"services:\n- name: echo\n  mode: l2dsr"+vips+segmentBackends)
			echoOn(t, lab.Namespace("client"))
			// Replies went past the balancer: it saw none.
			wantNone(t, b, "reply")
		})
	}
}

// TestRootL2DSRThroughTheBalancer has the balancer own the VIP, and the only
// way of replies, whose source is that VIP.
func TestRootL2DSRThroughTheBalancer(t *testing.T) {
	t.Parallel()
	for _, hook := range hooks {
		t.Run(hook.String(), func(t *testing.T) {
			t.Parallel()
			topology := netlab.DSR()
			topology.Name = "ebdsr" + hook.String()
			lab := netlabtest.Up(t, topology)
			serveVIPs(t, lab.Namespace("zone1"))
			start(t, lab.Namespace("gateway"), Config{Interfaces: []string{"veth0", "veth2"}, Hook: hook},
				"services:\n- name: echo\n  mode: l2dsr"+vips+`
  backends:
  - {name: a, address: "10.2.0.2", address2: "2001:db8::2:2"}
`)
			echoOn(t, lab.Namespace("zone0"))
		})
	}
}

// TestRootL3DSR sends both families through tunnels of either outer family;
// the tunnels of one hook follow each other in one running data path.
func TestRootL3DSR(t *testing.T) {
	t.Parallel()
	for _, hook := range hooks {
		t.Run(hook.String(), func(t *testing.T) {
			t.Parallel()
			topology := netlab.DSR()
			topology.Name = "ebl3" + hook.String()
			topology.Links[1].MTU = 1600 // room for the tunnel
			lab := netlabtest.Up(t, topology)
			serveVIPs(t, lab.Namespace("zone1"))
			end := decap.TCX
			if hook == attach.HookXDP {
				end = decap.XDP
			}
			d := openTunnels(t, lab.Namespace("zone1"), decap.Config{
				Interface: "veth3", Hook: end, From: netlab.Prefixes("10.2.0.1/32", "2001:db8::2:1/128"),
			})
			var b *balancer
			counts := func() map[string]v1.Count {
				counts, err := d.Counters()
				if err != nil {
					t.Fatal(err)
				}
				return counts
			}
			for _, tunnel := range []string{"ipip", "gue"} {
				for _, addresses := range []string{`address: "10.2.0.2", address2: "2001:db8::2:2"`, `address: "10.2.0.2"`, `address: "2001:db8::2:2"`} {
					spec := "services:\n- name: echo\n  mode: l3dsr\n  tunnel: " + tunnel + vips + "  backends:\n  - {name: a, " + addresses + "}\n"
					if b == nil {
						b = start(t, lab.Namespace("gateway"), Config{Interfaces: []string{"veth0", "veth2"}, Hook: hook}, spec)
					} else {
						b.apply(spec)
					}
					before := counts()
					echoOn(t, lab.Namespace("zone0"))
					after := counts()
					if after[tunnel].Packets == before[tunnel].Packets || after["refused"].Packets+after["malformed"].Packets != 0 {
						t.Errorf("%s, %s: the backend counted %v, before %v", tunnel, addresses, after, before)
					}
				}
			}
		})
	}
}

// wantNone fails if the data path counted a packet under a reason.
func wantNone(t *testing.T, b *balancer, reason string) {
	t.Helper()
	if n := counted(t, b, reason); n != 0 {
		t.Errorf("%d packets counted as %s, want none", n, reason)
	}
}

// counted is how many packets the data path counted under a reason.
func counted(t *testing.T, b *balancer, reason string) uint64 {
	t.Helper()
	c := b.d.Counters()
	for r := range lb.Reason(lb.NumReasons) {
		if r.String() != reason {
			continue
		}
		n := c.Other[r].Packets
		for _, service := range c.Services {
			n += service[r].Packets
		}
		return n
	}
	t.Fatalf("no reason %q", reason)
	return 0
}
