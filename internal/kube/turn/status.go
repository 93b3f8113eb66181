package turn

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// invalid is the status of a Gateway whose class or GatewayConfig is wrong: what it had before stays.
func (t *translation) invalid(g *gate) {
	message := g.wrong.Error()
	if t.world.Previous[nameOf(g)] != nil {
		message += "; the configuration before stays in force"
	}
	t.set(&g.Status.Conditions, g.Generation, no(gatewayv1.GatewayConditionAccepted, gatewayv1.GatewayReasonPending, message))
	t.set(&g.Status.Conditions, g.Generation, no(gatewayv1.GatewayConditionProgrammed, gatewayv1.GatewayReasonInvalid, message))
	g.Status.Listeners = t.listenerStatuses(g, no(gatewayv1.ListenerConditionProgrammed, gatewayv1.ListenerReasonInvalid, message).Message)
	t.warn(g.Gateway, "Gateway", "Invalid", message)
}

// status writes the status of a Gateway.
func (t *translation) status(g *gate, foreign error, pods serving) {
	g.Status.Addresses = []gatewayv1.GatewayStatusAddress{}
	for _, l := range g.listeners {
		one := gatewayv1.GatewayStatusAddress{Type: new(l.public.kind), Value: l.public.value}
		if l.public.value != "" && !slices.ContainsFunc(g.Status.Addresses, func(a gatewayv1.GatewayStatusAddress) bool { return a.Value == one.Value }) {
			g.Status.Addresses = append(g.Status.Addresses, one)
		}
	}
	served := 0
	for _, l := range g.listeners {
		if l.served() {
			served++
		}
	}
	accepted, programmed := g.accepted(served), g.programmed(served, foreign, pods)
	t.set(&g.Status.Conditions, g.Generation, accepted)
	t.set(&g.Status.Conditions, g.Generation, programmed)
	reason := ""
	if programmed.Status != "True" {
		reason = programmed.Message
	}
	g.Status.Listeners = t.listenerStatuses(g, reason)
	if foreign != nil {
		t.warn(g.Gateway, "Gateway", "Invalid", foreign.Error())
	}
}

// accepted says whether a Gateway is served.
func (g *gate) accepted(served int) metav1.Condition {
	const kind = gatewayv1.GatewayConditionAccepted
	wrong := len(g.listeners) - served
	switch {
	case len(g.Spec.Addresses) > 0 && !supported(g.Spec.Addresses[0].Type):
		return no(kind, gatewayv1.GatewayReasonUnsupportedAddress, fmt.Sprintf("spec.addresses[0]: type %s is not known here; write IPAddress or Hostname", *g.Spec.Addresses[0].Type))
	case served == 0:
		return no(kind, gatewayv1.GatewayReasonListenersNotValid, "no listener can be served; each says why")
	case wrong > 0:
		return yes(kind, gatewayv1.GatewayReasonListenersNotValid, count(wrong, "listener")+" cannot be served; each says why")
	}
	return yes(kind, gatewayv1.GatewayReasonAccepted, "accepted")
}

func supported(kind *gatewayv1.AddressType) bool {
	return kind == nil || *kind == gatewayv1.IPAddressType || *kind == gatewayv1.HostnameAddressType
}

// programmed says whether clients reach a Gateway: it has an address for every listener that is served, and a Pod that serves them.
func (g *gate) programmed(served int, foreign error, pods serving) metav1.Condition {
	const kind = gatewayv1.GatewayConditionProgrammed
	if foreign != nil {
		return no(kind, gatewayv1.GatewayReasonInvalid, foreign.Error())
	}
	if len(g.Spec.Addresses) > 0 && !supported(g.Spec.Addresses[0].Type) {
		return no(kind, gatewayv1.GatewayReasonAddressNotUsable, "spec.addresses[0] is of a type that is not known here")
	}
	if served == 0 {
		return no(kind, gatewayv1.GatewayReasonInvalid, "no listener can be served; each says why")
	}
	for _, l := range g.listeners {
		switch {
		case !l.served():
		case l.hidden:
			return no(kind, gatewayv1.GatewayReasonAddressNotAssigned, fmt.Sprintf("listener %s is not in the Service, which is of another protocol; set the annotation %s: \"true\"", l.Name, annotationMixed))
		case l.public.value == "":
			return no(kind, gatewayv1.GatewayReasonAddressNotAssigned, fmt.Sprintf("listener %s has no public address: the Service has none of a load balancer, and no node has an external one", l.Name))
		}
	}
	switch {
	case pods.none:
		return no(kind, gatewayv1.GatewayReasonNoResources, "the number of Pods is 0; scale the Deployment")
	case !pods.ready:
		return no(kind, gatewayv1.GatewayReasonPending, "no Pod is ready yet")
	}
	return yes(kind, gatewayv1.GatewayReasonProgrammed, "clients reach it")
}

// listenerStatuses are those of all listeners. waiting says why the Gateway is not programmed; empty: it is.
func (t *translation) listenerStatuses(g *gate, waiting string) []gatewayv1.ListenerStatus {
	all := []gatewayv1.ListenerStatus{}
	for _, l := range g.listeners {
		status := t.listenerStatus(g, l)
		const kind = gatewayv1.ListenerConditionProgrammed
		programmed := yes(kind, gatewayv1.ListenerReasonProgrammed, "clients reach it")
		switch {
		case g.wrong == nil && !l.served():
			programmed = no(kind, gatewayv1.ListenerReasonInvalid, "it cannot be served; the other conditions say why")
		case waiting != "":
			programmed = no(kind, gatewayv1.ListenerReasonPending, waiting)
		}
		t.set(&status.Conditions, g.Generation, programmed)
		all = append(all, status)
	}
	return all
}
