package bench

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/weir-lb/weir/internal/testbed/netlab"
)

const (
	movedVIP        = "10.9.0.1"
	movedPort       = 5784
	movedManagement = 5884
)

// movedTopology is a client, a balancer and three nodes, each on a link of its own. The VIP is where clients' packets end: at
// the balancer, or on the loopback of every node (L2-DSR).
//
//	client 10.1.0.2 to .6 ──── balancer ──┬── node1 10.2.1.2
//	                                      ├── node2 10.2.2.2
//	                                      └── node3 10.2.3.2
func (p coapPath) movedTopology() *netlab.Topology {
	balancer := netlab.Namespace{Name: "balancer", Forward: true}
	if !p.kernel {
		balancer.Loopback = netlab.Prefixes(movedVIP + "/32")
	}
	t := &netlab.Topology{
		Name:       strings.ReplaceAll(p.name, "moved", "mv"),
		Namespaces: []netlab.Namespace{balancer, {Name: "client", Routes: netlab.Default("10.1.0.1")}},
		Links:      []netlab.Link{netlab.Cable("client eth0 10.1.0.2/24 10.1.0.3/24 10.1.0.4/24 10.1.0.5/24 10.1.0.6/24", "balancer veth0 10.1.0.1/24")},
	}
	for i := 1; i <= p.nodes; i++ {
		node := netlab.Namespace{Name: fmt.Sprintf("node%d", i), Routes: netlab.Default(fmt.Sprintf("10.2.%d.1", i))}
		if p.kernel {
			node.Loopback = netlab.Prefixes(movedVIP + "/32")
		}
		t.Namespaces = append(t.Namespaces, node)
		t.Links = append(t.Links, netlab.Cable(node.Name+" eth0 "+nodeAddress(i)+"/24", fmt.Sprintf("balancer veth%[1]d 10.2.%[1]d.1/24", i)))
	}
	return t
}

// movedSources are the clients' addresses: one to begin with and one for each change, so that no one comes back.
func movedSources(length string) []netip.Prefix {
	return netlab.Prefixes("10.1.0.2"+length, "10.1.0.3"+length, "10.1.0.4"+length, "10.1.0.5"+length, "10.1.0.6"+length)
}

func nodeAddress(i int) string { return fmt.Sprintf("10.2.%d.2", i) }

// movedAddresses are public and management of each node, then the VIP. Behind the kernel data path each node has the VIP.
func (p coapPath) movedAddresses() (all []netip.AddrPort) {
	vip := netip.MustParseAddr(movedVIP)
	for i := 1; i <= p.nodes; i++ {
		node := netip.MustParseAddr(nodeAddress(i))
		public := node
		if p.kernel {
			public = vip
		}
		all = append(all, netip.AddrPortFrom(public, movedPort), netip.AddrPortFrom(node, movedManagement))
	}
	return append(all, netip.AddrPortFrom(vip, movedPort))
}

func (p coapPath) kernelInterfaces() string {
	interfaces := "veth0"
	for i := 1; i <= p.nodes; i++ {
		interfaces += fmt.Sprintf(",veth%d", i)
	}
	return interfaces
}

// kernelConfig steers by the node id in the first byte of the connection ids.
func (p coapPath) kernelConfig() string {
	var backends []string
	for i := 1; i <= p.nodes; i++ {
		backends = append(backends, fmt.Sprintf("name: node%d, address: %q, nodes: [%d]", i, nodeAddress(i), i))
	}
	return serviceConfig("l2dsr", 0, "  cid: {protocols: [dtls12], layouts: [{length: 6, owner: {offset: 0, bits: 8}}]}\n", []string{vipOf(netip.MustParseAddr(movedVIP), "udp", movedPort)}, backends...)
}
