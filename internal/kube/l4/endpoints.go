package l4

import (
	"cmp"
	"net/netip"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/weir-lb/weir/internal/kube/world"
)

// endpoint is one address that answers for a Service's port.
type endpoint struct {
	address   netip.AddrPort
	namespace string // of the Pod
	pod       string // empty: not a Pod
	drains    bool   // it is ending, and still serves what it has
}

// endpointIndex has the EndpointSlices of each Service, by NAMESPACE/NAME.
type endpointIndex map[string][]*discoveryv1.EndpointSlice

func indexEndpoints(w *world.World) endpointIndex {
	index := endpointIndex{}
	for s := range world.All[*discoveryv1.EndpointSlice](w) {
		if name := s.Labels[discoveryv1.LabelServiceName]; name != "" {
			at := s.Namespace + "/" + name
			index[at] = append(index[at], s)
		}
	}
	return index
}

// endpoints are those of a Service's port in one family, in the order of their addresses. Ready ones take new flows, those that end and
// still serve keep theirs; if none is ready, the latter take new flows too, as kube-proxy does. All others are left out.
func (x endpointIndex) endpoints(service, portName string, is6 bool) (all []endpoint) {
	seen := map[netip.AddrPort]int{}
	for _, s := range x[service] {
		if (s.AddressType == discoveryv1.AddressTypeIPv6) != is6 || s.AddressType == discoveryv1.AddressTypeFQDN {
			continue
		}
		port, ok := portOf(s, portName)
		if !ok {
			continue
		}
		for i := range s.Endpoints {
			e := &s.Endpoints[i]
			up, drains := stateOf(&e.Conditions)
			if !up && !drains || len(e.Addresses) == 0 {
				continue
			}
			address, err := netip.ParseAddr(e.Addresses[0])
			if err != nil {
				continue
			}
			n := endpoint{address: netip.AddrPortFrom(address, port), drains: drains}
			if e.TargetRef != nil && e.TargetRef.Kind == "Pod" {
				n.namespace, n.pod = cmp.Or(e.TargetRef.Namespace, s.Namespace), e.TargetRef.Name
			}
			if at, twice := seen[n.address]; twice { // it moves from one slice to another
				all[at].drains = all[at].drains && drains
				continue
			}
			seen[n.address] = len(all)
			all = append(all, n)
		}
	}
	if !slices.ContainsFunc(all, func(e endpoint) bool { return !e.drains }) {
		for i := range all {
			all[i].drains = false
		}
	}
	slices.SortFunc(all, func(a, b endpoint) int { return cmp.Or(a.address.Compare(b.address), cmp.Compare(a.pod, b.pod)) })
	return all
}

func portOf(s *discoveryv1.EndpointSlice, name string) (uint16, bool) {
	for _, p := range s.Ports {
		if p.Port != nil && *p.Port > 0 && *p.Port <= 65535 && (p.Name == nil && name == "" || p.Name != nil && *p.Name == name) {
			return uint16(*p.Port), true
		}
	}
	return 0, false
}

// stateOf reads the conditions of an endpoint. What is unknown counts as ready, and as serving where it is ready.
func stateOf(c *discoveryv1.EndpointConditions) (up, drains bool) {
	ready := c.Ready == nil || *c.Ready
	serving := c.Serving == nil && ready || c.Serving != nil && *c.Serving
	terminating := c.Terminating != nil && *c.Terminating
	return ready, !ready && serving && terminating
}
