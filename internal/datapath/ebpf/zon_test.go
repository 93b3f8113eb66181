package ebpf

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/packet"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// What another XDP load balancer was found to do wrong, each as a test. The
// rest of them: TestRootZonDefectSameSourcePort, …ZeroChecksum (nat_test.go),
// …FailedNeighbour, …TooBigBehindTag (paths_test.go).

// TestRootZonDefectBackendAdded keeps 300 idle connections while backends come
// and go: none is lost.
func TestRootZonDefectBackendAdded(t *testing.T) {
	t.Parallel()
	for _, hook := range hooks {
		t.Run(hook.String(), func(t *testing.T) {
			t.Parallel()
			topology := netlab.NAT()
			topology.Name = "ebadd" + hook.String()
			lab := netlabtest.Up(t, topology)
			for _, zone := range []string{"zone1", "zone2"} {
				serve(t, lab.Namespace(zone), ":8080")
				serve(t, lab.Namespace(zone), ":8081")
			}
			spec := func(backends ...string) string {
				text := "services:\n- name: echo\n  mode: nat\n" + vips[1:] + "  backends:\n"
				for i, b := range backends {
					text += fmt.Sprintf("  - {name: %c, %s}\n", 'a'+i, b)
				}
				return text
			}
			all := []string{
				`address: "10.2.0.2", address2: "2001:db8::2:2", port: 8080`,
				`address: "10.3.0.2", address2: "2001:db8::3:2", port: 8080`,
				`address: "10.2.0.2", address2: "2001:db8::2:2", port: 8081`,
				`address: "10.3.0.2", address2: "2001:db8::3:2", port: 8081`,
			}
			b := start(t, lab.Namespace("gateway"), Config{Interfaces: []string{"veth0", "veth2", "veth3"}, Hook: hook}, spec(all[:2]...))
			var idle []net.Conn
			for i := range 300 {
				idle = append(idle, dialFrom(t, lab.Namespace("zone0"), "tcp", []string{"10.0.0.2:0", "[2001:db8::2]:0"}[i&1], bothVIPs[i&1]))
			}
			for _, n := range []int{3, 4, 3, 4, 2} {
				b.apply(spec(all[:n]...))
			}
			for i, c := range idle {
				ask(t, c, fmt.Sprint("idle ", i))
			}
		})
	}
}

// TestRootZonDefectManyFlows sends over four times as many flows as that
// balancer's cache holds, twice: none is opened again.
func TestRootZonDefectManyFlows(t *testing.T) {
	t.Parallel()
	for _, hook := range hooks {
		t.Run(hook.String(), func(t *testing.T) {
			t.Parallel()
			const flows = 1100
			lab := netlabtest.Up(t, twoClients("ebmany"+hook.String(), true))
			serve(t, lab.Namespace("zone1"), ":8080")
			b := start(t, lab.Namespace("gateway"), Config{Interfaces: threeVeths, Hook: hook},
				"services:\n- name: echo\n  mode: nat\n"+vips[1:]+oneBackend[1:])
			w := openWire(t, lab.Namespace("client1"), "eth0")
			_, mac, err := lab.Namespace("gateway").Interface("veth1")
			if err != nil {
				t.Fatal(err)
			}
			other := dialFrom(t, lab.Namespace("client2"), "udp", "10.1.2.2:0", "10.0.0.1:80")
			for range 2 {
				for i := range flows {
					if i%64 == 0 {
						ask(t, other, "behind all before") // no queue overflows
					}
					p := packet.Build{
						Src: netip.AddrPortFrom(netip.MustParseAddr("10.1.1.2"), uint16(20000+i)),
						Dst: netip.MustParseAddrPort("10.0.0.1:80"), Proto: flow.ProtoUDP, Payload: make([]byte, 64),
					}
					w.send(p.AppendFrame(nil, mac, w.mac, p.Append(nil)))
				}
			}
			ask(t, other, "behind all before")
			var opened uint64
			for _, c := range b.d.Counters().Backends {
				opened += c.Opened
			}
			if hit := counted(t, b, "conntrack"); opened != flows+1 || hit < flows {
				t.Errorf("%d flows opened, want %d; %d packets of known flows, want %d", opened, flows+1, hit, flows)
			}
		})
	}
}

// TestRootZonDefectOffloads: the senders' checksum and segmentation offloads
// are on, as the kernel sets them, and no program loads programs at their ends.
func TestRootZonDefectOffloads(t *testing.T) {
	t.Parallel()
	for _, hook := range hooks {
		t.Run(hook.String(), func(t *testing.T) {
			t.Parallel()
			lab := netlabtest.Up(t, twoClients("eboff"+hook.String(), true))
			serve(t, lab.Namespace("zone1"), ":8080")
			start(t, lab.Namespace("gateway"), Config{Interfaces: threeVeths, Hook: hook},
				"services:\n- name: echo\n  mode: nat\n"+vips[1:]+oneBackend[1:])
			for _, host := range []string{"client1", "zone1"} {
				out, err := lab.Namespace(host).Exec(t.Context(), "ethtool", "-k", "eth0")
				if err != nil || !strings.Contains(out, "tx-checksumming: on") {
					t.Fatalf("%s: %v: checksum offload is not on:\n%s", host, err, out)
				}
				if out, err = lab.Namespace(host).Exec(t.Context(), "ip", "link", "show", "eth0"); err != nil || strings.Contains(out, "prog/xdp") {
					t.Fatalf("%s: %v: a program is there:\n%s", host, err, out)
				}
			}
			echoOn(t, lab.Namespace("client1"))
		})
	}
}

// TestRootZonDefectNATv6ByTheStack: where the way to the client is not
// resolved, the stack carries on, with the addresses rewritten.
func TestRootZonDefectNATv6ByTheStack(t *testing.T) {
	t.Parallel()
	for _, hook := range hooks {
		t.Run(hook.String(), func(t *testing.T) {
			t.Parallel()
			lab := netlabtest.Up(t, twoClients("ebstack"+hook.String(), true))
			serve(t, lab.Namespace("zone1"), ":8080")
			start(t, lab.Namespace("gateway"), Config{Interfaces: threeVeths, Hook: hook},
				"services:\n- name: echo\n  mode: nat\n"+vips[1:]+oneBackend[1:])
			for i, vip := range bothVIPs {
				for n := range 5 {
					for _, network := range []string{"tcp", "udp"} {
						if _, err := lab.Namespace("gateway").Exec(t.Context(), "ip", "neigh", "flush", "dev", "veth1"); err != nil {
							t.Fatal(err)
						}
						c := dialFrom(t, lab.Namespace("client1"), network, []string{"10.1.1.2:0", "[2001:db8:1:1::2]:0"}[i], vip)
						ask(t, c, fmt.Sprint(network, " by the stack ", n))
					}
				}
			}
		})
	}
}

// TestRootZonDefectExtensionHeaders: IPv6 extension headers of several lengths
// before the transport header.
func TestRootZonDefectExtensionHeaders(t *testing.T) {
	t.Parallel()
	extensions := [][]packet.Extension{
		{{Type: 60}},
		{{Type: 60, Units: 1}},
		{{Type: 0}, {Type: 60, Units: 2}},
		{{Type: 0}, {Type: 60}, {Type: 43}, {Type: 60, Units: 3}},
	}
	v6Frames(t, "ebext", func(p *packet.Build, i int) func(ip []byte) {
		p.Extensions = extensions[i%len(extensions)]
		return nil
	})
}

// TestRootZonDefectFlowLabel: a flow whose label changes is the same flow.
func TestRootZonDefectFlowLabel(t *testing.T) {
	t.Parallel()
	v6Frames(t, "eblabel", func(p *packet.Build, i int) func(ip []byte) {
		return func(ip []byte) { ip[1], ip[2], ip[3] = ip[1]&0xf0|byte(i&15), byte(i*7), byte(i*31) }
	})
}

// v6Frames sends 16 changed packets of one flow; all arrive, as one flow.
func v6Frames(t *testing.T, name string, change func(p *packet.Build, i int) func(ip []byte)) {
	for _, hook := range hooks {
		t.Run(hook.String(), func(t *testing.T) {
			t.Parallel()
			lab := netlabtest.Up(t, twoClients(name+hook.String(), true))
			b := start(t, lab.Namespace("gateway"), Config{Interfaces: threeVeths, Hook: hook},
				"services:\n- name: echo\n  mode: nat\n"+vips[1:]+oneBackend[1:])
			client, backend := openWire(t, lab.Namespace("client1"), "eth0"), openWire(t, lab.Namespace("zone1"), "eth0")
			_, mac, err := lab.Namespace("gateway").Interface("veth1")
			if err != nil {
				t.Fatal(err)
			}
			from, to := netip.MustParseAddrPort("[2001:db8:1:1::2]:4000"), netip.MustParseAddrPort("[2001:db8::2:2]:8080")
			for i := range 16 {
				text := fmt.Sprint("packet ", i)
				p := packet.Build{Src: from, Dst: netip.MustParseAddrPort("[2001:db8::1]:80"), Proto: flow.ProtoUDP, Payload: []byte(text)}
				edit := change(&p, i)
				ip := p.Append(nil)
				if edit != nil {
					edit(ip)
				}
				client.send(p.AppendFrame(nil, mac, client.mac, ip))
				got, _ := backend.receive(text, func(p *packet.Packet) bool {
					return p.Key == flow.NewKey(from, to, flow.ProtoUDP) && string(p.PayloadBytes()) == text
				})
				if !got.Verify() || len(got.Data) != len(ip) {
					t.Errorf("%s: %d bytes, sent %d; checksum right: %v", text, len(got.Data), len(ip), got.Verify())
				}
			}
			for target, c := range b.d.Counters().Backends {
				if c.Opened != 1 {
					t.Errorf("%v: %d flows opened, want 1", target, c.Opened)
				}
			}
		})
	}
}
