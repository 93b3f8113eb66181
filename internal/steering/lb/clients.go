package lb

import (
	"net/netip"
	"slices"

	"github.com/weir-lb/weir/internal/steering/flow"
)

// Clients divides the clients of one VIP, or of one address, among the services that have it: the longest prefix of their sources
// decides, and a service without sources has all other clients.
type Clients struct {
	Prefixes []ClientPrefix // longest first, each once
	// Rest is the service of all other clients. Refused: none has them, and Rest, the first of the services, counts their packets.
	Rest    *Service
	Refused bool

	lengths  []int
	services map[clientKey]*Service
}

// ClientPrefix says whose clients a prefix has.
type ClientPrefix struct {
	Prefix  netip.Prefix
	Service *Service
}

type clientKey struct {
	address [16]byte
	bits    int
}

// ClientsOf returns how services, in order of their names, divide their clients; nil: none has sources, so that the first
// one serves all.
func ClientsOf(services []*Service) *Clients {
	if !slices.ContainsFunc(services, func(s *Service) bool { return len(s.Sources) > 0 }) {
		return nil
	}
	c := &Clients{services: map[clientKey]*Service{}}
	for _, service := range services {
		if len(service.Sources) == 0 && c.Rest == nil {
			c.Rest = service
		}
		for _, p := range service.Sources {
			k := clientKey{flow.Address(p.Addr()), bits16(p)}
			if c.services[k] != nil {
				continue // of one address, where the first service by name has the clients that several claim
			}
			c.services[k] = service
			c.Prefixes = append(c.Prefixes, ClientPrefix{p, service})
			if !slices.Contains(c.lengths, k.bits) {
				c.lengths = append(c.lengths, k.bits)
			}
		}
	}
	slices.SortFunc(c.lengths, func(a, b int) int { return b - a })
	slices.SortStableFunc(c.Prefixes, func(a, b ClientPrefix) int { return bits16(b.Prefix) - bits16(a.Prefix) })
	if c.Refused = c.Rest == nil; c.Refused {
		c.Rest = services[0]
	}
	return c
}

// Find returns the service of a client, and whether that serves it.
func (c *Clients) Find(source [16]byte) (*Service, bool) {
	for _, bits := range c.lengths {
		if bits < 96 && mapped(source) {
			break // an IPv6 prefix as short as this contains the IPv4-mapped addresses
		}
		if service := c.services[clientKey{mask(source, bits), bits}]; service != nil {
			return service, true
		}
	}
	return c.Rest, !c.Refused
}

// sources compiles the key of that name, before the VIPs.
func (c *compiler) sources(path string, spec *ServiceSpec, service *Service) (err error) {
	if spec.Sources == nil {
		return nil
	}
	path += ".sources"
	switch {
	case len(spec.Sources) == 0:
		return wrong(path, "remove it to serve all clients, or add an address or prefix", "the list is empty, so no client could use the service")
	case len(spec.Flows) > 0:
		return wrong(path, "write sources into each flow rule", "flow rules choose by sources of their own")
	case spec.Outbound:
		return wrong(path, "remove outbound, or sources", "flows that backends start may have other clients")
	}
	service.Sources, err = c.prefixes(path, spec.Sources)
	return err
}

// shares returns the error of a VIP that two services have, if they do not divide its clients.
func (c *compiler) shares(path string, service *Service, taken *takenRange) error {
	other := taken.service
	if other == service {
		return wrong(path, "give each VIP to one service", "the same address, protocol and port as %s", taken.path)
	}
	if len(service.Sources) == 0 && len(other.Sources) == 0 {
		return wrong(path, "give each VIP to one service, or the services different sources", "the same address, protocol and port as %s", taken.path)
	}
	for _, p := range service.Sources {
		if slices.Contains(other.Sources, p) {
			return wrong(path, "remove the prefix from the sources of one of them", "the service of %s has this VIP and the clients in %s too", taken.path, p)
		}
	}
	if service.Outbound || other.Outbound {
		return wrong(path, "remove outbound, or give each VIP to one service", "%s is the same VIP, and flows that backends start may have clients of the other service", taken.path)
	}
	return nil
}
