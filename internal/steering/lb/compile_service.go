package lb

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// service compiles one service. It returns nil if the service is wrong; the errors are recorded.
func (c *compiler) service(path string, spec *ServiceSpec) *Service {
	before := c.failed
	service := &Service{Name: spec.Name, NewFlowRate: spec.NewFlowRate, Tunnel: spec.Tunnel, Ping: spec.Ping}
	if spec.Mode != nil {
		service.Mode = *spec.Mode
	}
	type step func(string, *ServiceSpec, *Service) error
	// Each step checks keys of its own, whatever is wrong with the others. Backends are checked against mode and CIDs, if these are
	// good, and against the VIPs that are.
	whole := !c.keep(c.mode(path, spec, service))
	for _, check := range []step{c.sources, c.addresses, c.flows, c.hash, c.timeouts, c.snat, c.migration, c.generations} {
		c.keep(check(path, spec, service))
	}
	whole = !c.keep(c.affinity(path, spec, service)) && whole
	if spec.NewFlowRate < 0 {
		c.keep(wrong(path+".new_flow_rate", "write new flows per second, or leave it out for no limit", "%d is negative", spec.NewFlowRate))
	}
	if whole && !c.keep(c.cluster(path, spec, service)) {
		c.keep(c.backends(path, spec, service))
	}
	if c.failed > before {
		return nil
	}
	for _, check := range []step{c.slots, c.snatFamilies, c.outbound, c.health, c.queried} {
		if c.keep(check(path, spec, service)) {
			return nil
		}
	}
	if state, _ := c.overrides.Of(Target{Service: spec.Name}); state == OverrideDown {
		service.Down = true
	} else if state == OverrideDrain {
		for _, backend := range service.Backends {
			backend.State = max(backend.State, Draining)
		}
	} else {
		c.failOpen(service)
	}
	service.Maglev = c.table(service)
	service.owners = ownerTables(service)
	return service
}

func (c *compiler) mode(path string, spec *ServiceSpec, service *Service) error {
	if !slices.Contains(c.caps.Modes, service.Mode) {
		return c.refuse(path+".mode", "write "+list(c.caps.Modes), "cannot do mode %s", service.Mode)
	}
	if service.Bypass = spec.Bypass; service.Bypass && service.Mode != Mark {
		return wrong(path+".bypass", "remove it, or write mode: mark", "mode %s has no queue that can be passed by", service.Mode)
	}
	if service.Mode != L3DSR {
		if spec.Tunnel != NoTunnel {
			return wrong(path+".tunnel", "remove it, or write mode: l3dsr", "mode %s has no tunnel", service.Mode)
		}
		return nil
	}
	service.Tunnel = cmp.Or(service.Tunnel, IPIP)
	if !slices.Contains(c.caps.Tunnels, service.Tunnel) {
		return c.refuse(path+".tunnel", "write "+list(c.caps.Tunnels), "cannot do tunnel %s", service.Tunnel)
	}
	return nil
}

func (c *compiler) addresses(path string, spec *ServiceSpec, service *Service) error {
	if len(spec.VIPs) == 0 && len(spec.Flows) > 0 {
		return nil
	}
	if len(spec.VIPs) == 0 {
		return wrong(path+".vips", "add at least one address with protocol and port", "the service %q has no VIP", spec.Name)
	}
	if c.vipCount += len(spec.VIPs); c.vipCount > MaxVIPs {
		return wrong(path+".vips", "use prefixes or port ranges, or split the file", "more than %d VIPs in all", MaxVIPs)
	}
	for i := range spec.VIPs {
		at := fmt.Sprintf("%s.vips[%d]", path, i)
		vip, err := c.vip(at, &spec.VIPs[i])
		if c.keep(err) {
			continue
		}
		k := vip.key()
		for _, taken := range c.vips[k] {
			switch {
			case taken.first == vip.First && taken.last == vip.Last:
				if err := c.shares(at, service, &taken); err != nil {
					return err
				}
			case vip.Last < taken.first || taken.last < vip.First: // disjoint
			case taken.first <= vip.First && vip.Last <= taken.last, vip.First <= taken.first && taken.last <= vip.Last: // nested
			default:
				return wrong(at+".port", "make the ranges disjoint, or one part of the other", "the range %d-%d crosses %d-%d of %s", vip.First, vip.Last, taken.first, taken.last, taken.path)
			}
		}
		c.vips[k] = append(c.vips[k], takenRange{vip.First, vip.Last, at, service})
		service.VIPs = append(service.VIPs, vip)
	}
	slices.SortFunc(service.VIPs, func(a, b VIP) int {
		return cmp.Or(
			cmp.Compare(bits16(b.Prefix), bits16(a.Prefix)),
			a.Prefix.Addr().Compare(b.Prefix.Addr()),
			cmp.Compare(a.Protocol, b.Protocol),
			cmp.Compare(a.Last-a.First, b.Last-b.First),
			cmp.Compare(a.First, b.First),
		)
	})
	return nil
}

func (c *compiler) vip(path string, spec *VIPSpec) (VIP, error) {
	vip := VIP{Prefix: spec.Address.Prefix, Protocol: uint8(spec.Protocol), First: spec.Port.First, Last: spec.Port.Last}
	switch {
	case !vip.Prefix.IsValid():
		return vip, wrong(path+".address", "add an address or prefix", "the VIP has no address")
	case vip.Protocol == 0:
		return vip, wrong(path+".protocol", "add tcp, udp or sctp", "the VIP has no protocol")
	case spec.Port == PortRange{}:
		return vip, wrong(path+".port", "add a port, a range such as 5000-5999, or any", "the VIP has no port")
	case vip.Prefix.IsSingleIP() && vip.Prefix.Addr().IsUnspecified():
		return vip, wrong(path+".address", fmt.Sprintf("write the address that clients use, or %s/0 for every address", vip.Prefix.Addr()), "no packet is sent to %s", vip.Prefix.Addr())
	case vip.Prefix.Addr().IsMulticast():
		return vip, wrong(path+".address", "write a unicast address", "%s is a multicast address", vip.Prefix.Addr())
	case !slices.Contains(c.caps.Protocols, vip.Protocol):
		var can []Protocol
		for _, p := range c.caps.Protocols {
			can = append(can, Protocol(p))
		}
		return vip, c.refuse(path+".protocol", "write "+list(can), "cannot balance %s", spec.Protocol)
	case vip.Prefix.Addr().Is4() && !c.caps.IPv4, vip.Prefix.Addr().Is6() && !c.caps.IPv6:
		return vip, c.refuse(path+".address", "use the other family", "cannot serve %s", vip.Prefix.Addr())
	case !vip.Prefix.IsSingleIP() && !c.caps.Prefixes:
		return vip, c.refuse(path+".address", "write single addresses", "cannot serve the prefix %s", vip.Prefix)
	case vip.First != vip.Last && !c.caps.PortRanges:
		return vip, c.refuse(path+".port", "write single ports", "cannot serve port ranges")
	}
	return vip, nil
}

func (c *compiler) timeouts(path string, spec *ServiceSpec, service *Service) error {
	t := &service.Timeouts
	for _, field := range []struct {
		key    string
		value  Timeout
		preset time.Duration
		to     *time.Duration
	}{
		{"udp", spec.Timeouts.UDP, 120 * time.Second, &t.UDP},
		{"tcp_opening", spec.Timeouts.TCPOpening, 30 * time.Second, &t.TCPOpening},
		{"tcp_established", spec.Timeouts.TCPEstablished, 2*time.Hour + 4*time.Minute, &t.TCPEstablished},
		{"tcp_closing", spec.Timeouts.TCPClosing, 30 * time.Second, &t.TCPClosing},
		{"sctp", spec.Timeouts.SCTP, 10 * time.Minute, &t.SCTP},
	} {
		*field.to = cmp.Or(time.Duration(field.value), field.preset)
		if *field.to < minTimeout {
			return wrong(path+".timeouts."+field.key, "write at least 1s, or never", "%s is too short", *field.to)
		}
	}
	return nil
}

func (c *compiler) snat(path string, spec *ServiceSpec, service *Service) error {
	if spec.SNAT == nil {
		return nil
	}
	path += ".snat"
	switch {
	case service.Mode != NAT:
		return wrong(path, "remove it, or write mode: nat", "mode %s keeps the client's address", service.Mode)
	case !c.caps.SNAT:
		return c.refuse(path, "remove it", "chooses its source addresses itself")
	case len(spec.SNAT.Addresses) == 0:
		return wrong(path+".addresses", "add at least one address of this machine", "there is no address")
	}
	ports := cmp.Or(spec.SNAT.Ports, PortRange{1024, 65535})
	if ports.First < 1 || int(ports.Last)-int(ports.First)+1 < 64 {
		return wrong(path+".ports", "write a range of at least 64 ports, such as 1024-65535", "%s leaves too few ports", ports)
	}
	service.SNAT = &SNAT{First: ports.First, Last: ports.Last}
	for i, address := range spec.SNAT.Addresses {
		at := fmt.Sprintf("%s.addresses[%d]", path, i)
		address = address.Unmap()
		if err := checkUnicast(at, address); err != nil {
			return err
		}
		if slices.Contains(service.SNAT.Addresses, address) {
			return wrong(at, "remove one of them", "%s is there twice", address)
		}
		service.SNAT.Addresses = append(service.SNAT.Addresses, address)
	}
	slices.SortFunc(service.SNAT.Addresses, netip.Addr.Compare)
	return nil
}

// snatFamilies makes sure that each backend that the service's packets may reach has a source of its family.
func (c *compiler) snatFamilies(path string, _ *ServiceSpec, service *Service) error {
	if service.SNAT == nil {
		return nil
	}
	for _, vip := range service.VIPs {
		for _, backend := range service.Backends {
			if backend.Refuses() {
				continue
			}
			is6 := vip.Prefix.Addr().Is6()
			if _, ok := backend.Address(is6); !ok {
				is6 = !is6
			}
			if !slices.ContainsFunc(service.SNAT.Addresses, func(a netip.Addr) bool { return a.Is6() == is6 }) {
				family := "IPv4"
				if is6 {
					family = "IPv6"
				}
				return wrong(path+".snat.addresses", "add an "+family+" address of this machine", "backend %q is reached over %s, and no address is of that family", backend.Name, family)
			}
		}
	}
	return nil
}

// migration compiles udp_migration. It is of services of UDP alone: a TCP connection to a dead server is better ended than kept.
func (c *compiler) migration(path string, spec *ServiceSpec, service *Service) error {
	if spec.UDPMigration == nil || *spec.UDPMigration {
		return nil
	}
	path += ".udp_migration"
	for _, vip := range service.VIPs {
		if vip.Protocol != UDP {
			return wrong(path, "put the VIPs of other protocols into a service of their own", "flows of udp alone may stay, a VIP is %s", Protocol(vip.Protocol))
		}
	}
	for _, rule := range service.Rules {
		if len(rule.Protocols) != 1 || rule.Protocols[0] != UDP {
			return wrong(path, "write protocols: [udp] in each flow rule", "flows of udp alone may stay, flow rule %q takes more", rule.Name)
		}
	}
	if service.Stateless {
		return wrong(path, "write conntrack: true, or remove udp_migration", "without conntrack the backend of a flow is not remembered, so that it cannot stay")
	}
	service.stays = true
	return nil
}

// failOpen undoes the down states that probes and the data path have set, if otherwise no backend would take new flows.
func (c *compiler) failOpen(service *Service) {
	if service.Health == nil || !service.Health.FailOpen || slices.ContainsFunc(service.Backends, func(b *Backend) bool { return b.TakesNew() && !b.Refuses() }) {
		return
	}
	for _, backend := range service.Backends {
		state, from := c.overrides.Of(Target{service.Name, backend.Name})
		if state == OverrideDown && from != FromOperator {
			backend.State = Up
			service.FailOpen = service.FailOpen || backend.TakesNew()
		}
	}
}

func checkUnicast(path string, address netip.Addr) error {
	if !address.IsValid() || address.IsUnspecified() || address.IsMulticast() || address.Zone() != "" {
		return wrong(path, "write a unicast address without zone", "%s cannot be used here", address)
	}
	return nil
}

// table builds the service's Maglev table over the backends that take new flows, as indexes in Backends; that of the same service before,
// if nothing that it depends on has changed: of a thousand services a change is about one.
func (c *compiler) table(service *Service) []int32 {
	if old := c.before[service.Name]; old != nil && c.previous.Hash == c.fileHash && old.tableSize == service.tableSize && sameShares(old.Backends, service.Backends) {
		return old.Maglev
	}
	shares := make([]share, 0, len(service.Backends))
	for _, backend := range service.Backends {
		weight := backend.Weight
		if !backend.TakesNew() {
			weight = 0
		}
		shares = append(shares, share{backend.Name, weight, backend.Slot})
	}
	return buildTable(shares, c.fileHash, service.tableSize)
}

// sameShares says whether two lists of backends have the same Maglev table.
func sameShares(a, b []*Backend) bool {
	return slices.EqualFunc(a, b, func(a, b *Backend) bool {
		return a.Name == b.Name && a.Weight == b.Weight && a.Slot == b.Slot && a.TakesNew() == b.TakesNew()
	})
}

// list writes "a, b or c".
func list[T fmt.Stringer](values []T) string {
	names := make([]string, len(values))
	for i, v := range values {
		names[i] = v.String()
	}
	switch n := len(names); n {
	case 0:
		return "none"
	case 1:
		return names[0]
	default:
		return strings.Join(names[:n-1], ", ") + " or " + names[n-1]
	}
}
