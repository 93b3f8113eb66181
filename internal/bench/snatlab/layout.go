package snatlab

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/weir-lb/weir/internal/snat"
	"github.com/weir-lb/weir/internal/testbed/netlab"
)

// Names of namespaces.
const (
	cloud      = "cloud"
	serverNode = "server-node"
	serverHost = "server"
)

const (
	port     = 10000 // of servers and VIPs
	firstNAT = 1024  // lowest port of every translator
	mostOf   = 16    // nodes, and destinations
	mostPods = 250   // source addresses of a node
)

// layout is a scenario as it is built: addresses and where they are translated.
type layout struct {
	scenario snat.Scenario
	plan     snat.Plan
	kinds    map[snat.Kind]snat.StageUse
	specs    map[snat.Kind]snat.StageSpec
	weir     bool      // Weir has the place of the last one
	inCloud  snat.Kind // the cloud's translator of sources; empty: none
	last     snat.Kind // the last translator; empty: none
}

// lay checks that a scenario can be built. The error says why not.
func lay(s snat.Scenario, weir bool) (*layout, error) {
	l := &layout{scenario: s, plan: s.Plan(), kinds: map[snat.Kind]snat.StageUse{}, specs: map[snat.Kind]snat.StageSpec{}, weir: weir}
	if s.Protocol == snat.UDP {
		return nil, fmt.Errorf("the testbed offers tcp connections, not udp")
	}
	for _, p := range s.Path {
		if _, twice := l.specs[p.Kind]; twice && translates(p.Kind) {
			return nil, fmt.Errorf("two stages %s", p.Kind)
		}
		l.specs[p.Kind] = p
	}
	for _, u := range l.plan.Stages {
		kind := snat.Kind(u.Kind)
		if _, known := l.kinds[kind]; !known {
			l.kinds[kind] = u // of azure-nat the first: its limit towards one destination
		}
		if u.Pressure > 1 && !translates(kind) && kind != snat.Ephemeral {
			return nil, fmt.Errorf("the testbed does not build what bounds it, %s", u.Name)
		}
	}
	inCloud := 0
	for _, kind := range []snat.Kind{snat.Masquerade, snat.AzureLB, snat.GCPNAT, snat.AzureNAT, snat.AWSNAT, snat.MasqueradeLB} {
		if !l.has(kind) {
			continue
		}
		l.last = kind
		if kind != snat.Masquerade && kind != snat.MasqueradeLB {
			l.inCloud = kind
			inCloud++
		}
	}
	pods := (s.Replicas + s.Nodes - 1) / s.Nodes * l.podAddresses()
	switch {
	case inCloud > 1:
		return nil, fmt.Errorf("%d translators of the cloud; the testbed has one place for them", inCloud)
	case l.specs[snat.GCPNAT].MaxPorts > 0 || l.specs[snat.GCPNAT].EndpointIndependent:
		return nil, errors.New("the kernel's NAT neither grows allocations nor maps endpoint-independently")
	case s.Servers > 1 || s.ServerNodes > 1:
		return nil, errors.New("the testbed has one server, and one node for it")
	case s.Nodes > mostOf || s.Destinations > mostOf || pods > mostPods:
		return nil, fmt.Errorf("more than %d nodes, %d destinations or %d source addresses of a node", mostOf, mostOf, mostPods)
	case weir && l.last == "":
		return nil, errors.New("no translator of sources in the path")
	}
	// A full table looks like random loss.
	if limit := conntrackMax(); l.plan.Demand*6/5 > limit {
		return nil, fmt.Errorf("%s connections offered; conntrack tables end at %s, and a fifth should stay free", snat.Group(l.plan.Demand), snat.Group(limit))
	}
	return l, nil
}

// translates reports whether a stage is a translator that the testbed builds.
func translates(k snat.Kind) bool {
	switch k {
	case snat.Masquerade, snat.AzureLB, snat.GCPNAT, snat.AzureNAT, snat.AWSNAT, snat.MasqueradeLB:
		return true
	}
	return false
}

// conntrackMax is the limit of every namespace's table; until conntrack is loaded, what it usually comes to.
func conntrackMax() int64 {
	const usual = 262_144
	text, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_max")
	if err != nil {
		return usual
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return usual
	}
	return n
}

func (l *layout) has(k snat.Kind) bool { _, ok := l.specs[k]; return ok }

// weirAt is the namespace that Weir runs in; empty: in none.
func (l *layout) weirAt() string {
	switch {
	case !l.weir:
		return ""
	case l.last == snat.MasqueradeLB:
		return serverNode
	}
	return cloud
}

// kernel reports whether the kernel does a stage.
func (l *layout) kernel(k snat.Kind) bool {
	if !l.has(k) || l.weir && k == l.last {
		return false
	}
	return k != snat.DNATLB || l.weirAt() != cloud // there Weir balances too
}

func addr(a, b, c int) netip.Addr { return netip.AddrFrom4([4]byte{10, byte(a), byte(b), byte(c)}) }

func uplink(node int) netip.Addr        { return addr(70, node, 2) }
func cloudEnd(node int) netip.Addr      { return addr(70, node, 1) }
func podNet(node int) netip.Prefix      { return netip.PrefixFrom(addr(71, node, 0), 24) }
func natAddress(i int) netip.Addr       { return addr(72, 0, 1+i) }
func vip(node, dest int) netip.Addr     { return addr(73, node, 1+dest) }
func serverNodeAddress() netip.Addr     { return addr(74, 0, 2) }
func serverGateway() netip.Addr         { return addr(75, 0, 1) }
func serverAddress(dest int) netip.Addr { return addr(75, 0, 2+dest) }

func (l *layout) podAddresses() int {
	if !l.has(snat.Ephemeral) {
		return 1
	}
	return l.specs[snat.Ephemeral].IPs
}

// pods are the source addresses of a node's replica, counted on that node.
func (l *layout) pods(node, replica int) []netip.Addr {
	n := l.podAddresses()
	all := make([]netip.Addr, n)
	for i := range all {
		all[i] = addr(71, node, 1+replica*n+i)
	}
	return all
}

// replicas is how many a node has: they are spread evenly.
func (l *layout) replicas(node int) int {
	n := l.scenario.Replicas / l.scenario.Nodes
	if node < l.scenario.Replicas%l.scenario.Nodes {
		n++
	}
	return n
}

// servers are the addresses that the server listens on, one for each destination.
func (l *layout) servers() []netip.AddrPort {
	all := make([]netip.AddrPort, l.scenario.Destinations)
	for i := range all {
		all[i] = netip.AddrPortFrom(serverAddress(i), port)
	}
	return all
}

// targets are what the replicas of a node dial.
func (l *layout) targets(node int) []netip.AddrPort {
	all := l.servers()
	for i := range all {
		switch {
		case l.weirAt() == cloud:
			all[i] = netip.AddrPortFrom(vip(l.vipsOf(node), i), port)
		case l.has(snat.DNATLB):
			all[i] = netip.AddrPortFrom(vip(0, i), port)
		case l.has(snat.MasqueradeLB):
			all[i] = nodePort(i)
		}
	}
	return all
}

// nodePort is where the server's node takes connections for a destination.
func nodePort(dest int) netip.AddrPort {
	return netip.AddrPortFrom(serverNodeAddress(), uint16(port+dest))
}

// pool is what a translator has: addresses and a range of ports.
type pool struct {
	addresses   []netip.Addr
	first, last int
}

// poolOf is what a translator gives to a node; no addresses: nothing is left for it.
func (l *layout) poolOf(k snat.Kind, node int) pool {
	u, spec := l.kinds[k], l.specs[k]
	ports := int(u.PerKey)
	switch k {
	case snat.AzureLB, snat.GCPNAT:
		if ports == 0 || int64(node) >= l.plan.NodesPossible {
			return pool{}
		}
		blocks := (1<<16 - firstNAT) / ports // of an address
		first := firstNAT + node%blocks*ports
		return pool{[]netip.Addr{natAddress(node / blocks)}, first, first + ports - 1}
	case snat.AzureNAT, snat.AWSNAT:
		p := pool{first: firstNAT, last: firstNAT + ports - 1}
		for i := range spec.IPs {
			p.addresses = append(p.addresses, natAddress(i))
		}
		return p
	case snat.MasqueradeLB:
		return pool{[]netip.Addr{serverGateway()}, firstNAT, firstNAT + ports - 1}
	}
	return pool{[]netip.Addr{natAddress(node)}, firstNAT, firstNAT + ports - 1}
}

// vipsOf is whose VIPs a node dials at Weir in the cloud: its own where it has ports of its own.
func (l *layout) vipsOf(node int) int {
	if l.last == snat.AzureNAT || l.last == snat.AWSNAT {
		return 0
	}
	return node
}

// topology is the network, without translators.
func (l *layout) topology() netlab.Topology {
	route := func(to netip.Prefix, via netip.Addr) netlab.Route { return netlab.Route{To: to, Via: via} }
	everywhere := netip.MustParsePrefix("0.0.0.0/0")
	servers := ""
	for i := range l.scenario.Destinations {
		servers += fmt.Sprintf(" %v/24", serverAddress(i))
	}
	middle := netlab.Namespace{Name: cloud, Forward: true}
	t := netlab.Topology{Name: "snatlab"}
	for i := range l.scenario.Nodes {
		name := fmt.Sprint("node", i)
		node := netlab.Namespace{
			Name: name, Routes: []netlab.Route{route(everywhere, cloudEnd(i))},
			Sysctls: []netlab.Sysctl{{Key: "net.ipv4.ip_local_port_range", Value: l.localPorts()}},
		}
		for r := range l.replicas(i) {
			for _, a := range l.pods(i, r) {
				node.Loopback = append(node.Loopback, netip.PrefixFrom(a, 32))
			}
		}
		middle.Routes = append(middle.Routes, route(podNet(i), uplink(i)))
		t.Namespaces = append(t.Namespaces, node)
		t.Links = append(t.Links, netlab.Cable(fmt.Sprintf("%s eth0 %v/24", name, uplink(i)), fmt.Sprintf("%s %s %v/24", cloud, name, cloudEnd(i))))
	}
	down := netlab.Cable(fmt.Sprintf("%s server %v/24", cloud, serverGateway()), serverHost+" eth0"+servers)
	if l.has(snat.MasqueradeLB) {
		down.A.Namespace, down.A.Name = serverNode, "eth1"
		middle.Routes = append(middle.Routes, route(netip.PrefixFrom(addr(75, 0, 0), 24), serverNodeAddress()))
		t.Namespaces = append(t.Namespaces, netlab.Namespace{Name: serverNode, Forward: true, Routes: []netlab.Route{route(everywhere, addr(74, 0, 1))}})
		t.Links = append(t.Links, netlab.Cable(fmt.Sprintf("%s server %v/24", cloud, addr(74, 0, 1)), fmt.Sprintf("%s eth0 %v/24", serverNode, serverNodeAddress())))
	}
	t.Links = append(t.Links, down)
	t.Namespaces = append(t.Namespaces, middle, netlab.Namespace{
		Name: serverHost, Routes: []netlab.Route{route(everywhere, serverGateway())},
		Sysctls: []netlab.Sysctl{{Key: "net.core.somaxconn", Value: "65535"}, {Key: "net.ipv4.tcp_max_syn_backlog", Value: "65535"}},
	})
	return t
}

// localPorts is the range of source ports of a node's sockets: the default one, or as many as the scenario says.
func (l *layout) localPorts() string {
	low, n := 32768, 60999-32768+1
	if l.has(snat.Ephemeral) {
		n = l.specs[snat.Ephemeral].Ports
	}
	if low+n > 1<<16 {
		low = 1<<16 - n
	}
	return fmt.Sprintf("%d %d", low, low+n-1)
}
