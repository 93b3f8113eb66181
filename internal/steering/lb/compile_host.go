package lb

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/weir-lb/weir/internal/addresstext"
)

// MaxHostAddresses bounds the addresses of one DNS name that are used.
const MaxHostAddresses = 16

// The longest name of a backend with a host: a colon and an address of up to 39 characters follow it.
const maxHostBackend = 63 - 1 - 39

// Addresses that no server has, with which the other keys of a backend are checked (RFC 1112 section 4, RFC 6666).
var (
	example4 = netip.AddrFrom4([4]byte{240, 0, 0, 1})
	example6 = netip.AddrFrom16([16]byte{0: 1, 15: 1})
)

// Hosts returns the DNS names of all backends, as they are looked up, sorted.
func (s *Spec) Hosts() []string {
	var all []string
	for i := range s.Services {
		for j := range s.Services[i].Backends {
			if host := s.Services[i].Backends[j].Host; host != "" {
				all = append(all, strings.ToLower(host))
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// mostBackends returns how many backends a service can have with any addresses of its hosts, so that an answer of a resolver never makes
// a configuration too large.
func mostBackends(spec *ServiceSpec) int {
	most := len(spec.Backends)
	for i := range spec.Backends {
		if spec.Backends[i].Host != "" {
			most += MaxHostAddresses - 1
		}
	}
	return most
}

// resolve returns the backends that an entry of a spec stands for: itself, or one for each address of its host.
func (c *compiler) resolve(path string, spec *ServiceSpec, b *BackendSpec, service *Service) ([]BackendSpec, error) {
	if b.Host == "" || b.Action != ActForward {
		return []BackendSpec{*b}, nil
	}
	if err := c.checkHost(path, spec, b, service); err != nil {
		return nil, err
	}
	one := *b
	one.Host = ""
	if one.Address = example4; service.VIPs != nil && service.VIPs[0].Prefix.Addr().Is6() {
		one.Address = example6
	}
	if _, err := c.backend(path, &one, service); err != nil { // all keys but the address, whether or not there is an answer
		return nil, err
	}
	host := strings.ToLower(b.Host)
	var all []BackendSpec
	for _, address := range c.usable(service, &one, host, c.overrides.Addresses(host)) {
		one.Name, one.Address = b.Name+":"+address.String(), address
		if !slices.ContainsFunc(spec.Backends, func(other BackendSpec) bool { return other.Name == one.Name }) {
			all = append(all, one)
		}
	}
	return all, nil
}

// checkHost refuses what cannot be said of a server whose addresses are not known in advance.
func (c *compiler) checkHost(path string, spec *ServiceSpec, b *BackendSpec, service *Service) error {
	for _, key := range []struct {
		name string
		set  bool
	}{
		{"address", b.Address.IsValid()},
		{"address2", b.Address2.IsValid()},
		{"nodes", len(b.Nodes) > 0},
		{"admin", b.Admin != ""},
		{"index", b.Index != nil},
	} {
		if key.set {
			return wrong(path+"."+key.name, "remove it, or write address instead of host", "a host may have several addresses, %s belongs to one", key.name)
		}
	}
	path += ".host"
	switch {
	case !addresstext.IsName(b.Host):
		return wrong(path, "write a name such as web.example.com, or the address as address", "%q is no DNS name", b.Host)
	case len(b.Name) > maxHostBackend:
		return wrong(path, "write a shorter name for the backend", "the name of a backend with a host has at most 23 characters, because an address is added to it")
	case service.Mode == Mark:
		return wrong(path, "write address, and add a backend for each mark", "mode mark needs a mark for each address")
	case c.fileHash == NFQLB:
		return wrong(path, "write address, or remove hash: nfqlb", "with hash nfqlb the backends of a tier need the same index everywhere, which DNS does not give")
	case spec.Cluster != nil:
		return wrong(path, "write address and admin", "the nodes of a cluster are queried at addresses of their own")
	case spec.Outbound:
		return wrong(path, "write address, or remove outbound", "a flow that a backend starts is recognised by an address that the file has")
	}
	if four, six := families(service); four && six && !c.translates(service) {
		return wrong(path, "split the service by family", "the service has VIPs of both families, and DNS does not say which two addresses are one server")
	}
	return nil
}

// translates reports whether packets to a VIP of one family can go to a backend of the other.
func (c *compiler) translates(service *Service) bool {
	return service.Mode == L3DSR || c.caps.CrossFamily && service.Mode == NAT
}

// families reports of which families the VIPs of a service are.
func families(service *Service) (four, six bool) {
	for _, vip := range service.VIPs {
		four, six = four || vip.Prefix.Addr().Is4(), six || vip.Prefix.Addr().Is6()
	}
	return four, six
}

// usable returns those addresses of a name to which packets of the service can go. A wrong answer of a resolver must not make a
// configuration invalid, so that the others are left out. Of a name with addresses of both families those of the VIPs are used, because
// they are most likely of the same servers. Only localhost may have addresses of this host.
func (c *compiler) usable(service *Service, spec *BackendSpec, host string, addresses []netip.Addr) []netip.Addr {
	var fit, others []netip.Addr
	four, six := families(service)
	for _, address := range addresses {
		backend := &Backend{Address4: address, Address6: address, Service: service}
		if spec.Port != nil {
			backend.Port = uint16(*spec.Port)
		}
		switch {
		case checkUnicast("", address) != nil, checkLoop("", backend) != nil, address.IsLinkLocalUnicast(), address.IsLoopback() && host != "localhost":
		case service.SNAT != nil && !slices.ContainsFunc(service.SNAT.Addresses, func(a netip.Addr) bool { return a.Is6() == address.Is6() }):
		case address.Is4() && four, address.Is6() && six:
			fit = append(fit, address)
		default:
			others = append(others, address)
		}
	}
	if len(fit) == 0 && c.translates(service) {
		fit = others
	}
	return fit[:min(len(fit), MaxHostAddresses)]
}
