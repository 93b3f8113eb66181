package l4

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/weir-lb/weir/internal/kube/l4/policyv1alpha1"
)

// place is one port that the load balancer serves: that of a listener with or without a route, or of a Service.
type place struct {
	id       []string // makes the names of its services
	title    string   // for messages
	route    string   // that serves it; empty: none
	protocol string   // in small letters
	port     int32
	vips     []netip.Addr
	targets  []target
	affinity string   // of the Service
	sources  []string // of the Service
	owner    *piece   // of the Gateway or Service

	attached [][]string               // targets of policies that decide here: the most specific ones first
	policy   *policy                  // that decides here; nil: none
	settings *policyv1alpha1.Settings // in force; nil: none
}

// keepsPorts says whether packets reach endpoints with the port of the place.
func (p *place) keepsPorts() bool {
	return p.settings != nil && keepsPorts(p.settings)
}

func keepsPorts(s *policyv1alpha1.Settings) bool { return s.Mode != "" && s.Mode != "nat" }

// collectPlaces lists what is served.
func (t *translation) collectPlaces() {
	for _, g := range t.gateways {
		for _, l := range g.listeners {
			if l.serves() {
				g.places = append(g.places, l.place())
			}
		}
		t.places = append(t.places, g.places...)
	}
	for _, s := range t.services {
		s.places = s.collect()
		t.places = append(t.places, s.places...)
	}
}

func (l *listener) place() *place {
	g := l.gateway
	p := &place{
		id: []string{g.object.Namespace, g.object.Name, string(l.spec.Name)}, title: fmt.Sprintf("listener %q of Gateway %s", l.spec.Name, key(g.object)),
		protocol: strings.ToLower(string(l.spec.Protocol)), port: l.spec.Port, vips: g.vips(), owner: &g.piece,
	}
	if len(l.routes) > 0 {
		r := l.routes[0]
		p.targets, p.route = r.targets, r.kind+" "+key(r.object)
		var services []string
		for i := range r.targets {
			if r.targets[i].service != nil {
				services = append(services, "Service "+r.targets[i].name)
			}
		}
		p.attached = append(p.attached, services, []string{p.route})
	}
	whole := "Gateway " + key(g.object)
	p.attached = append(p.attached, []string{whole + "/" + string(l.spec.Name)}, []string{whole})
	return p
}

// collect are the places of a Service's ports.
func (s *service) collect() (all []*place) {
	if s.addresses.invalid != nil {
		return nil
	}
	affinity := ""
	if s.object.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		affinity = "source"
	}
	vips := slices.Clone(s.addresses.assigned)
	slices.SortFunc(vips, netip.Addr.Compare)
	for i := range s.object.Spec.Ports {
		port := &s.object.Spec.Ports[i]
		protocol := strings.ToLower(string(protocolOf(port)))
		all = append(all, &place{
			id: []string{"service", s.object.Namespace, s.object.Name, fmt.Sprint(port.Port), protocol}, title: fmt.Sprintf("port %d of Service %s", port.Port, key(s.object)),
			protocol: protocol, port: port.Port, vips: vips, affinity: affinity, sources: s.sources, owner: &s.piece,
			targets:  []target{{name: key(s.object), weight: 1, service: s.object, portName: port.Name, port: port.Port}},
			attached: [][]string{{"Service " + key(s.object)}},
		})
	}
	return all
}
