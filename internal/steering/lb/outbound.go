package lb

import (
	"fmt"
	"net/netip"
	"slices"
)

// endpoint is an address and port at which a backend answers.
type endpoint struct {
	address [16]byte
	port    uint16
}

// Outbound is the translation for a flow that a backend starts: the VIP becomes its source.
type Outbound struct {
	Backend *Backend
	VIP     netip.AddrPort
}

// Outbound returns what a UDP packet from a backend's endpoint gets when it belongs to no flow of a client. The zero
// value: no service with outbound has that endpoint.
func (s *Snapshot) Outbound(address [16]byte, port uint16) Outbound {
	return s.outbound[endpoint{address, port}]
}

// Outbounds calls yield for each endpoint, in no order.
func (s *Snapshot) Outbounds(yield func(netip.AddrPort, Outbound) bool) {
	for e, o := range s.outbound {
		if !yield(netip.AddrPortFrom(netip.AddrFrom16(e.address).Unmap(), e.port), o) {
			return
		}
	}
}

// outbound checks the key and enters the endpoints of the service's backends.
func (c *compiler) outbound(path string, spec *ServiceSpec, service *Service) error {
	if !spec.Outbound {
		return nil
	}
	path += ".outbound"
	switch {
	case service.Mode != NAT:
		return wrong(path, "remove it, or write mode: nat", "in mode %s backends send with the VIP themselves", service.Mode)
	case !c.caps.Outbound:
		return c.refuse(path, "remove it", "does not translate flows that backends start")
	}
	service.Outbound = true
	for _, backend := range service.Backends {
		for _, is6 := range []bool{false, true} {
			address, ok := backend.Address(is6)
			if !ok {
				continue
			}
			vip, ok := outboundVIP(service, is6)
			if !ok {
				continue
			}
			port := backend.Port
			if port == 0 {
				port = vip.Port()
			}
			e := endpoint{address.As16(), port}
			other := c.endpoints[e].Backend
			if other != nil && other.Service == service && (other.State != Down || backend.State == Down) {
				continue // the same destination under two names
			}
			if other != nil && other.Service != service {
				return wrong(path, "let one of the two services translate what the backend starts", "%s is also backend %s/%s",
					netip.AddrPortFrom(address, port), other.Service.Name, other.Name)
			}
			if c.endpoints == nil {
				c.endpoints = map[endpoint]Outbound{}
			}
			c.endpoints[e] = Outbound{backend, vip}
		}
	}
	for _, vip := range service.VIPs {
		if vip.Protocol != UDP {
			continue
		}
		if _, ok := outboundVIP(service, vip.Prefix.Addr().Is6()); !ok {
			return wrong(path, "add a VIP of one address and one port", "no UDP VIP of %s is a single address and port that a backend's flow could leave with", familyOf(vip.Prefix))
		}
	}
	if !slices.ContainsFunc(service.VIPs, func(v VIP) bool { return v.Protocol == UDP }) {
		return wrong(path, "remove it", "the service %q has no UDP VIP", service.Name)
	}
	return nil
}

// outboundVIP is the first UDP VIP of a family that is one address and one port.
func outboundVIP(service *Service, is6 bool) (netip.AddrPort, bool) {
	for _, v := range service.VIPs {
		if v.Protocol == UDP && v.Prefix.IsSingleIP() && v.First == v.Last && v.Prefix.Addr().Is6() == is6 {
			return netip.AddrPortFrom(v.Prefix.Addr(), v.First), true
		}
	}
	return netip.AddrPort{}, false
}

func familyOf(p netip.Prefix) string {
	if p.Addr().Is6() {
		return fmt.Sprintf("IPv6 (as %s)", p)
	}
	return fmt.Sprintf("IPv4 (as %s)", p)
}
