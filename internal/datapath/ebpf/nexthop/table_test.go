package nexthop

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// A neighbour that does not answer is tried again every two seconds; the log names it once.
func TestFailedNextHopIsLoggedOnce(t *testing.T) {
	var w watch
	var logged []State
	for _, now := range []State{Unknown, Failed, Unknown, Failed, Unknown, Ready, Unknown, Ready, Failed} {
		if w.logs(now) {
			logged = append(logged, now)
		}
	}
	if want := []State{Failed, Ready, Unknown, Ready, Failed}; !slices.Equal(logged, want) {
		t.Errorf("logged %v, want %v", logged, want)
	}
}

// Events that come faster than they are taken are lost; what they said is not.
func TestRootLostEvents(t *testing.T) {
	lab := netlabtest.Up(t, netlab.Topology{
		Name:       "hoptest",
		Namespaces: []netlab.Namespace{{Name: "lb"}, {Name: "out"}},
		Links:      []netlab.Link{netlab.Cable("lb lb0 10.9.0.1/24", "out out0")},
	})
	host := lab.Namespace("lb")
	index, _, err := host.Interface("lb0")
	if err != nil {
		t.Fatal(err)
	}
	var table *Table
	if err := host.Do(func() (err error) { table, err = Open(slog.New(slog.DiscardHandler)); return err }); err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	table.buffer = 1 << 12
	var last Hop
	listening := false
	hops := make(chan Hop, 64)
	backend := netip.MustParseAddr("10.9.0.2")
	table.Watch(map[netip.Addr]func(Hop){backend: func(h Hop) { hops <- h }})
	changes := make(chan struct{}, 1<<16)
	table.OnChange(func() { changes <- struct{}{} })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- table.Run(ctx) }()
	await := func(what string, seen func() bool) {
		t.Helper()
		for !seen() {
			select {
			case err := <-ended:
				t.Fatalf("waiting for %s: Run ended: %v", what, err)
			case <-t.Context().Done():
				t.Fatal("waiting for ", what)
			case h := <-hops:
				last = h
			case <-changes:
				listening = true
			}
		}
	}
	await("events", func() bool { return listening })

	// No one takes events while a flood of them comes.
	table.mu.Lock()
	flood := host.Do(func() error {
		for i := range 2000 {
			r := &netlink.Route{Dst: &net.IPNet{IP: net.IPv4(10, 128, byte(i>>8), byte(i)), Mask: net.CIDRMask(32, 32)}, Type: unix.RTN_BLACKHOLE}
			if err := netlink.RouteAdd(r); err != nil {
				return err
			}
		}
		return nil
	})
	table.mu.Unlock()
	if flood != nil {
		t.Fatal(flood)
	}
	if err := host.Do(func() error {
		return netlink.NeighSet(&netlink.Neigh{
			LinkIndex: index, State: netlink.NUD_PERMANENT, IP: net.IPv4(10, 9, 0, 2), HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 2},
		})
	}); err != nil {
		t.Fatal(err)
	}
	await("the neighbour", func() bool { return last.State == Ready })
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// A neighbour comes out of use when nothing that is watched goes there any more.
func TestRootUses(t *testing.T) {
	lab := netlabtest.Up(t, netlab.Topology{
		Name:       "hopuses",
		Namespaces: []netlab.Namespace{{Name: "lb"}, {Name: "out"}},
		Links:      []netlab.Link{netlab.Cable("lb lb0 10.9.0.1/24", "out out0 10.9.0.2/24")},
	})
	host := lab.Namespace("lb")
	index, _, err := host.Interface("lb0")
	if err != nil {
		t.Fatal(err)
	}
	var table *Table
	if err := host.Do(func() (err error) { table, err = Open(slog.New(slog.DiscardHandler)); return err }); err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	watch := func(addresses ...string) {
		all := map[netip.Addr]func(Hop){}
		for _, a := range addresses {
			all[netip.MustParseAddr(a)] = func(Hop) {}
		}
		table.Watch(all)
	}
	check := func(freed, a, b bool) {
		t.Helper()
		if got := table.Freed(); got != freed {
			t.Errorf("freed: %t", got)
		}
		if got := [2]bool{table.Uses(index, netip.MustParseAddr("10.9.0.2")), table.Uses(index, netip.MustParseAddr("10.9.0.3"))}; got != [2]bool{a, b} {
			t.Errorf("used: %v", got)
		}
	}
	watch("10.9.0.2", "10.9.0.3", "10.99.0.1") // the last one has no route
	check(true, true, true)                    // there may be neighbours from before
	watch("10.9.0.2", "10.9.0.3")
	check(false, true, true)
	watch("10.9.0.3")
	check(true, false, true)
}
