package turn

import (
	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// address is where clients reach a listener.
type address struct {
	kind  gatewayv1.AddressType
	value string
	port  int
}

// addresses finds the public address of each listener: the one that the Gateway asks for, else that of the load balancer, else the external one
// of the first node with the node port, else, if the Service is of type ClusterIP, its own.
func (t *translation) addresses(g *gate, wanted *corev1.Service) {
	existing := t.services[nameOf(g)]
	for _, l := range g.listeners {
		if !l.served() || wanted == nil {
			continue
		}
		l.hidden = portOf(wanted, l) == nil
		if port := portOf(existing, l); port != nil && !l.hidden {
			l.public = t.address(g, existing, port)
		}
	}
}

// portOf is the port of a listener in a Service.
func portOf(s *corev1.Service, l *listener) *corev1.ServicePort {
	if s == nil {
		return nil
	}
	for i := range s.Spec.Ports {
		if p := &s.Spec.Ports[i]; p.Port == int32(l.Port) && p.Protocol == l.protocol.layer4 {
			return p
		}
	}
	return nil
}

func (t *translation) address(g *gate, s *corev1.Service, p *corev1.ServicePort) address {
	if len(g.Spec.Addresses) > 0 && g.Spec.Addresses[0].Value != "" {
		return address{deref(g.Spec.Addresses[0].Type, gatewayv1.IPAddressType), g.Spec.Addresses[0].Value, int(p.Port)}
	}
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		if a := balanced(s, p); a.value != "" {
			return a
		}
	}
	if t.node != "" && p.NodePort > 0 {
		return address{gatewayv1.IPAddressType, t.node, int(p.NodePort)}
	}
	if s.Spec.Type == corev1.ServiceTypeClusterIP && s.Spec.ClusterIP != "" && s.Spec.ClusterIP != corev1.ClusterIPNone {
		return address{gatewayv1.IPAddressType, s.Spec.ClusterIP, int(p.Port)}
	}
	return address{}
}

// balanced is the address that a load balancer has for a port. One that lists ports, and not this one, does not serve it.
func balanced(s *corev1.Service, p *corev1.ServicePort) address {
	for i := range s.Status.LoadBalancer.Ingress {
		ingress := &s.Status.LoadBalancer.Ingress[i]
		serves := len(ingress.Ports) == 0
		for _, served := range ingress.Ports {
			serves = serves || served.Port == p.Port && served.Protocol == p.Protocol && served.Error == nil
		}
		switch {
		case !serves:
		case ingress.IP != "":
			return address{gatewayv1.IPAddressType, ingress.IP, int(p.Port)}
		case ingress.Hostname != "":
			return address{gatewayv1.HostnameAddressType, ingress.Hostname, int(p.Port)}
		}
	}
	return address{}
}
