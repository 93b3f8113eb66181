package lb

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Bounds of announcements.
const (
	MaxAggregates  = 256
	MaxNeighbours  = 64
	maxCommunities = 32
)

// announce compiles the announce section, once the services are compiled.
func (c *compiler) announce(spec *Spec, snapshot *Snapshot) error {
	s := spec.Announce
	if s == nil {
		return nil
	}
	out := &Announce{MinHealthy: 1, RequireAll: s.Require == RequireAll}
	if s.MinHealthy != nil {
		out.MinHealthy = *s.MinHealthy
	}
	switch {
	case s.BGP == nil && len(s.VRRP) == 0:
		return wrong("announce", "add bgp with as, router_id and neighbours, or vrrp with interface and vrid, or remove announce", "it does not say to whom addresses are announced")
	case out.MinHealthy < 0 || out.MinHealthy > MaxBackends:
		return wrong("announce.min_healthy", fmt.Sprintf("write 0 to %d", MaxBackends), "%d is out of range", out.MinHealthy)
	}
	for i, name := range s.Services {
		if snapshot.Service(name) == nil {
			return wrong(fmt.Sprintf("announce.services[%d]", i), "write the name of a service of this file, or remove it", "there is no service %q", name)
		}
		if out.Services == nil {
			out.Services = map[string]bool{}
		}
		out.Services[name] = true
	}
	addresses := announced(out, snapshot)
	if err := aggregates(s, out, addresses); err != nil {
		return err
	}
	if s.BGP != nil {
		if err := bgp(s.BGP, out, addresses); err != nil {
			return err
		}
	}
	if err := c.vrrp(s.VRRP, out, addresses); err != nil {
		return err
	}
	snapshot.Announce = out
	return nil
}

// announced returns the addresses of the services that are announced.
func announced(a *Announce, snapshot *Snapshot) (all []netip.Prefix) {
	for _, service := range snapshot.Services {
		if a.Announces(service) {
			all = append(all, service.Addresses()...)
		}
	}
	return all
}

func aggregates(s *AnnounceSpec, out *Announce, addresses []netip.Prefix) error {
	if len(s.Aggregates) > MaxAggregates {
		return wrong("announce.aggregates", "announce larger prefixes", "%d aggregates, at most %d", len(s.Aggregates), MaxAggregates)
	}
	for i, aggregate := range s.Aggregates {
		path, prefix := fmt.Sprintf("announce.aggregates[%d]", i), aggregate.Prefix
		switch {
		case prefix.Bits() == 0:
			return wrong(path, "write a prefix of yours, such as 192.0.2.0/24", "%s would take all traffic", prefix)
		case slices.Contains(out.Aggregates, prefix):
			return wrong(path, "remove one", "%s is there twice", prefix)
		case !slices.ContainsFunc(addresses, func(a netip.Prefix) bool { return Within(a, prefix) }):
			return wrong(path, "add a service with an address in it, or remove it", "no address of an announced service is in %s, so it would never be announced", prefix)
		}
		out.Aggregates = append(out.Aggregates, prefix)
	}
	return nil
}

// Within reports whether a prefix is part of another one, or equal.
func Within(inner, outer netip.Prefix) bool {
	return outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
}

func bgp(s *BGPSpec, out *Announce, addresses []netip.Prefix) error {
	const path = "announce.bgp"
	b := &BGP{
		AS: s.AS, RouterID: s.RouterID, Listen: s.Listen, NextHop4: s.NextHop4.Unmap(), NextHop6: s.NextHop6, Prepends: s.Prepends,
		Communities: s.Communities, LocalPreference: 100, GracefulShutdown: s.GracefulShutdown, ReportAfter: cmp.Or(s.ReportAfter, 30*time.Second),
	}
	if s.LocalPreference != nil {
		b.LocalPreference = *s.LocalPreference
	}
	if err := checkAS(path+".as", s.AS); err != nil {
		return err
	}
	switch {
	case s.RouterID.IsValid() && (!s.RouterID.Is4() || s.RouterID.IsUnspecified()):
		return wrong(path+".router_id", "write an IPv4 address that no other router has as its id, such as one of this machine", "the router id is no IPv4 address")
	case b.NextHop4.IsValid() && !b.NextHop4.Is4():
		return wrong(path+".next_hop4", "write an IPv4 address", "%s is no IPv4 address", s.NextHop4)
	case b.NextHop6.IsValid() && (b.NextHop6.Unmap().Is4() || b.NextHop6.IsLinkLocalUnicast()):
		return wrong(path+".next_hop6", "write a global IPv6 address", "%s is no global IPv6 address", s.NextHop6)
	case b.Prepends < 0 || b.Prepends > 16:
		return wrong(path+".prepends", "write 0 to 16", "%d is out of range", b.Prepends)
	case len(b.Communities) > maxCommunities:
		return wrong(path+".communities", "remove some", "%d communities, at most %d", len(b.Communities), maxCommunities)
	case b.GracefulShutdown < 0 || b.GracefulShutdown > 5*time.Minute:
		return wrong(path+".graceful_shutdown", "write 0s to 5m", "%s is out of range", b.GracefulShutdown)
	case b.ReportAfter < time.Second || b.ReportAfter > time.Hour:
		return wrong(path+".report_after", "write 1s to 1h, such as 30s", "%s is out of range", b.ReportAfter)
	case len(s.Neighbours) == 0:
		return wrong(path+".neighbours", "add a router with address and as", "there is no neighbour to announce to")
	case len(s.Neighbours) > MaxNeighbours:
		return wrong(path+".neighbours", "announce to route reflectors", "%d neighbours, at most %d", len(s.Neighbours), MaxNeighbours)
	}
	for i := range s.Neighbours {
		n, err := neighbour(fmt.Sprintf("%s.neighbours[%d]", path, i), &s.Neighbours[i], b, addresses)
		if err != nil {
			return err
		}
		b.Neighbours = append(b.Neighbours, n)
	}
	if !b.RouterID.IsValid() && !slices.ContainsFunc(b.Neighbours, func(n Neighbour) bool { return n.Address.Is4() }) {
		return wrong(path+".router_id", "write an IPv4 address that no other router has as its id", "there is no router id, and no IPv4 neighbour to which this machine has an address")
	}
	out.BGP = b
	return nil
}

func checkAS(path string, as uint32) error {
	switch as {
	case 0:
		return wrong(path, "add the number of the autonomous system, such as 64512", "there is no AS number")
	case 23456, 1<<32 - 1:
		return wrong(path, "write the number of an autonomous system, such as 64512", "%d is reserved", as)
	}
	return nil
}

func neighbour(path string, s *NeighbourSpec, b *BGP, addresses []netip.Prefix) (Neighbour, error) {
	n := Neighbour{
		Address: s.Address.Unmap(), LocalAddress: s.LocalAddress.Unmap(), AS: s.AS, Port: uint16(cmp.Or(s.Port, 179)), PasswordFile: s.PasswordFile,
		PasswordEnv: s.PasswordEnv, HoldTime: cmp.Or(s.HoldTime, 9*time.Second), Multihop: uint8(s.Multihop), TTLSecurity: s.TTLSecurity,
		PrefixLimit: uint32(cmp.Or(s.PrefixLimit, 10000)),
	}
	if s.BFD != nil {
		n.BFD = BFD{Interval: cmp.Or(s.BFD.Interval, 100*time.Millisecond), Multiplier: uint8(cmp.Or(s.BFD.Multiplier, 3))}
	}
	if !s.Address.IsValid() {
		return n, wrong(path+".address", "add the address of the router", "the neighbour has no address")
	}
	if err := checkUnicast(path+".address", n.Address); err != nil {
		return n, err
	}
	if err := checkAS(path+".as", s.AS); err != nil {
		return n, err
	}
	if err := neighbourBounds(path, s); err != nil {
		return n, err
	}
	switch {
	case n.Address.IsLinkLocalUnicast():
		return n, wrong(path+".address", "write a global address of the router", "sessions over the link-local address %s are not supported", n.Address)
	case n.LocalAddress.IsValid() && n.LocalAddress.Is4() != n.Address.Is4():
		return n, wrong(path+".local_address", "write an address of the family of the router's", "%s is of another family than %s", n.LocalAddress, n.Address)
	case slices.ContainsFunc(b.Neighbours, func(o Neighbour) bool { return o.Address == n.Address }):
		return n, wrong(path+".address", "remove one", "%s is a neighbour twice", n.Address)
	case s.PasswordFile != "" && s.PasswordEnv != "":
		return n, wrong(path+".password_env", "remove one", "the password is in a file and in a variable")
	case strings.ContainsAny(s.PasswordEnv, "= "):
		return n, wrong(path+".password_env", "write the name of an environment variable, such as BGP_PASSWORD", "%q is no name of a variable", s.PasswordEnv)
	case n.TTLSecurity && n.Multihop > 0:
		return n, wrong(path+".ttl_security", "remove one of them", "TTL security is for neighbours on the same network, and multihop for others")
	case b.Prepends > 0 && n.AS == b.AS:
		return n, wrong("announce.bgp.prepends", "remove it, and write a lower local_preference", "neighbour %s is in the own AS %d: it refuses a path with that number as a loop", n.Address, b.AS)
	case n.Multihop > 0 && n.AS == b.AS:
		return n, wrong(path+".multihop", "remove it", "a neighbour of the own AS %d may be on any network", b.AS)
	case n.BFD.Multiplier > 0 && n.Multihop > 0:
		return n, wrong(path+".bfd", "remove bfd, or multihop", "BFD is for neighbours on the same network")
	}
	return n, reachable(path, n, b, addresses)
}

// neighbourBounds checks the numbers of a neighbour.
func neighbourBounds(path string, s *NeighbourSpec) error {
	switch {
	case s.Port < 0 || s.Port > 65535:
		return wrong(path+".port", "write 1 to 65535", "%d is out of range", s.Port)
	case s.HoldTime != 0 && (s.HoldTime < 3*time.Second || s.HoldTime > time.Hour || s.HoldTime%time.Second != 0):
		return wrong(path+".hold_time", "write whole seconds, 3s to 1h", "%s is out of range", s.HoldTime)
	case s.Multihop < 0 || s.Multihop > 255:
		return wrong(path+".multihop", "write 2 to 255", "%d is out of range", s.Multihop)
	case s.PrefixLimit < 0 || s.PrefixLimit > 4000000:
		return wrong(path+".prefix_limit", "write 1 to 4000000", "%d is out of range", s.PrefixLimit)
	case s.BFD != nil && s.BFD.Interval != 0 && (s.BFD.Interval < 10*time.Millisecond || s.BFD.Interval > 10*time.Second):
		return wrong(path+".bfd.interval", "write 10ms to 10s, such as 100ms", "%s is out of range", s.BFD.Interval)
	case s.BFD != nil && (s.BFD.Multiplier < 0 || s.BFD.Multiplier > 50):
		return wrong(path+".bfd.multiplier", "write 1 to 50", "%d is out of range", s.BFD.Multiplier)
	}
	return nil
}

// reachable refuses addresses that have no next hop over a session of the other family.
func reachable(path string, n Neighbour, b *BGP, addresses []netip.Prefix) error {
	for _, address := range addresses {
		switch is4 := address.Addr().Is4(); {
		case is4 == n.Address.Is4():
		case is4 && !b.NextHop4.IsValid():
			return wrong(path+".address", "add next_hop4 to bgp: the address by which the router reaches this balancer", "over the IPv6 session to %s, %s has no next hop", n.Address, address)
		case !is4 && !b.NextHop6.IsValid():
			return wrong(path+".address", "add next_hop6 to bgp: the address by which the router reaches this balancer", "over the IPv4 session to %s, %s has no next hop", n.Address, address)
		}
	}
	return nil
}
