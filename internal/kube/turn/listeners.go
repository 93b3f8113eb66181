package turn

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weir-lb/weir/internal/kube/turn/stunnerv1"
)

// protocol of a listener.
type protocol struct {
	stunner string          // TURN-UDP, …; empty: none that is served
	layer4  corev1.Protocol // what it runs over
	secure  bool
}

func protocolOf(p gatewayv1.ProtocolType) protocol {
	switch strings.TrimPrefix(string(p), "TURN-") {
	case "UDP":
		return protocol{"TURN-UDP", corev1.ProtocolUDP, false}
	case "TCP":
		return protocol{"TURN-TCP", corev1.ProtocolTCP, false}
	case "TLS":
		return protocol{"TURN-TLS", corev1.ProtocolTCP, true}
	case "DTLS":
		return protocol{"TURN-DTLS", corev1.ProtocolUDP, true}
	}
	return protocol{}
}

// listener is one of a Gateway.
type listener struct {
	*gatewayv1.Listener
	protocol  protocol
	conflict  string // the name of the listener before that has its port
	cert, key string // base64 of PEM
	tls       error  // what is wrong with its certificate
	kept      bool   // although it is wrong: the certificate is the one before
	kinds     []gatewayv1.RouteGroupKind
	unknown   string // a kind of route that it allows, and is not known
	routes    []*route
	public    address
	hidden    bool // it is not in the Service
}

// served reports whether a Gateway listens there.
func (l *listener) served() bool {
	return l.protocol.stunner != "" && l.conflict == "" && (!l.protocol.secure || l.cert != "")
}

// port is where the Pod listens.
func (l *listener) port(g *gate) int {
	if port, ok := g.targets[string(l.Name)]; ok {
		return port
	}
	return int(l.Port)
}

// routeKinds are those that a listener takes.
func routeKinds() []gatewayv1.RouteGroupKind {
	return []gatewayv1.RouteGroupKind{
		{Group: new(gatewayv1.Group(gatewayv1.GroupName)), Kind: "UDPRoute"},
		{Group: new(gatewayv1.Group(stunnerv1.Group)), Kind: "UDPRoute"},
	}
}

// listeners checks the listeners of a Gateway.
func (t *translation) listeners(g *gate) {
	type socket struct {
		protocol corev1.Protocol
		port     gatewayv1.PortNumber
	}
	first := map[socket]string{}
	for i := range g.Spec.Listeners {
		l := &listener{Listener: &g.Spec.Listeners[i], protocol: protocolOf(g.Spec.Listeners[i].Protocol)}
		g.listeners = append(g.listeners, l)
		l.kinds, l.unknown = allowedKinds(l.AllowedRoutes)
		if l.protocol.stunner == "" {
			continue
		}
		at := socket{l.protocol.layer4, l.Port}
		if l.conflict = first[at]; l.conflict != "" {
			continue
		}
		first[at] = string(l.Name)
		if l.protocol.secure && g.wrong == nil {
			t.certificate(g, l)
		}
	}
	g.nodes = t.ports(g, annotationNodePorts)
	g.targets = t.ports(g, annotationTargetPorts)
}

// allowedKinds are the kinds of routes that a listener's allowedRoutes leave, and one that is not known here.
func allowedKinds(allowed *gatewayv1.AllowedRoutes) (kinds []gatewayv1.RouteGroupKind, unknown string) {
	all := routeKinds()
	if allowed == nil || len(allowed.Kinds) == 0 {
		return all, ""
	}
	kinds = []gatewayv1.RouteGroupKind{}
	for _, kind := range allowed.Kinds {
		i := slices.IndexFunc(all, func(k gatewayv1.RouteGroupKind) bool {
			return k.Kind == kind.Kind && *k.Group == deref(kind.Group, gatewayv1.GroupName)
		})
		if i < 0 {
			unknown = string(kind.Kind)
			continue
		}
		kinds = append(kinds, all[i])
	}
	return kinds, unknown
}

// listenerStatus is the status of a listener.
func (t *translation) listenerStatus(g *gate, l *listener) gatewayv1.ListenerStatus {
	status := gatewayv1.ListenerStatus{Name: l.Name, SupportedKinds: l.kinds, AttachedRoutes: int32(len(l.routes)), Conditions: []metav1.Condition{}}
	for i := range g.Status.Listeners {
		if g.Status.Listeners[i].Name == l.Name {
			status.Conditions = slices.Clone(g.Status.Listeners[i].Conditions) // their times
		}
	}
	set := func(c metav1.Condition) { t.set(&status.Conditions, g.Generation, c) }
	switch {
	case l.protocol.stunner == "":
		set(no(gatewayv1.ListenerConditionAccepted, gatewayv1.ListenerReasonUnsupportedProtocol,
			fmt.Sprintf("protocol %s is not served; write TURN-UDP, TURN-TCP, TURN-TLS or TURN-DTLS", l.Protocol)))
	case l.conflict != "":
		set(no(gatewayv1.ListenerConditionAccepted, gatewayv1.ListenerReasonPortUnavailable,
			fmt.Sprintf("%s port %d is that of listener %s; write another port", l.protocol.layer4, l.Port, l.conflict)))
	default:
		set(yes(gatewayv1.ListenerConditionAccepted, gatewayv1.ListenerReasonAccepted, "accepted"))
	}
	if l.conflict != "" {
		set(yes(gatewayv1.ListenerConditionConflicted, gatewayv1.ListenerReasonProtocolConflict, "listener "+l.conflict+" has the same port"))
	} else {
		set(no(gatewayv1.ListenerConditionConflicted, gatewayv1.ListenerReasonNoConflicts, "no other listener has the port"))
	}
	set(l.resolved())
	return status
}

// resolved is the condition of what a listener refers to.
func (l *listener) resolved() metav1.Condition {
	const kind = gatewayv1.ListenerConditionResolvedRefs
	var refused *notPermitted
	switch {
	case errors.As(l.tls, &refused):
		return no(kind, gatewayv1.ListenerReasonRefNotPermitted, l.tls.Error())
	case l.kept:
		return no(kind, gatewayv1.ListenerReasonInvalidCertificateRef, l.tls.Error()+"; the certificate before stays in force")
	case l.tls != nil:
		return no(kind, gatewayv1.ListenerReasonInvalidCertificateRef, l.tls.Error())
	}
	if l.unknown != "" {
		return no(kind, gatewayv1.ListenerReasonInvalidRouteKinds, "allowedRoutes.kinds: there is no "+l.unknown+" for TURN; write UDPRoute")
	}
	return yes(kind, gatewayv1.ListenerReasonResolvedRefs, "all that it refers to is there")
}
