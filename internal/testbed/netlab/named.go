package netlab

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Addresses that the named topologies share.
const (
	vip4 = "10.0.0.1"
	vip6 = "2001:db8::1"
)

// named are the topologies that people bring up by name, with what each is for.
func named() []struct {
	name, about string
	build       func() Topology
} {
	return []struct {
		name, about string
		build       func() Topology
	}{
		{"dsr", "client zone0, gateway, backend zone1 with the VIP on its loopback", DSR},
		{"nat", "client zone0, gateway that owns the VIP, backends zone1 and zone2 that route through it", NAT},
		{"cluster", "4 clients, a router that spreads over 2 balancers, 8 backends on one segment", Cluster},
		{"chain", "client, router, balancer, router with a narrow link, backend: tunnels and path MTU", Chain},
		{"nfqueue", "client, balancer that routes by fwmark, server with the VIP on its loopback", NFQueue},
		{"nfqueue-dsr", "the same with a way back past the balancer", NFQueueDSR},
	}
}

// Names lists the topologies that [Named] knows, each followed by a tab and what it is for.
func Names() []string {
	var names []string
	for _, t := range named() {
		names = append(names, t.name+"\t"+t.about)
	}
	return names
}

// Named returns a topology by its name.
func Named(name string) (Topology, error) {
	var known []string
	for _, t := range named() {
		if t.name == name {
			return t.build(), nil
		}
		known = append(known, t.name)
	}
	return Topology{}, fmt.Errorf("no topology %q; there are %s", name, strings.Join(known, ", "))
}

// DSR is the smallest network for direct server return. The VIP is the gateway's address toward the client and is on
// the loopback of the backend, whose replies pass the gateway with the VIP as their source.
//
//	zone0 veth1 ──── veth0 gateway veth2 ──── veth3 zone1
//	10.0.0.2      VIP 10.0.0.1    10.2.0.1    10.2.0.2, VIP on lo
//	2001:db8::2   2001:db8::1  2001:db8::2:1  2001:db8::2:2
func DSR() Topology {
	backend := withDefaults("zone1", "10.2.0.1", "2001:db8::2:1")
	hostVIP(&backend)
	return Topology{
		Name: "dsr",
		Namespaces: []Namespace{
			withDefaults("zone0", vip4, vip6),
			{Name: "gateway", Forward: true, Sysctls: acceptOwnSource("veth2")},
			backend,
		},
		Links: []Link{
			Cable("zone0 veth1 10.0.0.2/24 2001:db8::2/112", "gateway veth0 "+vip4+"/24 "+vip6+"/112"),
			Cable("gateway veth2 10.2.0.1/24 2001:db8::2:1/112", "zone1 veth3 10.2.0.2/24 2001:db8::2:2/112"),
		},
	}
}

// NAT has two backends that reach the client only through the gateway.
//
//	zone0 veth1 ──── veth0 gateway veth2 ──── eth0 zone1 10.2.0.2, 2001:db8::2:2
//	10.0.0.2      VIP 10.0.0.1     veth3 ──── eth0 zone2 10.3.0.2, 2001:db8::3:2
func NAT() Topology {
	return Topology{
		Name: "nat",
		Namespaces: []Namespace{
			withDefaults("zone0", vip4, vip6),
			{Name: "gateway", Forward: true},
			withDefaults("zone1", "10.2.0.1", "2001:db8::2:1"),
			withDefaults("zone2", "10.3.0.1", "2001:db8::3:1"),
		},
		Links: []Link{
			Cable("zone0 veth1 10.0.0.2/24 2001:db8::2/112", "gateway veth0 "+vip4+"/24 "+vip6+"/112"),
			Cable("gateway veth2 10.2.0.1/24 2001:db8::2:1/112", "zone1 eth0 10.2.0.2/24 2001:db8::2:2/112"),
			Cable("gateway veth3 10.3.0.1/24 2001:db8::3:1/112", "zone2 eth0 10.3.0.2/24 2001:db8::3:2/112"),
		},
	}
}

// Cluster is a tier of balancers. The router spreads flows toward the VIP (10.0.0.1, 2001:db8::1) over both; balancers,
// backends and the router's inner leg share one segment, so every mode works and replies may bypass the balancers.
//
//	client1..4 ──── router ──── segment (bridge) ──┬── lb1, lb2              10.2.0.11, .12   2001:db8::2:b, :c
//	10.1.N.2        10.1.N.1, 10.2.0.1             └── backend1..8, VIP on lo  10.2.0.101..108  2001:db8::2:65..
func Cluster() Topology {
	const clients, balancers, backends = 4, 2, 8
	router := Namespace{
		Name: "router", Forward: true,
		Sysctls: []Sysctl{{"net.ipv4.fib_multipath_hash_policy", "1"}, {"net.ipv6.fib_multipath_hash_policy", "1"}},
	}
	segment := Namespace{Name: "segment", Bridges: []Bridge{{Name: "br0"}}}
	t := Topology{Name: "cluster"}
	attach := func(ns Namespace, host int) {
		t.Namespaces = append(t.Namespaces, ns)
		port := endOf("segment to-" + ns.Name)
		port.Bridge = "br0"
		inner := endOf(fmt.Sprintf("%[1]s eth0 10.2.0.%[2]d/24 2001:db8::2:%[2]x/112", ns.Name, host))
		t.Links = append(t.Links, Link{A: inner, B: port})
	}
	for i := 1; i <= clients; i++ {
		name, near4, near6 := fmt.Sprintf("client%d", i), fmt.Sprintf("10.1.%d.1", i), fmt.Sprintf("2001:db8::1:%d:1", i)
		t.Namespaces = append(t.Namespaces, withDefaults(name, near4, near6))
		t.Links = append(t.Links, Cable(fmt.Sprintf("%[1]s eth0 10.1.%[2]d.2/24 2001:db8::1:%[2]d:2/112", name, i), fmt.Sprintf("router to-%s %s/24 %s/112", name, near4, near6)))
	}
	var gateways4, gateways6 []netip.Addr
	for i := 1; i <= balancers; i++ {
		ns := withDefaults(fmt.Sprintf("lb%d", i), "10.2.0.1", "2001:db8::2:1")
		ns.Forward = true
		attach(ns, 10+i)
		gateways4 = append(gateways4, netip.MustParseAddr(fmt.Sprintf("10.2.0.%d", 10+i)))
		gateways6 = append(gateways6, netip.MustParseAddr(fmt.Sprintf("2001:db8::2:%x", 10+i)))
	}
	for i := 1; i <= backends; i++ {
		ns := withDefaults(fmt.Sprintf("backend%d", i), "10.2.0.1", "2001:db8::2:1")
		hostVIP(&ns)
		attach(ns, 100+i)
	}
	router.Routes = []Route{
		{To: netip.MustParsePrefix(vip4 + "/32"), Spread: gateways4},
		{To: netip.MustParsePrefix(vip6 + "/128"), Spread: gateways6},
	}
	t.Namespaces = slices.Insert(t.Namespaces, 0, segment)
	attach(router, 1)
	return t
}

// Chain puts routers around the balancer, the last link too narrow for a full packet.
//
//	client ──── r1 ──── lb ──── r2 ── MTU 1400 ── backend, VIP on lo
//	10.1.0.2          10.2.0.2              10.4.0.2
func Chain() Topology {
	backend := withDefaults("backend", "10.4.0.1", "2001:db8:4::1")
	hostVIP(&backend)
	r1 := withDefaults("r1", "10.2.0.2", "2001:db8:2::2")
	lb := withDefaults("lb", "10.3.0.2", "2001:db8:3::2")
	lb.Routes = append(lb.Routes, Via("10.1.0.0/24", "10.2.0.1"), Via("2001:db8:1::/64", "2001:db8:2::1"))
	r2 := withDefaults("r2", "10.3.0.1", "2001:db8:3::1")
	r1.Forward, lb.Forward, r2.Forward = true, true, true
	return Topology{
		Name:       "chain",
		Namespaces: []Namespace{withDefaults("client", "10.1.0.1", "2001:db8:1::1"), r1, lb, r2, backend},
		Links: []Link{
			Cable("client eth0 10.1.0.2/24 2001:db8:1::2/64", "r1 left 10.1.0.1/24 2001:db8:1::1/64"),
			Cable("r1 right 10.2.0.1/24 2001:db8:2::1/64", "lb left 10.2.0.2/24 2001:db8:2::2/64"),
			Cable("lb right 10.3.0.1/24 2001:db8:3::1/64", "r2 left 10.3.0.2/24 2001:db8:3::2/64"),
			{A: endOf("r2 right 10.4.0.1/24 2001:db8:4::1/64"), B: endOf("backend eth0 10.4.0.2/24 2001:db8:4::2/64"), MTU: 1400},
		},
	}
}

// withDefaults is a namespace with default routes of both families.
func withDefaults(name, gateway4, gateway6 string) Namespace {
	return Namespace{Name: name, Routes: Default(gateway4, gateway6)}
}

// hostVIP gives a DSR backend the VIP on its loopback, and keeps it from answering ARP for it.
func hostVIP(ns *Namespace) {
	ns.Loopback = Prefixes(vip4+"/32", vip6+"/128")
	ns.Sysctls = append(ns.Sysctls, Sysctl{"net.ipv4.conf.all.arp_ignore", "1"}, Sysctl{"net.ipv4.conf.all.arp_announce", "2"})
}

// acceptOwnSource lets packets enter dev whose source is one of the namespace's own addresses: replies of a DSR
// backend that pass the gateway which owns the VIP.
func acceptOwnSource(dev string) []Sysctl {
	return []Sysctl{
		{"net.ipv4.conf.all.rp_filter", "0"},
		{"net.ipv4.conf." + dev + ".rp_filter", "0"},
		{"net.ipv4.conf." + dev + ".accept_local", "1"},
	}
}
