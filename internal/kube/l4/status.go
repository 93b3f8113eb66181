package l4

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weir-lb/weir/internal/kube/conditions"
	"github.com/weir-lb/weir/internal/kube/operator"
)

func (t *translation) writeStatuses() {
	for _, g := range t.gateways {
		t.gatewayStatus(g)
	}
	for _, s := range t.services {
		t.serviceStatus(s)
	}
	for _, r := range t.routes {
		t.routeStatus(r)
	}
	for _, p := range t.policies {
		t.policyStatus(p)
	}
}

const (
	accepted   = string(gatewayv1.GatewayConditionAccepted)
	programmed = string(gatewayv1.GatewayConditionProgrammed)
	resolved   = string(gatewayv1.ListenerConditionResolvedRefs)
	conflicted = string(gatewayv1.ListenerConditionConflicted)
)

func (t *translation) gatewayStatus(g *gateway) {
	t.result.Statuses = append(t.result.Statuses, operator.Status(g.object, func(c *gatewayv1.Gateway) {
		programmedNow := t.gatewayConditions(g, c)
		t.listenerStatus(g, c, programmedNow)
		c.Status.Addresses = nil
		for _, address := range g.addresses.assigned {
			c.Status.Addresses = append(c.Status.Addresses, gatewayv1.GatewayStatusAddress{Type: new(gatewayv1.IPAddressType), Value: address.String()})
		}
	}))
	for _, p := range []*problem{g.refused, g.addresses.invalid, g.addresses.refused} {
		if p != nil {
			t.event(g, p)
		}
	}
	for _, l := range g.listeners {
		if l.refused != nil {
			t.event(g, &problem{l.refused.reason, fmt.Sprintf("listener %q: %s", l.spec.Name, l.refused.message)})
		}
	}
}

func (t *translation) event(g *gateway, p *problem) {
	t.result.Events = append(t.result.Events, operator.Event{Object: g.object, Warning: true, Reason: p.reason, Action: "Translate", Note: p.message})
}

// gatewayConditions writes the conditions of the Gateway and returns whether its listeners are programmed.
func (t *translation) gatewayConditions(g *gateway, c *gatewayv1.Gateway) bool {
	set := conditions.New(c.Status.Conditions, c.Generation, t.world.Now)
	bad, serving := 0, 0
	for _, l := range g.listeners {
		if l.refused != nil || l.badKinds != "" {
			bad++
		}
		if l.serves() {
			serving++
		}
	}
	invalid := string(gatewayv1.GatewayReasonListenersNotValid)
	problem := g.refused
	if problem == nil {
		problem = g.addresses.invalid
	}
	switch {
	case problem != nil:
		set.False(accepted, problem.reason, problem.message)
	case serving == 0:
		set.False(accepted, invalid, "no listener can be served")
	case bad > 0:
		set.True(accepted, invalid, fmt.Sprintf("%d of %d listeners are not valid", bad, len(g.listeners)))
	default:
		set.True(accepted, accepted, "")
	}
	t.setProgrammed(g, c, set)
	c.Status.Conditions = set.All()
	return set.Is(programmed)
}

func (t *translation) setProgrammed(g *gateway, c *gatewayv1.Gateway, set *conditions.Set) {
	a := &g.addresses
	switch {
	case !set.Is(accepted):
		set.False(programmed, string(gatewayv1.GatewayReasonInvalid), "the Gateway is not accepted")
	case len(a.assigned) == 0 || a.refused != nil:
		p := a.refused
		if p == nil {
			p = &problem{string(gatewayv1.GatewayReasonAddressNotAssigned), "this controller has no pools of addresses; name addresses in spec.addresses"}
		}
		set.False(programmed, p.reason, p.message)
	case t.refused(&g.piece):
		set.False(programmed, string(gatewayv1.GatewayReasonPending), t.pending())
	case t.applied(&g.piece) || t.wasProgrammed(g):
		set.True(programmed, programmed, "")
	default:
		set.False(programmed, string(gatewayv1.GatewayReasonPending), t.pending())
	}
}

// pending is the message of what the data path has not applied.
func (t *translation) pending() string {
	if reason := t.world.Refused[Plane]; reason != "" {
		return "the data path refuses the configuration: " + reason
	}
	return "the data path has not applied it yet"
}

// wasProgrammed says whether the same generation was programmed with the same addresses: what routes change is no matter of the Gateway.
func (t *translation) wasProgrammed(g *gateway) bool {
	old := conditions.Find(g.object.Status.Conditions, programmed)
	if old == nil || old.Status != metav1.ConditionTrue || old.ObservedGeneration != g.object.Generation {
		return false
	}
	var has []netip.Addr
	for _, a := range g.object.Status.Addresses {
		if address, err := netip.ParseAddr(a.Value); err == nil {
			has = append(has, address)
		}
	}
	return sameAddresses(has, g.addresses.assigned)
}

func (t *translation) listenerStatus(g *gateway, c *gatewayv1.Gateway, programmedNow bool) {
	before := c.Status.Listeners
	c.Status.Listeners = nil
	for _, l := range g.listeners {
		var old []metav1.Condition
		for i := range before {
			if before[i].Name == l.spec.Name {
				old = before[i].Conditions
			}
		}
		set := conditions.New(old, c.Generation, t.world.Now)
		if l.conflict {
			set.True(conflicted, string(gatewayv1.ListenerReasonProtocolConflict), l.refused.message)
		} else {
			set.False(conflicted, string(gatewayv1.ListenerReasonNoConflicts), "")
		}
		if l.refused != nil {
			set.False(accepted, l.refused.reason, l.refused.message)
		} else {
			set.True(accepted, accepted, "")
		}
		if l.badKinds != "" {
			set.False(resolved, string(gatewayv1.ListenerReasonInvalidRouteKinds), l.badKinds)
		} else {
			set.True(resolved, resolved, "")
		}
		switch {
		case !l.serves():
			set.False(programmed, string(gatewayv1.ListenerReasonInvalid), "the listener is not valid")
		case !programmedNow:
			set.False(programmed, string(gatewayv1.ListenerReasonPending), "the Gateway is not programmed")
		default:
			set.True(programmed, programmed, "")
		}
		c.Status.Listeners = append(c.Status.Listeners, gatewayv1.ListenerStatus{
			Name: l.spec.Name, SupportedKinds: l.kinds, AttachedRoutes: int32(len(l.routes)), Conditions: set.All(),
		})
	}
}

// routeStatus writes the entries of this controller's parents, and leaves those of others alone.
func (t *translation) routeStatus(r *route) {
	ours := func(s *gatewayv1.RouteParentStatus) bool { return s.ControllerName == ControllerName }
	has := false
	for i := range r.before.Parents {
		has = has || ours(&r.before.Parents[i])
	}
	if !has && len(r.parents) == 0 {
		return
	}
	t.result.Statuses = append(t.result.Statuses, r.change(func(status *gatewayv1.RouteStatus) {
		before := status.Parents
		all := []gatewayv1.RouteParentStatus{}
		done := make([]bool, len(r.parents))
		for i := range before {
			old := &before[i]
			if !ours(old) {
				all = append(all, *old)
				continue
			}
			for j := range r.parents {
				if !done[j] && reflect.DeepEqual(r.parents[j].ref, old.ParentRef) {
					done[j] = true
					all = append(all, t.parentStatus(r, &r.parents[j], old)...)
					break
				}
			}
		}
		for j := range r.parents {
			if !done[j] {
				all = append(all, t.parentStatus(r, &r.parents[j], nil)...)
			}
		}
		status.Parents = all
	}))
}

// parentStatus is the entry of one parent, which may be nil. It stays as it was while the data path has not applied the route.
func (t *translation) parentStatus(r *route, p *parent, old *gatewayv1.RouteParentStatus) []gatewayv1.RouteParentStatus {
	if p.refused == nil && p.gateway.piece.intent != "" && !t.applied(&p.gateway.piece) {
		if old == nil {
			return nil
		}
		return []gatewayv1.RouteParentStatus{*old}
	}
	var before []metav1.Condition
	if old != nil {
		before = old.Conditions
	}
	set := conditions.New(before, r.object.GetGeneration(), t.world.Now)
	if p.refused != nil {
		set.False(accepted, p.refused.reason, p.refused.message)
	} else {
		set.True(accepted, string(gatewayv1.RouteReasonAccepted), "")
	}
	if len(r.problems) > 0 {
		var messages []string
		for _, p := range r.problems {
			messages = append(messages, p.message)
		}
		set.False(resolved, r.problems[0].reason, strings.Join(messages, "; "))
	} else {
		set.True(resolved, resolved, "")
	}
	return []gatewayv1.RouteParentStatus{{ParentRef: p.ref, ControllerName: ControllerName, Conditions: set.All()}}
}
