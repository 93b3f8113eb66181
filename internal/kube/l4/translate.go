package l4

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weir-lb/weir/internal/kube/conditions"
	"github.com/weir-lb/weir/internal/kube/operator"
	"github.com/weir-lb/weir/internal/kube/world"
)

// translation is the work of one call of Translate.
type translation struct {
	options  Options
	world    *world.World
	gateways []*gateway
	byName   map[types.NamespacedName]*gateway
	routes   []*route
	services []*service
	places   []*place
	policies []*policy
	compiled map[check]compiled
	slices   endpointIndex
	grants   []*gatewayv1.ReferenceGrant
	document document
	pieces   map[string]string
	result   operator.Result
}

// Translate renders the world.
func (o Options) Translate(w *world.World) operator.Result {
	t := &translation{options: o, world: w, slices: indexEndpoints(w), pieces: map[string]string{}, compiled: map[check]compiled{}, byName: map[types.NamespacedName]*gateway{}}
	t.document.HashKey = o.HashKey
	t.grants = slices.Collect(world.All[*gatewayv1.ReferenceGrant](w))
	classes := t.classes()
	for g := range world.All[*gatewayv1.Gateway](w) {
		if classes[string(g.Spec.GatewayClassName)] && g.DeletionTimestamp == nil {
			n := t.newGateway(g)
			t.gateways = append(t.gateways, n)
			t.byName[client.ObjectKeyFromObject(g)] = n
		}
	}
	t.services = loadBalancers(w)
	t.assignAddresses()
	t.routes = t.collectRoutes()
	for _, r := range t.routes {
		t.resolve(r)
		t.attach(r)
	}
	t.collectPlaces()
	t.settlePolicies()
	for _, g := range t.gateways {
		g.piece = t.renderAll("Gateway "+key(g.object), g.places)
	}
	for _, s := range t.services {
		s.piece = t.renderAll("Service "+key(s.object), s.places)
	}
	t.publish()
	t.writeStatuses()
	return t.result
}

// classes accepts the GatewayClasses of this controller, and returns which of them may be used.
func (t *translation) classes() map[string]bool {
	usable := map[string]bool{}
	for class := range world.All[*gatewayv1.GatewayClass](t.world) {
		if class.Spec.ControllerName != ControllerName {
			continue
		}
		usable[class.Name] = class.Spec.ParametersRef == nil
		t.result.Statuses = append(t.result.Statuses, operator.Status(class, t.acceptClass))
	}
	return usable
}

func (t *translation) acceptClass(c *gatewayv1.GatewayClass) {
	set := conditions.New(c.Status.Conditions, c.Generation, t.world.Now)
	accepted := string(gatewayv1.GatewayClassConditionStatusAccepted)
	if c.Spec.ParametersRef != nil {
		set.False(accepted, string(gatewayv1.GatewayClassReasonInvalidParameters), "spec.parametersRef: this controller has no parameters; remove it")
	} else {
		set.True(accepted, string(gatewayv1.GatewayClassReasonAccepted), "served by weir operator")
	}
	c.Status.Conditions = set.All()
	c.Status.SupportedFeatures = nil
	for _, name := range []gatewayv1.FeatureName{"Gateway", "ReferenceGrant", "TCPRoute", "UDPRoute"} {
		c.Status.SupportedFeatures = append(c.Status.SupportedFeatures, gatewayv1.SupportedFeature{Name: name})
	}
}

// publish makes the configuration of what was rendered.
func (t *translation) publish() {
	t.document.Announce = t.options.Announce.section(t.document.Services)
	t.result.Configs = []operator.Config{{Plane: Plane, Text: t.document.text(), Pieces: t.pieces}}
}

// byAge orders objects as the Gateway API resolves conflicts: the oldest first, then by namespace and name.
func byAge(a, b client.Object) int {
	x, y := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	return cmp.Or(compareTimes(x, y), cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
}

func compareTimes(a, b metav1.Time) int { return a.Compare(b.Time) }

// key names an object in pieces and messages.
func key(o client.Object) string { return o.GetNamespace() + "/" + o.GetName() }
