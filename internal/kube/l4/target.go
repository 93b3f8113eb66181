package l4

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weir-lb/weir/internal/kube/world"
)

// target is a reference to a Service with its share. A target without a Service keeps its share, which is refused.
type target struct {
	name     string // of the Service, for digests and names
	weight   int
	service  *corev1.Service // nil: the reference is not valid
	portName string
	port     int32 // of the Service
}

// resolve finds the Services of a route. The grant is checked before the existence: who may not refer learns nothing.
func (t *translation) resolve(r *route) {
	protocol := corev1.ProtocolUDP
	if r.kind == "TCPRoute" {
		protocol = corev1.ProtocolTCP
	}
	for i := range r.refs {
		ref := &r.refs[i]
		weight := 1
		if ref.Weight != nil {
			weight = int(*ref.Weight)
		}
		namespace := r.object.GetNamespace()
		if ref.Namespace != nil {
			namespace = string(*ref.Namespace)
		}
		n := target{name: namespace + "/" + string(ref.Name), weight: weight}
		if wrong := t.find(r, ref, namespace, protocol, &n); wrong != nil {
			n.service = nil
			r.problems = append(r.problems, *wrong)
		}
		r.targets = append(r.targets, n)
	}
}

func (t *translation) find(r *route, ref *gatewayv1.BackendRef, namespace string, protocol corev1.Protocol, into *target) *problem {
	if ref.Group != nil && *ref.Group != "" || ref.Kind != nil && *ref.Kind != "Service" {
		kind := gatewayv1.Kind("Service")
		if ref.Kind != nil {
			kind = *ref.Kind
		}
		return &problem{string(gatewayv1.RouteReasonInvalidKind), fmt.Sprintf("backendRef %s: kind %s is not served; refer to a Service", ref.Name, kind)}
	}
	if !t.granted(r.kind, r.object.GetNamespace(), namespace, string(ref.Name)) {
		return &problem{string(gatewayv1.RouteReasonRefNotPermitted), fmt.Sprintf("backendRef %s: no ReferenceGrant in namespace %s lets a %s of namespace %s refer to it", ref.Name, namespace, r.kind, r.object.GetNamespace())}
	}
	service, ok := world.Get[*corev1.Service](t.world, namespace, string(ref.Name))
	if !ok {
		return &problem{string(gatewayv1.RouteReasonBackendNotFound), fmt.Sprintf("backendRef %s: there is no Service %s/%[1]s", ref.Name, namespace)}
	}
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		return &problem{string(gatewayv1.RouteReasonUnsupportedProtocol), fmt.Sprintf("backendRef %s: a Service of type ExternalName has no endpoints", ref.Name)}
	}
	if ref.Port == nil {
		return &problem{string(gatewayv1.RouteReasonBackendNotFound), fmt.Sprintf("backendRef %s: name a port", ref.Name)}
	}
	for i := range service.Spec.Ports {
		p := &service.Spec.Ports[i]
		if p.Port == *ref.Port && protocolOf(p) == protocol {
			into.service, into.portName, into.port = service, p.Name, p.Port
			return nil
		}
	}
	return &problem{string(gatewayv1.RouteReasonBackendNotFound), fmt.Sprintf("backendRef %s: Service %s/%[1]s has no %[3]s port %[4]d", ref.Name, namespace, protocol, *ref.Port)}
}

func protocolOf(p *corev1.ServicePort) corev1.Protocol {
	if p.Protocol == "" {
		return corev1.ProtocolTCP
	}
	return p.Protocol
}
