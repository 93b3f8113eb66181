package l4

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weir-lb/weir/internal/kube/l4/policyv1alpha1"
	"github.com/weir-lb/weir/internal/kube/operator"
)

const (
	// ControllerName is spec.controllerName of the GatewayClasses that this package serves, and spec.loadBalancerClass of Services.
	ControllerName = "weir-lb.github.io/l4"
	// Plane is the name of the data plane that gets the configuration.
	Plane = "l4"
)

// Options of the controller.
type Options struct {
	// Pools are where addresses of Gateways and Services come from. Without pools every address that is asked for is used.
	Pools []netip.Prefix
	// Publisher takes the configuration; nil: nothing is served, and nothing becomes Programmed.
	Publisher operator.Publisher
	// HashKey keys the hash of flows: 32 hexadecimal digits; empty: none.
	HashKey string
	// Announce says how load balancers announce the addresses; nil: they do not.
	Announce *Announcement
}

// Controller returns the controller, for the operator.
func Controller(o Options) operator.Controller {
	return operator.Controller{
		Name: ControllerName,
		Kinds: []operator.Kind{
			{Object: &gatewayv1.GatewayClass{}, List: &gatewayv1.GatewayClassList{}},
			{Object: &gatewayv1.Gateway{}, List: &gatewayv1.GatewayList{}},
			{Object: &gatewayv1.UDPRoute{}, List: &gatewayv1.UDPRouteList{}, Optional: true},
			{Object: &gatewayv1.TCPRoute{}, List: &gatewayv1.TCPRouteList{}, Optional: true},
			{Object: &gatewayv1.ReferenceGrant{}, List: &gatewayv1.ReferenceGrantList{}, Optional: true},
			{Object: &corev1.Service{}, List: &corev1.ServiceList{}},
			{Object: &corev1.Namespace{}, List: &corev1.NamespaceList{}},
			{Object: &discoveryv1.EndpointSlice{}, List: &discoveryv1.EndpointSliceList{}},
			{Object: &policyv1alpha1.LoadBalancerPolicy{}, List: &policyv1alpha1.LoadBalancerPolicyList{}, Optional: true},
			podKind(),
		},
		Translate: o.Translate,
		Publisher: o.Publisher,
	}
}
