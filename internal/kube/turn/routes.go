package turn

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weir-lb/weir/internal/kube/turn/stunnerv1"
)

// route is a UDPRoute, the standard one or STUNner's.
type route struct {
	types.NamespacedName
	object   metav1.Object // a copy, whose status is written
	group    string
	parents  []gatewayv1.ParentReference
	rules    [][]stunnerv1.BackendRef
	status   *gatewayv1.RouteStatus
	masked   bool // a route of STUNner's has the same name
	cluster  Cluster
	resolved metav1.Condition
	related  bool // a parent of it is ours
}

// allRoutes are the routes of both groups, by name.
func (t *translation) allRoutes() []*route {
	own := map[types.NamespacedName]bool{}
	var all []*route
	for _, from := range sorted(t.world.Routes) {
		copied := from.DeepCopy()
		r := &route{NamespacedName: nameOf(from), object: copied, group: stunnerv1.Group, parents: copied.Spec.ParentRefs, status: &copied.Status.RouteStatus}
		for i := range copied.Spec.Rules {
			r.rules = append(r.rules, copied.Spec.Rules[i].BackendRefs)
		}
		own[r.NamespacedName] = true
		all = append(all, r)
	}
	for _, from := range sorted(t.world.StandardRoutes) {
		copied := from.DeepCopy()
		r := &route{NamespacedName: nameOf(from), object: copied, group: gatewayv1.GroupName, parents: copied.Spec.ParentRefs, status: &copied.Status.RouteStatus}
		r.masked = own[r.NamespacedName]
		for i := range copied.Spec.Rules {
			var refs []stunnerv1.BackendRef
			for _, b := range copied.Spec.Rules[i].BackendRefs { // its port is that of the Service, and peers are reached at theirs: it does not restrict them
				refs = append(refs, stunnerv1.BackendRef{Group: b.Group, Kind: b.Kind, Name: b.Name, Namespace: b.Namespace})
			}
			r.rules = append(r.rules, refs)
		}
		all = append(all, r)
	}
	slices.SortStableFunc(all, func(a, b *route) int { return compareNames(a.NamespacedName, b.NamespacedName) })
	return all
}

// route attaches a route to the listeners of its parents, and writes its status.
func (t *translation) route(r *route, gates []*gate) {
	statuses := []gatewayv1.RouteParentStatus{}
	for i := range r.status.Parents { // of other controllers
		if p := r.status.Parents[i]; string(p.ControllerName) != t.options.Controller {
			statuses = append(statuses, p)
		}
	}
	for i := range r.parents {
		g, ours := t.parent(r, &r.parents[i])
		if !ours {
			continue
		}
		if !r.related {
			r.related = true
			t.cluster(r)
		}
		status := gatewayv1.RouteParentStatus{ParentRef: r.parents[i], ControllerName: gatewayv1.GatewayController(t.options.Controller), Conditions: r.before(&r.parents[i], t.options.Controller)}
		t.set(&status.Conditions, r.object.GetGeneration(), t.attach(r, &r.parents[i], g))
		t.set(&status.Conditions, r.object.GetGeneration(), r.resolved)
		statuses = append(statuses, status)
	}
	if before := len(r.status.Parents); !r.related && before == len(statuses) {
		return // it is none of ours, and was none
	}
	r.status.Parents = statuses
	switch object := r.object.(type) {
	case *stunnerv1.UDPRoute:
		t.result.Routes = append(t.result.Routes, object)
	case *gatewayv1.UDPRoute:
		t.result.StandardRoutes = append(t.result.StandardRoutes, object)
	}
}

// before are the conditions that the route has for a parent.
func (r *route) before(ref *gatewayv1.ParentReference, controller string) []metav1.Condition {
	for i := range r.status.Parents {
		if p := &r.status.Parents[i]; string(p.ControllerName) == controller && sameParent(&p.ParentRef, ref) {
			return slices.Clone(p.Conditions)
		}
	}
	return []metav1.Condition{}
}

func sameParent(a, b *gatewayv1.ParentReference) bool {
	return a.Name == b.Name && deref(a.Group, gatewayv1.GroupName) == deref(b.Group, gatewayv1.GroupName) && deref(a.Kind, "Gateway") == deref(b.Kind, "Gateway") &&
		deref(a.Namespace, "") == deref(b.Namespace, "") && deref(a.SectionName, "") == deref(b.SectionName, "") && deref(a.Port, 0) == deref(b.Port, 0)
}

// parent is the Gateway that a reference means, and whether it is for us to say something about it: a Gateway that does not exist is,
// if the route is of STUNner's group, which no other controller reads.
func (t *translation) parent(r *route, ref *gatewayv1.ParentReference) (g *gate, ours bool) {
	if deref(ref.Group, gatewayv1.GroupName) != gatewayv1.GroupName || deref(ref.Kind, "Gateway") != "Gateway" {
		return nil, false
	}
	name := types.NamespacedName{Namespace: string(deref(ref.Namespace, gatewayv1.Namespace(r.Namespace))), Name: string(ref.Name)}
	if g = t.gates[name]; g != nil {
		return g, true
	}
	return nil, t.gateways[name] == nil && r.group == stunnerv1.Group
}

// attach attaches a route to those listeners of a Gateway that its reference means and that allow it.
func (t *translation) attach(r *route, ref *gatewayv1.ParentReference, g *gate) metav1.Condition {
	const kind = gatewayv1.RouteConditionAccepted
	switch {
	case g == nil:
		return no(kind, gatewayv1.RouteReasonNoMatchingParent, fmt.Sprintf("there is no Gateway %s; create it, or write the namespace of another one", ref.Name))
	case r.masked:
		return no(kind, gatewayv1.RouteReasonPending, "a UDPRoute of "+stunnerv1.Group+" has the same name and namespace and is used instead; delete one of both")
	}
	reason, message := gatewayv1.RouteReasonNoMatchingParent, ""
	attached := false
	for _, l := range g.listeners {
		if ref.SectionName != nil && *ref.SectionName != l.Name || ref.Port != nil && *ref.Port != l.Port {
			continue
		}
		if refusal := t.refuses(r, g, l); refusal != "" {
			reason, message = gatewayv1.RouteReasonNotAllowedByListeners, refusal
			continue
		}
		attached = true
		if !slices.Contains(l.routes, r) {
			l.routes = append(l.routes, r)
		}
	}
	if attached {
		return yes(kind, gatewayv1.RouteReasonAccepted, "accepted by Gateway "+nameOf(g).String())
	}
	if message == "" {
		message = fmt.Sprintf("Gateway %s has no listener with the sectionName or port of the parentRef; write one that it has", nameOf(g))
	}
	return no(kind, reason, message)
}

// refuses says why a listener does not take a route; empty if it does.
func (t *translation) refuses(r *route, g *gate, l *listener) string {
	if !slices.ContainsFunc(l.kinds, func(k gatewayv1.RouteGroupKind) bool { return string(*k.Group) == r.group }) {
		return fmt.Sprintf("listener %s allows no UDPRoute of group %s (allowedRoutes.kinds)", l.Name, r.group)
	}
	allowed := gatewayv1.NamespacesFromSame
	if l.AllowedRoutes != nil && l.AllowedRoutes.Namespaces != nil {
		allowed = deref(l.AllowedRoutes.Namespaces.From, allowed)
	}
	switch allowed {
	case gatewayv1.NamespacesFromAll:
		return ""
	case gatewayv1.NamespacesFromSelector:
		selector, err := metav1.LabelSelectorAsSelector(l.AllowedRoutes.Namespaces.Selector)
		if err != nil {
			return fmt.Sprintf("listener %s: allowedRoutes.namespaces.selector: %v", l.Name, err)
		}
		if namespace := t.namespaces[types.NamespacedName{Name: r.Namespace}]; namespace != nil && selector.Matches(labels.Set(namespace.Labels)) {
			return ""
		}
		return fmt.Sprintf("listener %s allows routes of certain namespaces, and the labels of %s are others (allowedRoutes.namespaces.selector)", l.Name, r.Namespace)
	case gatewayv1.NamespacesFromSame:
		if r.Namespace == g.Namespace {
			return ""
		}
		return fmt.Sprintf("listener %s allows routes of namespace %s, and the route is of %s (allowedRoutes.namespaces)", l.Name, g.Namespace, r.Namespace)
	}
	return fmt.Sprintf("listener %s allows no routes (allowedRoutes.namespaces.from: %s)", l.Name, allowed)
}
