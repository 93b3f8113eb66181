package turn

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weir-lb/weir/internal/kube/turn/stunnerv1"
)

// translation is one run of Translate.
type translation struct {
	*index
	world   *World
	options Options
	now     metav1.Time
	routes  []*route
	gates   map[types.NamespacedName]*gate // Gateways of our classes
	result  Result
}

// gate is a Gateway of one of our classes, and what it is served with.
type gate struct {
	*gatewayv1.Gateway // a copy, whose status is written
	config             *stunnerv1.GatewayConfig
	plane              *stunnerv1.Dataplane
	auth               Auth
	wrong              error // with the class or its GatewayConfig: nothing of this Gateway is changed
	listeners          []*listener
	targets            map[string]int // targetPort of a listener, where an annotation says so
	nodes              map[string]int // nodePort of a listener, likewise
}

// Translate says what the World means. now is the time of conditions that change.
func Translate(w *World, o Options, now metav1.Time) *Result {
	o.Domain = cmp.Or(o.Domain, "cluster.local")
	t := &translation{index: newIndex(w), world: w, options: o, now: now, gates: map[types.NamespacedName]*gate{}}
	t.result.Configurations, t.result.Kept = map[types.NamespacedName]*Configuration{}, map[types.NamespacedName]bool{}
	for _, class := range sorted(w.Classes) {
		if string(class.Spec.ControllerName) == o.Controller {
			t.class(class)
		}
	}
	gates := t.sortedGates()
	for _, g := range gates {
		t.listeners(g)
	}
	if o.Legacy {
		t.share(gates)
	}
	t.routes = t.allRoutes()
	for _, r := range t.routes {
		t.route(r, gates)
	}
	for _, g := range gates {
		t.gateway(g)
	}
	if o.Legacy {
		t.configMaps(gates)
	}
	slices.SortStableFunc(t.result.Events, func(a, b Event) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), compareNames(nameOf(a.Object), nameOf(b.Object)))
	})
	return &t.result
}

func (t *translation) sortedGates() []*gate {
	all := make([]*gate, 0, len(t.gates))
	for _, g := range t.gates {
		all = append(all, g)
	}
	slices.SortFunc(all, func(a, b *gate) int { return compareNames(nameOf(a), nameOf(b)) })
	return all
}

// warn adds an event.
func (t *translation) warn(o metav1.Object, kind, reason, message string) {
	t.result.Events = append(t.result.Events, Event{Object: o, Kind: kind, Warning: true, Reason: reason, Message: message})
}

// gateway makes what serves a Gateway, and its status.
func (t *translation) gateway(g *gate) {
	t.result.Gateways = append(t.result.Gateways, g.Gateway)
	name := nameOf(g)
	if g.wrong != nil {
		t.result.Kept[name] = true
		t.stay(g)
		t.invalid(g)
		return
	}
	service, foreign := t.service(g)
	if service != nil && foreign == nil {
		t.result.Services = append(t.result.Services, service)
	}
	serving := t.pods(g)
	if foreign == nil {
		foreign = serving.foreign
	}
	t.addresses(g, service)
	t.result.Configurations[name] = t.configuration(g)
	t.status(g, foreign, serving)
}

// configuration is what the Pods of a Gateway are configured with.
func (t *translation) configuration(g *gate) *Configuration {
	probes := health
	if g.plane.Spec.DisableHealthCheck {
		probes = ""
	}
	c := &Configuration{
		Version: "v1",
		Admin: Admin{
			Name: nameOf(g).String(), LogLevel: deref(g.config.Spec.LogLevel, defaultLevel), Health: &probes, UserQuota: g.config.Spec.UserQuota,
			OffloadEngine: g.plane.Spec.OffloadEngine, OffloadInterfaces: g.plane.Spec.OffloadInterfaces,
		},
		Auth: g.auth, Listeners: []Listener{}, Clusters: []Cluster{},
	}
	if g.plane.Spec.EnableMetricsEndpoint {
		c.Admin.Metrics = metricsURL
	}
	used := map[*route]bool{}
	for _, l := range g.listeners {
		if !l.served() {
			continue
		}
		rendered := Listener{
			Name: g.Namespace + "/" + g.Name + "/" + string(l.Name), Protocol: l.protocol.stunner, Address: ownAddress, Port: l.port(g),
			PublicAddress: l.public.value, PublicPort: l.public.port, Cert: l.cert, Key: l.key, Routes: []string{},
		}
		if enabled(g.Annotations, annotationRelayAddress) {
			rendered.Address = nodeAddress
		}
		for _, r := range l.routes {
			rendered.Routes = append(rendered.Routes, r.String())
			used[r] = true
		}
		c.Listeners = append(c.Listeners, rendered)
	}
	for _, r := range t.routes {
		if used[r] {
			c.Clusters = append(c.Clusters, r.cluster)
		}
	}
	return c
}

func deref[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}
