package netlab

import (
	_ "embed" // for the configuration
	"fmt"
	"net/netip"
)

// Marks of the labs for fwmark balancing: each is a backend of the configuration, and a routing table of the balancer.
const firstMark, lastMark = 101, 104

// NFQueue is for balancing by fwmark. The client routes the VIP to the balancer, which knows no way there but by mark: table 101
// for mark 101 leads to 10.62.0.101, and so on. All four are addresses of one server, which has the VIP on its loopback and
// answers from it; replies pass the balancer's namespace as ordinary packets.
//
//	client eth0 ─────────────── left balancer right ─────── eth0 server
//	10.61.0.2, .101 to .108     10.61.0.1     10.62.0.1     10.62.0.2, .101 to .104    VIP 10.96.0.1 on lo
//	fd61::2, ::101 to ::108     fd61::1       fd62::1       fd62::2, ::101 to ::104    VIP fd96::1 on lo
func NFQueue() Topology {
	client := withDefaults("client", "10.61.0.1", "fd61::1")
	balancer := Namespace{Name: "balancer", Forward: true, Sysctls: looseSource("left", "right")}
	for mark := firstMark; mark <= lastMark; mark++ {
		for _, six := range []bool{false, true} {
			to, via := netip.MustParsePrefix("0.0.0.0/0"), fmt.Sprintf("10.62.0.%d", mark)
			if six {
				to, via = netip.MustParsePrefix("::/0"), fmt.Sprintf("fd62::%d", mark)
			}
			balancer.Rules = append(balancer.Rules, Rule{IPv6: six, Mark: uint32(mark), Table: mark})
			balancer.Routes = append(balancer.Routes, Route{To: to, Via: netip.MustParseAddr(via), Table: mark})
		}
	}
	server := withDefaults("server", "10.62.0.1", "fd62::1")
	server.Loopback = Prefixes("10.96.0.1/32", "fd96::1/128")
	left := endOf("client eth0 10.61.0.2/24 fd61::2/64")
	right := endOf("server eth0 10.62.0.2/24 fd62::2/64")
	for host := 101; host <= 108; host++ {
		left.Addresses = append(left.Addresses, Prefixes(fmt.Sprintf("10.61.0.%d/24", host), fmt.Sprintf("fd61::%d/64", host))...)
	}
	for mark := firstMark; mark <= lastMark; mark++ {
		right.Addresses = append(right.Addresses, Prefixes(fmt.Sprintf("10.62.0.%d/24", mark), fmt.Sprintf("fd62::%d/64", mark))...)
	}
	return Topology{
		Name:       "nfqueue",
		Namespaces: []Namespace{client, balancer, server},
		Links: []Link{
			{A: left, B: endOf("balancer left 10.61.0.1/24 fd61::1/64")},
			{A: endOf("balancer right 10.62.0.1/24 fd62::1/64"), B: right},
		},
	}
}

// NFQueueDSR is [NFQueue] with direct server return over a link of its own: requests take two hops, by the balancer, and
// replies one. The balancer sees one direction only.
//
//	client eth0 ──── left balancer right ──── eth0 server
//	       back ───────────────────────────── back          10.63.0.1 and .2, fd63::1 and ::2
func NFQueueDSR() Topology {
	t := NFQueue()
	t.Name = "nfqueue-dsr"
	t.Links = append(t.Links, Cable("client back 10.63.0.1/24 fd63::1/64", "server back 10.63.0.2/24 fd63::2/64"))
	for i := range t.Namespaces {
		switch ns := &t.Namespaces[i]; ns.Name {
		case "client":
			ns.Sysctls = append(ns.Sysctls, looseSource("back")...)
		case "server":
			ns.Routes = append(
				ns.Routes,
				Via("10.61.0.0/24", "10.63.0.1"),
				Via("fd61::/64", "fd63::1"),
			)
			ns.Sysctls = append(ns.Sysctls, looseSource("eth0")...)
		}
	}
	return t
}

// looseSource lets packets in whose source is routed elsewhere.
func looseSource(devices ...string) []Sysctl {
	sysctls := []Sysctl{{"net.ipv4.conf.all.rp_filter", "0"}}
	for _, dev := range devices {
		sysctls = append(sysctls, Sysctl{"net.ipv4.conf." + dev + ".rp_filter", "0"})
	}
	return sysctls
}

//go:embed nfqueue.yaml
var nfqueueConfig string

// Config is what `weir lb run` needs for the balancer of a named topology; empty where any will do.
func Config(name string) string {
	switch name {
	case "nfqueue", "nfqueue-dsr":
		return nfqueueConfig
	}
	return ""
}
