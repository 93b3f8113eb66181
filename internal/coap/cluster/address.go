package cluster

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"github.com/weir-lb/weir/internal/coap/cluster/membership"
	"github.com/weir-lb/weir/internal/keyerror"
)

// spec resolves the names of the configuration. It sets the address of the own node.
func (c *Cluster) spec(cfg *Config) (s membership.Spec, err error) {
	s = membership.Spec{Self: c.self, Open: c.open || c.strangers, Discovered: cfg.Discovered}
	found := false
	for i, n := range cfg.Nodes {
		at := fmt.Sprintf("nodes[%d]", i)
		address, err := resolve(n.Management)
		if err != nil {
			return s, keyerror.At(at+".management", err)
		}
		if n.ID != c.self {
			if address.Addr().IsUnspecified() { // another own node of this process that binds every interface
				address = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), address.Port())
			}
			s.Fixed = append(s.Fixed, membership.Node{ID: n.ID, Addr: address})
			continue
		}
		if !n.Own() {
			return s, keyerror.Errorf(at, "node %d is %q, but this process is to run it", c.self, Foreign)
		}
		found = true
		if cfg.loopbackOnly(n) {
			address = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), address.Port())
		}
		c.address, c.targets.ports = address, [2]uint16{portOf(n.DTLS), address.Port()}
	}
	if !found {
		return s, keyerror.Errorf("nodes", "there is no node %d", c.self)
	}
	ctx, cancel := context.WithTimeout(context.Background(), resolveTime)
	defer cancel()
	s.Group = c.names.resolve(ctx, c)
	return s, c.reaches(cfg, &s)
}

// reaches refuses a link that is bound to loopback by default while other nodes are elsewhere.
func (c *Cluster) reaches(cfg *Config, s *membership.Spec) error {
	others := slices.Clone(s.Group)
	for _, node := range s.Fixed {
		others = append(others, node.Addr)
	}
	for i, n := range cfg.Nodes {
		for _, other := range others {
			if n.ID == c.self && cfg.loopbackOnly(n) && !other.Addr().IsLoopback() {
				return notReached(i, n, other.String()+" is")
			}
		}
	}
	return nil
}

// isOwn reports whether an address is that of the own management socket.
func (c *Cluster) isOwn(a netip.AddrPort) bool {
	if a.Port() != c.address.Port() {
		return false
	}
	return a.Addr() == c.address.Addr() || c.address.Addr().IsUnspecified() && (a.Addr().IsLoopback() || c.targets.isOwn(a.Addr()))
}

// resolve turns HOST:PORT into an address, IPv4 first as the source document's "localhost" means; an empty host is the
// IPv4 wildcard.
func resolve(s string) (netip.AddrPort, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return netip.AddrPort{}, err
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if host == "" {
		return netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(number)), nil
	}
	udp, err := net.ResolveUDPAddr("udp", s)
	if err != nil {
		return netip.AddrPort{}, err
	}
	return netip.AddrPortFrom(zoneIndex(udp.AddrPort().Addr().Unmap()), uint16(number)), nil
}

// zoneIndex writes the zone of an address as a number, as it is in a node's own datagrams.
func zoneIndex(address netip.Addr) netip.Addr {
	if device, err := net.InterfaceByName(address.Zone()); err == nil {
		return address.WithZone(strconv.Itoa(device.Index))
	}
	return address
}
