package controller

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayv1beta1 "sigs.k8s.io/gateway-api/apis/v1beta1"

	"github.com/weir-lb/weir/internal/kube/operator"
	"github.com/weir-lb/weir/internal/kube/turn"
	"github.com/weir-lb/weir/internal/kube/turn/stunnerv1"
	"github.com/weir-lb/weir/internal/kube/world"
)

func all[T client.Object](w *world.World) []T { return slices.Collect(world.All[T](w)) }

// worldOf selects what Translate reads.
func worldOf(w *world.World) *turn.World {
	read := &turn.World{
		Classes: all[*gatewayv1.GatewayClass](w), Gateways: all[*gatewayv1.Gateway](w), StandardRoutes: all[*gatewayv1.UDPRoute](w),
		Configs: all[*stunnerv1.GatewayConfig](w), Dataplanes: all[*stunnerv1.Dataplane](w), Routes: all[*stunnerv1.UDPRoute](w), StaticServices: all[*stunnerv1.StaticService](w),
		Services: all[*corev1.Service](w), Slices: all[*discoveryv1.EndpointSlice](w), Secrets: all[*corev1.Secret](w),
		Namespaces: all[*corev1.Namespace](w), Nodes: all[*corev1.Node](w),
		Deployments: all[*appsv1.Deployment](w), DaemonSets: all[*appsv1.DaemonSet](w), ConfigMaps: all[*corev1.ConfigMap](w), Grants: grants(w),
	}
	return read
}

func grants(w *world.World) (all []*gatewayv1.ReferenceGrant) {
	for grant := range world.All[*gatewayv1beta1.ReferenceGrant](w) { // v1beta1 is what older CRDs serve, too
		all = append(all, (*gatewayv1.ReferenceGrant)(grant))
	}
	return all
}

// statuses are the statuses of a result as changes of the objects of the world. Of a route only our own parents are changed, because other
// controllers change theirs in the same round.
func statuses(w *world.World, r *turn.Result, controller string) (changes []operator.StatusChange) {
	for _, o := range r.Classes {
		changes = append(changes, change(w, o, func(c *gatewayv1.GatewayClass) { c.Status.Conditions = o.Status.Conditions }))
	}
	for _, o := range r.Gateways {
		changes = append(changes, change(w, o, func(g *gatewayv1.Gateway) { g.Status = o.Status }))
	}
	for _, o := range r.Routes {
		changes = append(changes, change(w, o, func(u *stunnerv1.UDPRoute) { replaceParents(&u.Status.RouteStatus, &o.Status.RouteStatus, controller) }))
	}
	for _, o := range r.StandardRoutes {
		changes = append(changes, change(w, o, func(u *gatewayv1.UDPRoute) { replaceParents(&u.Status.RouteStatus, &o.Status.RouteStatus, controller) }))
	}
	return changes
}

// change is a change of that object of the world of which translated is a copy.
func change[T client.Object](w *world.World, translated T, change func(T)) operator.StatusChange {
	object, ok := world.Get[T](w, translated.GetNamespace(), translated.GetName())
	if !ok {
		object = translated // not reached: Translate makes up no object
	}
	return operator.Status(object, change)
}

// replaceParents replaces the parents of a controller.
func replaceParents(in, by *gatewayv1.RouteStatus, controller string) {
	parents := []gatewayv1.RouteParentStatus{}
	for _, p := range in.Parents {
		if string(p.ControllerName) != controller {
			parents = append(parents, p)
		}
	}
	for _, p := range by.Parents {
		if string(p.ControllerName) == controller {
			parents = append(parents, p)
		}
	}
	in.Parents = parents
}
