package ebpf

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/ebpftest"
	"github.com/weir-lb/weir/internal/steering/packet"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// manyClients is more than client_hops has elements.
const manyClients = 5000

func neighbourOf(client int) (netip.Addr, [6]byte) {
	return netip.AddrFrom4([4]byte{10, 254, byte(client / 250), byte(1 + client%250)}), [6]byte{2, 0, 7, 0, byte(client >> 8), byte(client)}
}

// TestRootNextHopsToNeighbours: the replies of more clients on the balancer's own
// wire than client_hops has elements reach the right ones, again and again, for an element is
// given to another when no program remembers it any more.
func TestRootNextHopsToNeighbours(t *testing.T) {
	t.Parallel()
	for _, hook := range hooks {
		t.Run(hook.String(), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			defer w.close()
			ebpftest.Do(t, w.host, func() error {
				w.there = true
				return waysToNeighbours(t, w, hook)
			})
		})
	}
}

func waysToNeighbours(t *testing.T, w *world, hook attach.Hook) error {
	wire, err := netlink.LinkByName("lb0")
	if err != nil {
		return err
	}
	address, err := netlink.ParseAddr("10.254.255.254/16")
	if err != nil {
		return err
	}
	if err := netlink.AddrAdd(wire, address); err != nil {
		return err
	}
	for i := range manyClients {
		a, mac := neighbourOf(i)
		if err := netlink.NeighSet(&netlink.Neigh{LinkIndex: wire.Attrs().Index, State: netlink.NUD_PERMANENT, IP: a.AsSlice(), HardwareAddr: mac[:]}); err != nil {
			return fmt.Errorf("neighbour %s: %w", a, err)
		}
	}
	d := w.serving(t, hook, `
limits: {flows: 65536}
services:
- name: nat
  mode: nat
  vips: [{address: "192.0.2.2", protocol: udp, port: 80}]
  backends: [{name: a, address: "10.2.0.1"}]
`)
	reply := func(client int, now time.Duration) error {
		a, mac := neighbourOf(client)
		frame := frameOf(text(t, fmt.Sprintf("udp 10.2.0.1:80 > %s:5000", a)))
		for deadline := time.Now().Add(20 * time.Second); ; {
			_, out, _, err := w.run(d, frame, now)
			if err != nil {
				return err
			}
			if [6]byte(out) == mac {
				return nil
			}
			// The neighbours of all namespaces are in one table of the kernel. While it grows, for whichever of them, a
			// look-up may find nothing; the packet is the stack's then, and the next one finds its way.
			if [6]byte(out) != [6]byte(frame) || time.Now().After(deadline) {
				return fmt.Errorf("at %s the reply to %s went to %x, not %x", now, a, out[:6], mac)
			}
		}
	}
	for i := range manyClients {
		a, _ := neighbourOf(i)
		if _, _, _, err := w.run(d, frameOf(text(t, fmt.Sprintf("udp %s:5000 > 192.0.2.2:80", a))), 0); err != nil {
			return err
		}
	}
	now := time.Second
	for round := range 4 {
		for again := range 2 { // looked up, then remembered
			for i := range manyClients {
				if err := reply(i, now); err != nil {
					return fmt.Errorf("round %d, %d: %w", round, again, err)
				}
			}
		}
		remembered := 0
		for _, e := range d.tables.Entries {
			if e.Key.Proto != 0 && e.Hop != ^uint32(0) {
				remembered++
			}
		}
		if remembered < 2048 || remembered > 4096 {
			return fmt.Errorf("round %d: %d flows remember a next hop", round, remembered)
		}
		now += 5 * time.Second // at times the same stretch, at times the next one
	}
	// The first ones are silent; others get their places.
	now += 30 * time.Second
	for i := manyClients - 2000; i < manyClients; i++ {
		if err := reply(i, now); err != nil {
			return err
		}
	}
	// What a neighbour has for its address now holds at once, the routes' number said.
	a, _ := neighbourOf(manyClients - 1)
	if err := netlink.NeighSet(&netlink.Neigh{LinkIndex: wire.Attrs().Index, State: netlink.NUD_PERMANENT, IP: a.AsSlice(), HardwareAddr: []byte{2, 9, 9, 9, 9, 9}}); err != nil {
		return err
	}
	d.tables.Control.Routes++
	_, out, _, err := w.run(d, frameOf(text(t, fmt.Sprintf("udp 10.2.0.1:80 > %s:5000", a))), now)
	if err == nil && [6]byte(out) != [6]byte{2, 9, 9, 9, 9, 9} {
		err = fmt.Errorf("after a change the reply went to %x", out[:6])
	}
	return err
}

// serving is a data path with a spec in force.
func (w *world) serving(t *testing.T, hook attach.Hook, spec string) *Datapath {
	t.Helper()
	snapshot := small(compile(t, spec, Caps(hook)))
	d := w.open(t, hook, snapshot.Limits)
	if err := d.Apply(snapshot); err != nil {
		t.Fatal(err)
	}
	w.hops(d)
	return d
}

func text(t *testing.T, line string) []byte {
	t.Helper()
	d, err := packet.ParseText(line)
	if err != nil {
		t.Fatal(err)
	}
	return d.Packets[0]
}

// TestRootManyNextHopsToClients: the same where every element is taken, end to end.
// The VIPs are addresses of the machine, so its stack would not carry on.
func TestRootManyNextHopsToClients(t *testing.T) {
	t.Parallel()
	for _, hook := range hooks {
		t.Run(hook.String(), func(t *testing.T) {
			t.Parallel()
			lab := netlabtest.Up(t, twoClients("ebways"+hook.String(), true))
			serve(t, lab.Namespace("zone1"), ":8080")
			gateway := lab.Namespace("gateway")
			for _, vip := range []string{"10.0.0.1/32", "2001:db8::1/128"} {
				if out, err := gateway.Exec(t.Context(), "ip", "addr", "add", vip, "dev", "lo"); err != nil {
					t.Fatal(out, err)
				}
			}
			b := start(t, gateway, Config{Interfaces: threeVeths, Hook: hook},
				"services:\n- name: echo\n  mode: nat\n"+vips[1:]+oneBackend[1:])
			hops := b.d.tables.Maps[bpf.MapClientHops]
			stretch := uint32(b.d.now() >> b.d.clock.HopShift())
			for i := range hops.MaxEntries() {
				other := bpf.ClientHop{Out: bpf.Out{Dmac: [6]byte{2, 0, 0, 9, byte(i >> 8), byte(i)}, Ifindex: 1 << 20, Mtu: 1500}, Stamp: stretch + 1}
				if err := hops.Put(i, other); err != nil {
					t.Fatal(err)
				}
			}
			for i, vip := range bothVIPs {
				for _, network := range []string{"tcp", "udp"} {
					c := dialFrom(t, lab.Namespace("client1"), network, []string{"10.1.1.2:0", "[2001:db8:1:1::2]:0"}[i], vip)
					ask(t, c, fmt.Sprint(network, " to ", vip))
				}
			}
		})
	}
}
