package l4

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// gateway is a Gateway of this controller.
type gateway struct {
	object    *gatewayv1.Gateway
	listeners []*listener
	addresses addresses
	refused   *problem // why the Gateway as a whole is not accepted
	places    []*place
	piece     piece // empty: nothing is rendered for it
}

// problem is a condition that is false.
type problem struct{ reason, message string }

// listener is one listener of a Gateway.
type listener struct {
	gateway  *gateway
	spec     *gatewayv1.Listener
	kind     string // of the routes of its protocol; empty: not supported
	kinds    []gatewayv1.RouteGroupKind
	refused  *problem // Accepted is false
	conflict bool
	badKinds string // ResolvedRefs is false
	routes   []*route
}

// routeKind is the kind of route of a protocol; empty: this controller does not serve it.
func routeKind(protocol gatewayv1.ProtocolType) string {
	switch protocol {
	case gatewayv1.UDPProtocolType:
		return "UDPRoute"
	case gatewayv1.TCPProtocolType:
		return "TCPRoute"
	}
	return ""
}

func (t *translation) newGateway(object *gatewayv1.Gateway) *gateway {
	g := &gateway{object: object}
	if i := object.Spec.Infrastructure; i != nil && i.ParametersRef != nil {
		g.refused = &problem{string(gatewayv1.GatewayReasonInvalidParameters), "spec.infrastructure.parametersRef: this controller has no parameters; remove it"}
	}
	taken := map[string]gatewayv1.SectionName{}
	for i := range object.Spec.Listeners {
		l := newListener(g, &object.Spec.Listeners[i])
		if l.refused == nil {
			port := fmt.Sprintf("%s port %d", l.spec.Protocol, l.spec.Port)
			if first, ok := taken[port]; ok {
				l.conflict = true
				l.refused = &problem{string(gatewayv1.ListenerReasonPortUnavailable), fmt.Sprintf("%s is that of listener %q already", port, first)}
			} else {
				taken[port] = l.spec.Name
			}
		}
		g.listeners = append(g.listeners, l)
	}
	return g
}

func newListener(g *gateway, spec *gatewayv1.Listener) *listener {
	l := &listener{gateway: g, spec: spec, kind: routeKind(spec.Protocol), kinds: []gatewayv1.RouteGroupKind{}}
	if l.kind == "" {
		l.refused = &problem{
			string(gatewayv1.ListenerReasonUnsupportedProtocol),
			fmt.Sprintf("protocol %s is not served; this controller serves UDP and TCP", spec.Protocol),
		}
		return l
	}
	own := gatewayv1.RouteGroupKind{Group: new(gatewayv1.Group(gatewayv1.GroupName)), Kind: gatewayv1.Kind(l.kind)}
	if spec.AllowedRoutes == nil || len(spec.AllowedRoutes.Kinds) == 0 {
		l.kinds = append(l.kinds, own)
		return l
	}
	var wrong []string
	for _, kind := range spec.AllowedRoutes.Kinds {
		switch {
		case string(kind.Kind) != l.kind || kind.Group != nil && *kind.Group != gatewayv1.GroupName:
			wrong = append(wrong, string(kind.Kind))
		case len(l.kinds) == 0:
			l.kinds = append(l.kinds, own)
		}
	}
	if wrong != nil {
		l.badKinds = fmt.Sprintf("allowedRoutes.kinds: a %s listener has routes of kind %s, not %s", spec.Protocol, l.kind, strings.Join(wrong, ", "))
	}
	return l
}

// serves says whether packets of the listener can be forwarded once there is an address.
func (l *listener) serves() bool {
	return l.refused == nil && len(l.kinds) > 0 && l.gateway.refused == nil
}

// allows says whether the listener takes routes of a kind and namespace.
func (t *translation) allows(l *listener, r *route) bool {
	if len(l.kinds) == 0 || l.kind != r.kind {
		return false
	}
	from := gatewayv1.NamespacesFromSame
	var selector *metav1.LabelSelector
	if a := l.spec.AllowedRoutes; a != nil && a.Namespaces != nil {
		if a.Namespaces.From != nil {
			from = *a.Namespaces.From
		}
		selector = a.Namespaces.Selector
	}
	switch from {
	case gatewayv1.NamespacesFromAll:
		return true
	case gatewayv1.NamespacesFromSame:
		return r.object.GetNamespace() == l.gateway.object.Namespace
	case gatewayv1.NamespacesFromSelector:
		return t.namespaceMatches(r.object.GetNamespace(), selector)
	}
	return false
}

// vips are the addresses of the Gateway in the order of their text.
func (g *gateway) vips() []netip.Addr {
	all := slices.Clone(g.addresses.assigned)
	slices.SortFunc(all, netip.Addr.Compare)
	return all
}
