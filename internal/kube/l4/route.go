package l4

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weir-lb/weir/internal/kube/operator"
	"github.com/weir-lb/weir/internal/kube/world"
)

// route is a UDPRoute or TCPRoute.
type route struct {
	object client.Object
	kind   string
	spec   *gatewayv1.CommonRouteSpec
	refs   []gatewayv1.BackendRef
	before *gatewayv1.RouteStatus
	change func(change func(*gatewayv1.RouteStatus)) operator.StatusChange

	targets  []target
	problems []problem // of references
	parents  []parent
}

// parent is one parentRef of a route that leads to a Gateway of this controller.
type parent struct {
	ref     gatewayv1.ParentReference
	gateway *gateway
	refused *problem // Accepted is false
}

// collectRoutes lists routes with a parent, or with a status, of this controller: the oldest first.
func (t *translation) collectRoutes() (all []*route) {
	for r := range world.All[*gatewayv1.UDPRoute](t.world) {
		n := &route{object: r, kind: "UDPRoute", spec: &r.Spec.CommonRouteSpec, before: &r.Status.RouteStatus}
		if len(r.Spec.Rules) > 0 {
			n.refs = r.Spec.Rules[0].BackendRefs
		}
		n.change = func(change func(*gatewayv1.RouteStatus)) operator.StatusChange {
			return operator.Status(r, func(c *gatewayv1.UDPRoute) { change(&c.Status.RouteStatus) })
		}
		all = append(all, n)
	}
	for r := range world.All[*gatewayv1.TCPRoute](t.world) {
		n := &route{object: r, kind: "TCPRoute", spec: &r.Spec.CommonRouteSpec, before: &r.Status.RouteStatus}
		if len(r.Spec.Rules) > 0 {
			n.refs = r.Spec.Rules[0].BackendRefs
		}
		n.change = func(change func(*gatewayv1.RouteStatus)) operator.StatusChange {
			return operator.Status(r, func(c *gatewayv1.TCPRoute) { change(&c.Status.RouteStatus) })
		}
		all = append(all, n)
	}
	slices.SortStableFunc(all, func(a, b *route) int { return byAge(a.object, b.object) })
	return all
}

// attach finds the listeners of each parent and attaches the route to them.
func (t *translation) attach(r *route) {
	if r.object.GetDeletionTimestamp() != nil {
		return
	}
	for i := range r.spec.ParentRefs {
		ref := &r.spec.ParentRefs[i]
		g := t.gatewayOf(r, ref)
		if g == nil {
			continue
		}
		p := parent{ref: *ref, gateway: g}
		named, attached := 0, 0
		for _, l := range g.listeners {
			if ref.SectionName != nil && *ref.SectionName != l.spec.Name || ref.Port != nil && *ref.Port != l.spec.Port {
				continue
			}
			named++
			if !t.allows(l, r) {
				continue
			}
			if l.refused == nil {
				attached++
			}
			if !slices.Contains(l.routes, r) {
				l.routes = append(l.routes, r)
			}
		}
		switch {
		case named == 0:
			p.refused = &problem{string(gatewayv1.RouteReasonNoMatchingParent), fmt.Sprintf("Gateway %s has no listener %s", key(g.object), section(ref))}
		case attached == 0:
			p.refused = &problem{string(gatewayv1.RouteReasonNotAllowedByListeners), fmt.Sprintf("no valid listener %s of Gateway %s takes a %s of namespace %s", section(ref), key(g.object), r.kind, r.object.GetNamespace())}
		}
		r.parents = append(r.parents, p)
	}
}

// section says which listeners a reference means.
func section(ref *gatewayv1.ParentReference) string {
	text := "at all"
	if ref.SectionName != nil {
		text = fmt.Sprintf("with the name %q", *ref.SectionName)
	}
	if ref.Port != nil {
		text += fmt.Sprintf(" on port %d", *ref.Port)
	}
	return text
}

// gatewayOf is the Gateway of this controller that a reference leads to; nil: something else.
func (t *translation) gatewayOf(r *route, ref *gatewayv1.ParentReference) *gateway {
	if ref.Group != nil && *ref.Group != gatewayv1.GroupName || ref.Kind != nil && *ref.Kind != "Gateway" {
		return nil
	}
	namespace := r.object.GetNamespace()
	if ref.Namespace != nil {
		namespace = string(*ref.Namespace)
	}
	return t.byName[types.NamespacedName{Namespace: namespace, Name: string(ref.Name)}]
}
