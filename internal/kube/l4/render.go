package l4

import (
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"strings"

	"github.com/weir-lb/weir/internal/kube/operator"
)

// intent is what the conditions of a Gateway or Service wait for: everything of a service but its endpoints.
type intent struct {
	Service string
	VIPs    []string
	Route   string
	Targets []string
}

// renderGateway renders the listeners of a Gateway that have a route.
func (t *translation) renderGateway(g *gateway) {
	var intents []intent
	for _, l := range g.listeners {
		if !l.serves() {
			continue
		}
		var targets []target
		route := ""
		if len(l.routes) > 0 {
			targets, route = l.routes[0].targets, l.routes[0].kind+" "+key(l.routes[0].object)
		}
		id := []string{g.object.Namespace, g.object.Name, string(l.spec.Name)}
		intents = append(intents, t.render(id, route, strings.ToLower(string(l.spec.Protocol)), l.spec.Port, g.vips(), targets, "")...)
	}
	g.digest = t.piece("Gateway "+key(g.object), intents)
}

// piece adds what conditions wait for, and returns its digest.
func (t *translation) piece(name string, intents []intent) string {
	if len(intents) == 0 {
		return ""
	}
	text, err := json.Marshal(intents)
	if err != nil {
		panic(err) // strings alone
	}
	t.pieces[name] = operator.Digest(text)
	return t.pieces[name]
}

// render adds one service for each family of the addresses.
func (t *translation) render(id []string, route, protocol string, port int32, vips []netip.Addr, targets []target, affinity string) (intents []intent) {
	for _, is6 := range []bool{false, true} {
		s := serviceDocument{Name: name(id...), Affinity: affinity}
		if is6 {
			s.Name = name(append(id[:len(id):len(id)], "ipv6")...)
		}
		n := intent{Service: s.Name, Route: route}
		for _, vip := range vips {
			if vip.Is6() == is6 {
				s.VIPs = append(s.VIPs, vipDocument{vip.String(), protocol, port})
				n.VIPs = append(n.VIPs, fmt.Sprintf("%s %s %d", protocol, vip, port))
			}
		}
		if len(s.VIPs) == 0 {
			continue
		}
		s.Backends = t.backends(protocol, targets, is6)
		for _, target := range targets {
			n.Targets = append(n.Targets, fmt.Sprintf("%s:%d weight %d found %t", target.name, target.port, target.weight, target.service != nil))
		}
		t.document.Services = append(t.document.Services, s)
		intents = append(intents, n)
	}
	return intents
}

const maxWeight = 10000 // of a backend

// backends divides the shares of targets among their endpoints. A target without endpoints keeps its share: a backend that
// drops (UDP) or rejects (TCP) takes its place, as the Gateway API wants it.
func (t *translation) backends(protocol string, targets []target, is6 bool) (all []backendDocument) {
	total, largest := 0, 0.0
	for _, target := range targets {
		total += target.weight
	}
	type part struct {
		backend backendDocument
		share   float64
	}
	var parts []part
	at := map[string]int{}
	add := func(b backendDocument, share float64) {
		where := fmt.Sprintf("%s %s %d", b.Action, b.Address, b.Port)
		i, ok := at[where]
		if !ok {
			i = len(parts)
			at[where], parts = i, append(parts, part{backend: b})
		}
		parts[i].share += share // the same destination of two targets, or twice in one, is one backend
		largest = max(largest, parts[i].share)
	}
	for _, target := range targets {
		share := float64(target.weight) / float64(max(total, 1))
		endpoints := t.endpointsOf(&target, is6)
		taking := 0
		for _, e := range endpoints {
			if !e.drains {
				taking++
			}
		}
		if taking == 0 {
			add(backendDocument{Name: "none", Action: refusal(protocol)}, share)
			continue
		}
		for _, e := range endpoints {
			b := backendDocument{Name: e.pod, Address: e.address.Addr().String(), Port: e.address.Port()}
			if e.drains {
				add(b, 0)
			} else {
				add(b, share/float64(taking))
			}
		}
	}
	if total == 0 { // no route, or weights of zero alone
		add(backendDocument{Name: "none", Action: refusal(protocol)}, 1)
	}
	for _, p := range parts {
		if p.share > 0 {
			p.backend.Weight = max(1, int(math.Round(p.share/largest*maxWeight)))
		} else if p.backend.Action != "" {
			continue
		}
		all = append(all, p.backend)
	}
	return named(all)
}

// refusal is what becomes of packets that no endpoint can take.
func refusal(protocol string) string {
	if protocol == "tcp" {
		return "reject"
	}
	return "drop"
}

// named gives each backend a name of its own: that of its Pod where that is unique, else its address.
func named(all []backendDocument) []backendDocument {
	count := map[string]int{}
	for i := range all {
		count[all[i].Name]++
	}
	for i := range all {
		b := &all[i]
		if b.Action == "" && (b.Name == "" || b.Name == "none" || count[b.Name] > 1) {
			b.Name = netip.AddrPortFrom(netip.MustParseAddr(b.Address), b.Port).String()
		}
		b.Name = name(b.Name)
	}
	return all
}

func (t *translation) endpointsOf(n *target, is6 bool) []endpoint {
	if n.service == nil {
		return nil
	}
	return t.slices.endpoints(key(n.service), n.portName, is6)
}
