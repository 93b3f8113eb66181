package l4

import (
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"strings"

	"github.com/weir-lb/weir/internal/kube/l4/policyv1alpha1"
	"github.com/weir-lb/weir/internal/kube/operator"
)

// intent is what the conditions of a Gateway or Service wait for: everything of a service but its endpoints.
type intent struct {
	Service  string
	VIPs     []string
	Route    string
	Sources  []string
	Targets  []string
	Settings *policyv1alpha1.Settings
}

// renderAll renders the places of one object, and returns its piece.
func (t *translation) renderAll(name string, places []*place) piece {
	var intents []intent
	for _, p := range places {
		intents = append(intents, t.render(p)...)
	}
	return t.newPiece(name, intents)
}

// piece is what was rendered for one object. The digests of an empty one are empty.
type piece struct {
	name   string
	intent string // digest of what conditions wait for
	whole  string // digest of everything, endpoints too
}

// newPiece makes the piece of an object from its intents and the last services of the document.
func (t *translation) newPiece(name string, intents []intent) piece {
	if len(intents) == 0 {
		return piece{name: name}
	}
	p := piece{name, digest(intents), digest(t.document.Services[len(t.document.Services)-len(intents):])}
	t.pieces[name] = p.intent + p.whole
	return p
}

// digest is half a Digest: the pieces of many configurations are remembered.
func digest(of any) string {
	text, err := json.Marshal(of)
	if err != nil {
		panic(err) // strings and numbers alone
	}
	return operator.Digest(text)[:16]
}

// applied says whether the data path runs the piece, but for endpoints.
func (t *translation) applied(p *piece) bool {
	running := t.world.Applied[Plane][p.name]
	return p.intent != "" && strings.HasPrefix(running, p.intent)
}

// refused says whether the data path refuses the present configuration, and runs the piece otherwise than it is there.
func (t *translation) refused(p *piece) bool {
	return t.world.Refused[Plane] != "" && p.intent != "" && t.world.Applied[Plane][p.name] != p.intent+p.whole
}

// render adds one service for each family of the addresses.
func (t *translation) render(p *place) (intents []intent) {
	for _, is6 := range []bool{false, true} {
		s := serviceDocument{Name: name(p.id...), Affinity: p.affinity, Sources: p.sources}
		if is6 {
			s.Name = name(append(p.id[:len(p.id):len(p.id)], "ipv6")...)
		}
		s.apply(p.settings)
		n := intent{Service: s.Name, Route: p.route, Sources: p.sources, Settings: p.settings}
		for _, vip := range p.vips {
			if vip.Is6() == is6 {
				s.VIPs = append(s.VIPs, vipDocument{vip.String(), p.protocol, p.port})
				n.VIPs = append(n.VIPs, fmt.Sprintf("%s %s %d", p.protocol, vip, p.port))
			}
		}
		if len(s.VIPs) == 0 {
			continue
		}
		s.Backends = t.backends(p, is6)
		s.MaglevSize = maglevSize(len(s.Backends))
		for _, target := range p.targets {
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
func (t *translation) backends(p *place, is6 bool) (all []backendDocument) {
	total, largest := 0, 0.0
	for _, target := range p.targets {
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
	for _, target := range p.targets {
		share := float64(target.weight) / float64(max(total, 1))
		endpoints := t.endpointsOf(&target, is6)
		taking := 0
		for _, e := range endpoints {
			if !e.drains {
				taking++
			}
		}
		if taking == 0 {
			add(backendDocument{Name: "none", Action: refusal(p.protocol)}, share)
			continue
		}
		for _, e := range endpoints {
			if e.drains {
				add(t.backend(p, &e), 0)
			} else {
				add(t.backend(p, &e), share/float64(taking))
			}
		}
	}
	if total == 0 { // no route, or weights of zero alone
		add(backendDocument{Name: "none", Action: refusal(p.protocol)}, 1)
	}
	for _, n := range parts {
		if n.share > 0 {
			n.backend.Weight = max(1, int(math.Round(n.share/largest*maxWeight)))
		} else if n.backend.Action != "" {
			continue
		}
		all = append(all, n.backend)
	}
	all = named(all)
	t.distinctNodes(p, all)
	return all
}

// backend is an endpoint in a place, without its weight.
func (t *translation) backend(p *place, e *endpoint) backendDocument {
	b := backendDocument{Name: e.pod, Address: e.address.Addr().String(), Port: e.address.Port(), Nodes: t.nodesOf(p, e)}
	if p.keepsPorts() {
		b.Port = 0
	}
	return b
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
