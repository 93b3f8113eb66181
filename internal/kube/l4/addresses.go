package l4

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// addresses are what an object asks for, what it has, and what it gets.
type addresses struct {
	asked    []netip.Addr
	any      int          // addresses of whatever value, besides
	held     []netip.Addr // by its status
	assigned []netip.Addr
	refused  *problem // Programmed is false
	invalid  *problem // Accepted is false
}

// AddressesAnnotation asks for addresses of a Service, separated by commas.
const AddressesAnnotation = ControllerName + "-addresses"

// claim is the addresses of one object.
type claim struct {
	object client.Object
	*addresses
}

// assignAddresses gives every Gateway and Service its addresses. What one has it keeps; then requests are met, the oldest first; then the
// others get the first free ones.
func (t *translation) assignAddresses() {
	var claims []claim
	for _, g := range t.gateways {
		g.addresses = gatewayAddresses(g.object)
		claims = append(claims, claim{g.object, &g.addresses})
	}
	for _, s := range t.services {
		claims = append(claims, claim{s.object, &s.addresses})
	}
	slices.SortStableFunc(claims, func(a, b claim) int { return byAge(a.object, b.object) })
	taken := map[netip.Addr]string{}
	for _, c := range claims {
		c.keep(taken, t.options.Pools)
	}
	for _, c := range claims {
		c.meet(taken, t.options.Pools)
	}
	for _, c := range claims {
		c.fill(taken, t.options.Pools)
	}
}

func gatewayAddresses(g *gatewayv1.Gateway) (a addresses) {
	for i, wanted := range g.Spec.Addresses {
		if wanted.Type != nil && *wanted.Type != gatewayv1.IPAddressType {
			a.invalid = &problem{string(gatewayv1.GatewayReasonUnsupportedAddress), fmt.Sprintf("spec.addresses[%d]: type %s is not supported; write an IPAddress", i, *wanted.Type)}
			continue
		}
		if wanted.Value == "" {
			a.any++
			continue
		}
		address, err := netip.ParseAddr(wanted.Value)
		if err != nil || address.Zone() != "" {
			a.invalid = &problem{string(gatewayv1.GatewayReasonUnsupportedAddress), fmt.Sprintf("spec.addresses[%d]: %q is no IP address", i, wanted.Value)}
			continue
		}
		a.asked = append(a.asked, address.Unmap())
	}
	if len(g.Spec.Addresses) == 0 {
		a.any = -1 // one of each family
	}
	for _, has := range g.Status.Addresses {
		if address, err := netip.ParseAddr(has.Value); err == nil {
			a.held = append(a.held, address)
		}
	}
	return a
}

// keep takes what the object has and may keep.
func (c claim) keep(taken map[netip.Addr]string, pools []netip.Prefix) {
	free := c.any
	for _, address := range c.held {
		asked := slices.Contains(c.asked, address)
		if taken[address] != "" || !asked && (free == 0 || !within(pools, address)) || asked && !usable(pools, address) {
			continue
		}
		if !asked && free > 0 {
			free--
		}
		taken[address] = key(c.object)
		c.assigned = append(c.assigned, address)
	}
}

// meet takes what the object asks for.
func (c claim) meet(taken map[netip.Addr]string, pools []netip.Prefix) {
	for _, address := range c.asked {
		switch owner := taken[address]; {
		case slices.Contains(c.assigned, address):
		case owner != "":
			c.refused = &problem{string(gatewayv1.GatewayReasonAddressNotUsable), fmt.Sprintf("address %s is that of %s", address, owner)}
		case !usable(pools, address):
			c.refused = &problem{string(gatewayv1.GatewayReasonAddressNotUsable), fmt.Sprintf("address %s is not in a pool of this controller", address)}
		default:
			taken[address] = key(c.object)
			c.assigned = append(c.assigned, address)
		}
	}
}

// fill takes free addresses of the pools.
func (c claim) fill(taken map[netip.Addr]string, pools []netip.Prefix) {
	if c.any == 0 || c.invalid != nil {
		return
	}
	for _, is6 := range []bool{false, true} {
		missing := c.any + len(c.asked) - len(c.assigned)
		if c.any < 0 { // one of each family that has a pool
			missing = 1
			for _, a := range c.assigned {
				if a.Is6() == is6 {
					missing = 0
				}
			}
		}
		for ; missing > 0; missing-- {
			address, ok := free(taken, pools, is6)
			if !ok {
				break
			}
			taken[address] = key(c.object)
			c.assigned = append(c.assigned, address)
		}
	}
	if len(c.assigned) < max(c.any+len(c.asked), 1) && c.refused == nil {
		c.refused = &problem{string(gatewayv1.GatewayReasonAddressNotAssigned), "the pools of this controller have no free address"}
	}
}

// usable says whether an address may be asked for: with pools one of them has it.
func usable(pools []netip.Prefix, address netip.Addr) bool {
	return len(pools) == 0 && !address.IsUnspecified() && !address.IsLoopback() && !address.IsMulticast() || within(pools, address)
}

func within(pools []netip.Prefix, address netip.Addr) bool {
	return slices.ContainsFunc(pools, func(p netip.Prefix) bool { return p.Contains(address) && !reserved(p, address) })
}

// reserved says whether an address is the first or last one of an IPv4 pool, which networks use, or the first one of an IPv6 pool.
func reserved(p netip.Prefix, address netip.Addr) bool {
	if p.Bits() >= address.BitLen()-1 {
		return false
	}
	return address == p.Masked().Addr() || address.Is4() && !p.Contains(address.Next())
}

// maxTried bounds the search in a pool that is larger than anyone uses.
const maxTried = 1 << 16

// free is the first free address of a family.
func free(taken map[netip.Addr]string, pools []netip.Prefix, is6 bool) (netip.Addr, bool) {
	for _, p := range pools {
		if p.Addr().Is6() != is6 {
			continue
		}
		address := p.Masked().Addr()
		for tried := 0; tried < maxTried && p.Contains(address); tried++ {
			if taken[address] == "" && !reserved(p, address) {
				return address, true
			}
			address = address.Next()
		}
	}
	return netip.Addr{}, false
}

// ingress are the addresses that a Service has by its status.
func ingress(s *corev1.Service) (all []netip.Addr) {
	for _, i := range s.Status.LoadBalancer.Ingress {
		if address, err := netip.ParseAddr(i.IP); err == nil {
			all = append(all, address)
		}
	}
	return all
}
