package bench

import (
	"context"
	"net/netip"
	"os/exec"
	"strconv"

	"github.com/weir-lb/weir/internal/testbed/netlab"
)

// The networks of a comparison of NATs: what costs every path of a namespace has namespaces of its own.
const (
	natPlain   = "all"     // nothing but routes
	natDNAT    = "dnat"    // connection tracking
	natOffload = "offload" // a program on the interfaces
)

// The addresses of a network of veth pairs.
var (
	natEntry  = netip.AddrFrom4([4]byte{10, 1, 0, 1})
	natServer = netip.AddrFrom4([4]byte{10, 2, 0, 2})
)

// natHosts are where load, path and echo server of one network run, and their addresses. On loopback it is one host.
type natHosts struct {
	client, nat, server *netlab.Host
	entry, echo         netip.Addr
}

// natTopology is a namespace for each network, or with veth three: a client, a router that runs the path, a server.
func natTopology(network string) *netlab.Topology {
	topology := &netlab.Topology{Name: "benchnat"}
	for _, name := range []string{natPlain, natDNAT, natOffload} {
		if network != networkVeth {
			topology.Namespaces = append(topology.Namespaces, netlab.Namespace{Name: name})
			continue
		}
		end := func(side, to, via string) netlab.Namespace {
			return netlab.Namespace{Name: name + side, Routes: []netlab.Route{{To: netip.MustParsePrefix(to), Via: netip.MustParseAddr(via)}}}
		}
		topology.Namespaces = append(topology.Namespaces, end("c", "10.2.0.0/24", "10.1.0.1"), netlab.Namespace{Name: name, Forward: true}, end("s", "10.1.0.0/24", "10.2.0.1"))
		topology.Links = append(
			topology.Links,
			netlab.Link{
				A: netlab.End{Namespace: name + "c", Name: "eth0", Addresses: netlab.Prefixes("10.1.0.2/24")},
				B: netlab.End{Namespace: name, Name: "front", Addresses: netlab.Prefixes("10.1.0.1/24")},
			},
			netlab.Link{
				A: netlab.End{Namespace: name + "s", Name: "eth0", Addresses: netlab.Prefixes("10.2.0.2/24")},
				B: netlab.End{Namespace: name, Name: "back", Addresses: netlab.Prefixes("10.2.0.1/24")},
			},
		)
	}
	return topology
}

// hosts returns where the paths of a network run.
func (b *natBench) hosts(network string) natHosts {
	if b.config.Network == networkVeth {
		return natHosts{client: b.Host(network + "c"), nat: b.Host(network), server: b.Host(network + "s"), entry: natEntry, echo: natServer}
	}
	host := b.Host(network)
	return natHosts{client: host, nat: host, server: host, entry: b.ports[0].Addr(), echo: b.ports[0].Addr()}
}

// echoIn starts the echo server of a network, once.
func (b *natBench) echoIn(network string, hosts natHosts) (*exec.Cmd, error) {
	if cmd := b.echoes[network]; cmd != nil {
		return cmd, nil
	}
	cmd := exec.Command(b.config.Binary, "bench", "udp-echo", b.echoAt(hosts).String())
	b.echoes[network] = cmd
	return cmd, b.Running.Start(hosts.server, cmd)
}

func (b *natBench) echoAt(hosts natHosts) netip.AddrPort {
	return netip.AddrPortFrom(hosts.echo, b.ports[0].Port())
}

// dnat makes the kernel translate what is sent to entry: where it comes in, or on loopback where it begins.
func (b *natBench) dnat(ctx context.Context, entry, echo netip.AddrPort) error {
	chain := "OUTPUT"
	if b.config.Network == networkVeth {
		chain = "PREROUTING"
	}
	_, err := b.Host(natDNAT).Exec(ctx, "iptables", "-t", "nat", "-A", chain, "-p", "udp", "-d", entry.Addr().String(),
		"--dport", strconv.Itoa(int(entry.Port())), "-j", "DNAT", "--to-destination", echo.String())
	return err
}
