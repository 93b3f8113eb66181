package kubelab

import (
	"fmt"
	"net/netip"

	"github.com/weir-lb/weir/internal/testbed/netlab"
)

// The addresses of a network of Topology.
const (
	NodeAddress   = "10.77.255.1" // of the node, at which the API server listens
	FirstPod      = "10.77.0.10"  // of the first slot
	ClientAddress = "10.77.254.1" // of a host on the segment of the Pods
	RemoteAddress = "10.78.0.2"   // of a host whose packets the node forwards
)

// Topology is a node with slots for Pods on a bridge, a client on the same segment, and a remote one. The node's interfaces are called
// pods and outside.
func Topology(name string, slots int) netlab.Topology {
	t := netlab.Topology{
		Name: name,
		Namespaces: []netlab.Namespace{
			{Name: "node", Forward: true, Bridges: []netlab.Bridge{{Name: "pods", Addresses: netlab.Prefixes(NodeAddress + "/16")}}},
			{Name: "client"},
			{Name: "remote", Routes: netlab.Default("10.78.0.1")},
		},
		Links: []netlab.Link{{
			A: netlab.End{Namespace: "node", Name: "outside", Addresses: netlab.Prefixes("10.78.0.1/24")},
			B: netlab.End{Namespace: "remote", Name: "eth0", Addresses: netlab.Prefixes(RemoteAddress + "/24")},
		}},
	}
	plug := func(name string, address netip.Addr) {
		t.Links = append(t.Links, netlab.Link{
			A: netlab.End{Namespace: "node", Name: "to" + name, Bridge: "pods"},
			B: netlab.End{Namespace: name, Name: "eth0", Addresses: []netip.Prefix{netip.PrefixFrom(address, 16)}},
		})
	}
	plug("client", netip.MustParseAddr(ClientAddress))
	for i := range slots {
		name, address := slotOf(i)
		t.Namespaces = append(t.Namespaces, netlab.Namespace{Name: name, Routes: netlab.Default(NodeAddress)})
		plug(name, address)
	}
	return t
}

func slotOf(i int) (name string, address netip.Addr) {
	first := netip.MustParseAddr(FirstPod).As4()
	first[3] += byte(i)
	return fmt.Sprintf("pod%d", i), netip.AddrFrom4(first)
}

// Slots are those of a network of Topology.
func Slots(lab *netlab.Lab, slots int) (all []Slot) {
	for i := range slots {
		name, address := slotOf(i)
		all = append(all, Slot{Host: lab.Namespace(name), Address: address})
	}
	return all
}
