package lb

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// announcing is a spec that announces one IPv4 VIP to one router.
func announcing() Spec {
	return Spec{
		Announce: &AnnounceSpec{BGP: &BGPSpec{
			AS: 64512, RouterID: netip.MustParseAddr("10.0.0.1"), Neighbours: []NeighbourSpec{{Address: netip.MustParseAddr("10.0.0.254"), AS: 64513}},
		}},
		Services: []ServiceSpec{{
			Name: "web", VIPs: []VIPSpec{{Address: AddressPrefix{netip.MustParsePrefix("192.0.2.1/32")}, Protocol: Protocol(TCP), Port: PortRange{80, 80}}},
			Backends: []BackendSpec{{Name: "a", Address: netip.MustParseAddr("10.0.0.11")}},
		}},
	}
}

// Each thing that cannot be meant is refused with its key.
func TestAnnounceRefusals(t *testing.T) {
	six := netip.MustParseAddr("2001:db8::9")
	for want, change := range map[string]func(*AnnounceSpec, *BGPSpec, *NeighbourSpec){
		"announce":             func(a *AnnounceSpec, _ *BGPSpec, _ *NeighbourSpec) { a.BGP = nil },
		"announce.min_healthy": func(a *AnnounceSpec, _ *BGPSpec, _ *NeighbourSpec) { a.MinHealthy = ptr(-1) },
		"announce.services[0]": func(a *AnnounceSpec, _ *BGPSpec, _ *NeighbourSpec) { a.Services = []string{"wep"} },
		"announce.aggregates[0]": func(a *AnnounceSpec, _ *BGPSpec, _ *NeighbourSpec) {
			a.Aggregates = []AddressPrefix{{netip.MustParsePrefix("198.51.100.0/24")}}
		},
		"announce.bgp.as":        func(_ *AnnounceSpec, b *BGPSpec, _ *NeighbourSpec) { b.AS = 23456 },
		"announce.bgp.router_id": func(_ *AnnounceSpec, b *BGPSpec, _ *NeighbourSpec) { b.RouterID = six },
		"announce.bgp.router_id ": func(_ *AnnounceSpec, b *BGPSpec, n *NeighbourSpec) { // and no IPv4 neighbour
			b.RouterID, b.NextHop4, n.Address = netip.Addr{}, netip.MustParseAddr("10.0.0.1"), six
		},
		"announce.bgp.next_hop4":                   func(_ *AnnounceSpec, b *BGPSpec, _ *NeighbourSpec) { b.NextHop4 = six },
		"announce.bgp.next_hop6":                   func(_ *AnnounceSpec, b *BGPSpec, _ *NeighbourSpec) { b.NextHop6 = netip.MustParseAddr("fe80::1") },
		"announce.bgp.prepends":                    func(_ *AnnounceSpec, b *BGPSpec, _ *NeighbourSpec) { b.Prepends = 17 },
		"announce.bgp.prepends ":                   func(_ *AnnounceSpec, b *BGPSpec, n *NeighbourSpec) { b.Prepends, n.AS = 1, 64512 }, // a loop
		"announce.bgp.graceful_shutdown":           func(_ *AnnounceSpec, b *BGPSpec, _ *NeighbourSpec) { b.GracefulShutdown = time.Hour },
		"announce.bgp.report_after":                func(_ *AnnounceSpec, b *BGPSpec, _ *NeighbourSpec) { b.ReportAfter = time.Millisecond },
		"announce.bgp.neighbours":                  func(_ *AnnounceSpec, b *BGPSpec, _ *NeighbourSpec) { b.Neighbours = nil },
		"announce.bgp.neighbours[1].address":       func(_ *AnnounceSpec, b *BGPSpec, n *NeighbourSpec) { b.Neighbours = append(b.Neighbours, *n) },
		"announce.bgp.neighbours[0].address":       func(_ *AnnounceSpec, _ *BGPSpec, n *NeighbourSpec) { n.Address = six }, // no next hop for IPv4
		"announce.bgp.neighbours[0].as":            func(_ *AnnounceSpec, _ *BGPSpec, n *NeighbourSpec) { n.AS = 0 },
		"announce.bgp.neighbours[0].port":          func(_ *AnnounceSpec, _ *BGPSpec, n *NeighbourSpec) { n.Port = 65536 },
		"announce.bgp.neighbours[0].local_address": func(_ *AnnounceSpec, _ *BGPSpec, n *NeighbourSpec) { n.LocalAddress = six },
		"announce.bgp.neighbours[0].password_env":  func(_ *AnnounceSpec, _ *BGPSpec, n *NeighbourSpec) { n.PasswordEnv, n.PasswordFile = "A", "b" },
		"announce.bgp.neighbours[0].hold_time":     func(_ *AnnounceSpec, _ *BGPSpec, n *NeighbourSpec) { n.HoldTime = time.Second },
		"announce.bgp.neighbours[0].ttl_security":  func(_ *AnnounceSpec, _ *BGPSpec, n *NeighbourSpec) { n.TTLSecurity, n.Multihop = true, 2 },
		"announce.bgp.neighbours[0].multihop":      func(_ *AnnounceSpec, _ *BGPSpec, n *NeighbourSpec) { n.AS, n.Multihop = 64512, 2 },
		"announce.bgp.neighbours[0].bfd":           func(_ *AnnounceSpec, _ *BGPSpec, n *NeighbourSpec) { n.BFD, n.Multihop = &BFDSpec{}, 2 },
		"announce.bgp.neighbours[0].bfd.interval":  func(_ *AnnounceSpec, _ *BGPSpec, n *NeighbourSpec) { n.BFD = &BFDSpec{Interval: time.Millisecond} },
		"announce.bgp.neighbours[0].prefix_limit":  func(_ *AnnounceSpec, _ *BGPSpec, n *NeighbourSpec) { n.PrefixLimit = -1 },
	} {
		spec := announcing()
		change(spec.Announce, spec.Announce.BGP, &spec.Announce.BGP.Neighbours[0])
		_, err := Compile(spec, nil, AllCaps())
		wrong := (*Error)(nil)
		if !errors.As(err, &wrong) || wrong.Path != strings.TrimSpace(want) || wrong.Remedy == "" {
			t.Errorf("%s: %v", want, err)
		}
	}
	snapshot, err := Compile(announcing(), nil, AllCaps())
	if err != nil {
		t.Fatal(err)
	}
	if n := snapshot.Announce.BGP.Neighbours[0]; n.HoldTime != 9*time.Second || n.Port != 179 || n.PrefixLimit != 10000 || n.BFD.Multiplier != 0 || snapshot.Announce.MinHealthy != 1 {
		t.Errorf("%+v", n)
	}
}

// A community is read as it is written.
func TestCommunities(t *testing.T) {
	for _, text := range []string{"64512:100", "4200000000:1:2", "no-export", "graceful-shutdown", "blackhole"} {
		var c Community
		if err := c.UnmarshalText([]byte(text)); err != nil || c.String() != text {
			t.Errorf("%s is read as %s, %v", text, c, err)
		}
	}
	for _, text := range []string{"", "1", "65536:1", "1:2:3:4", "a:b", "-1:1"} {
		var c Community
		if err := c.UnmarshalText([]byte(text)); err == nil || !strings.Contains(err.Error(), "64512:100") {
			t.Errorf("%s is read as %s, %v", text, c, err)
		}
	}
}
