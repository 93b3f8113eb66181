package l4

import (
	"slices"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weir-lb/weir/internal/kube/conditions"
	"github.com/weir-lb/weir/internal/kube/operator"
	"github.com/weir-lb/weir/internal/kube/world"
)

// ControllerName is spec.controllerName of the GatewayClasses that this package serves.
const ControllerName = "weir-lb.github.io/l4"

// Controller returns the controller, for the operator.
func Controller() operator.Controller {
	return operator.Controller{
		Name:      ControllerName,
		Kinds:     []operator.Kind{{Object: &gatewayv1.GatewayClass{}, List: &gatewayv1.GatewayClassList{}}},
		Translate: Translate,
	}
}

// Translate renders the world.
func Translate(w *world.World) (r operator.Result) {
	for class := range world.All[*gatewayv1.GatewayClass](w) {
		if class.Spec.ControllerName == ControllerName {
			r.Statuses = append(r.Statuses, operator.Status(class, func(c *gatewayv1.GatewayClass) { acceptClass(w, c) }))
		}
	}
	return r
}

func acceptClass(w *world.World, c *gatewayv1.GatewayClass) {
	set := conditions.New(c.Status.Conditions, c.Generation, w.Now)
	set.True(string(gatewayv1.GatewayClassConditionStatusAccepted), string(gatewayv1.GatewayClassReasonAccepted), "")
	c.Status.Conditions = set.All()
	names := []gatewayv1.FeatureName{"Gateway", "ReferenceGrant", "TCPRoute", "UDPRoute"}
	slices.Sort(names)
	c.Status.SupportedFeatures = nil
	for _, name := range names {
		c.Status.SupportedFeatures = append(c.Status.SupportedFeatures, gatewayv1.SupportedFeature{Name: name})
	}
}
