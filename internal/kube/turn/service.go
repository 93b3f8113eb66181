package turn

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// service is the Service of a Gateway as it should be. foreign is an error if one exists that is not the Gateway's. There is none as long as no
// listener is served, but one that exists stays.
func (t *translation) service(g *gate) (service *corev1.Service, foreign error) {
	ports := t.servicePorts(g)
	existing := t.services[nameOf(g)]
	if existing != nil && !owned(existing, g) {
		return existing, foreignObject("Service", existing)
	}
	if len(ports) == 0 {
		if existing != nil {
			t.result.Stay = append(t.result.Stay, existing)
		}
		return nil, nil
	}
	service = &corev1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, Name: g.Name}}
	if t.options.Class != "" {
		service.Spec.LoadBalancerClass = new(t.options.Class)
	}
	if existing != nil { // the field cannot be changed
		service.Spec.LoadBalancerClass = existing.Spec.LoadBalancerClass
	}
	own(service, g)
	serviceAnnotations(service, g)
	spec := &service.Spec
	t.serviceType(g, service)
	spec.Selector = podLabels(g)
	if t.options.Legacy {
		spec.Selector = map[string]string{labelApp: appStunner}
	}
	spec.ExternalTrafficPolicy = ""
	if spec.Type != corev1.ServiceTypeClusterIP {
		spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
		if strings.EqualFold(service.Annotations[annotationTrafficPolicy], "local") {
			spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		}
	}
	spec.SessionAffinity = corev1.ServiceAffinityClientIP
	if enabled(service.Annotations, annotationNoAffinity) {
		spec.SessionAffinity = corev1.ServiceAffinityNone
	}
	if spec.Type == corev1.ServiceTypeLoadBalancer && !enabled(service.Annotations, annotationHideHealthCheck) {
		if port := t.healthCheckPort(g, service.Annotations); port != nil {
			ports = append(ports, *port)
		}
	}
	if len(g.Spec.Addresses) > 0 && deref(g.Spec.Addresses[0].Type, gatewayv1.IPAddressType) == gatewayv1.IPAddressType {
		spec.LoadBalancerIP = g.Spec.Addresses[0].Value
	}
	spec.Ports = ports
	nodePorts(existing, ports, g.nodes)
	if spec.Type == corev1.ServiceTypeClusterIP {
		for i := range ports {
			ports[i].NodePort = 0
		}
	}
	return service, nil
}

// servicePorts are those of the listeners: of one protocol, that of the first listener, unless an annotation allows both.
func (t *translation) servicePorts(g *gate) (ports []corev1.ServicePort) {
	mixed := enabled(g.config.Spec.LoadBalancerServiceAnnotations, annotationMixed)
	if value, ok := g.Annotations[annotationMixed]; ok {
		mixed = strings.EqualFold(value, "true")
	}
	var of corev1.Protocol
	for i, l := range g.listeners {
		if !l.served() {
			continue
		}
		if of == "" {
			of = l.protocol.layer4
		}
		if of != l.protocol.layer4 && !mixed {
			t.warn(g.Gateway, "Gateway", "MixedProtocols", fmt.Sprintf("listener %s is over %s and the Service of the Gateway is over %s; set the annotation %s: \"true\", or write a Gateway of its own for it", l.Name, l.protocol.layer4, of, annotationMixed))
			continue
		}
		name := string(l.Name)
		if len(validation.IsDNS1123Label(name)) > 0 {
			name = fmt.Sprintf("listener-%d", i)
		}
		ports = append(ports, corev1.ServicePort{Name: name, Protocol: l.protocol.layer4, Port: int32(l.Port), TargetPort: intstr.FromInt32(int32(l.port(g)))})
	}
	return ports
}

// nodePorts gives the ports the node ports of annotations, else those that they have, by name, so that a port that changes keeps it.
func nodePorts(existing *corev1.Service, ports []corev1.ServicePort, wanted map[string]int) {
	for i := range ports {
		p := &ports[i]
		if existing != nil {
			for _, e := range existing.Spec.Ports {
				if e.Name == p.Name && e.Protocol == p.Protocol {
					p.NodePort = e.NodePort
				}
			}
		}
		if node, ok := wanted[p.Name]; ok {
			p.NodePort = int32(node)
		}
	}
}

// serviceType is the type of an annotation, of the Gateway first.
func (t *translation) serviceType(g *gate, service *corev1.Service) {
	wanted, ok := g.Annotations[annotationServiceType]
	if !ok {
		wanted = g.config.Spec.LoadBalancerServiceAnnotations[annotationServiceType]
	}
	switch kind := corev1.ServiceType(wanted); kind {
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer:
		service.Spec.Type = kind
	default:
		service.Spec.Type = corev1.ServiceTypeLoadBalancer
		if wanted != "" {
			t.warn(g.Gateway, "Gateway", "ServiceType", fmt.Sprintf("annotation %s: no type %q; write ClusterIP, NodePort or LoadBalancer", annotationServiceType, wanted))
		}
	}
	if service.Spec.Type != corev1.ServiceTypeLoadBalancer {
		service.Spec.LoadBalancerClass = nil
	}
}

// serviceAnnotations puts those of the GatewayConfig and the Gateway on the Service.
func serviceAnnotations(service *corev1.Service, g *gate) {
	service.Annotations = map[string]string{}
	maps.Copy(service.Annotations, g.config.Spec.LoadBalancerServiceAnnotations)
	maps.Copy(service.Annotations, annotationsOf(g.Annotations))
	service.Annotations[labelGateway] = nameOf(g).String()
}

// The annotations by which cloud providers' load balancers learn how to check the health of nodes.
var (
	healthCheckPort     = regexp.MustCompile(`^service\.beta\.kubernetes\.io/.*health.*port$`)
	healthCheckProtocol = regexp.MustCompile(`^service\.beta\.kubernetes\.io/.*health.*protocol$`)
)

// healthCheckPort is the port of a cloud provider's health check, which has to be a port of the Service.
func (t *translation) healthCheckPort(g *gate, annotations map[string]string) *corev1.ServicePort {
	port, protocol := uint64(0), ""
	for key, value := range annotations {
		var err error
		switch {
		case healthCheckPort.MatchString(key):
			if port, err = strconv.ParseUint(value, 10, 16); err != nil || port == 0 {
				t.warn(g.Gateway, "Gateway", "HealthCheck", fmt.Sprintf("annotation %s: no port %q; write a number from 1 to 65535", key, value))
				return nil
			}
		case healthCheckProtocol.MatchString(key):
			if protocol = strings.ToUpper(value); protocol != "TCP" && protocol != "HTTP" {
				t.warn(g.Gateway, "Gateway", "HealthCheck", fmt.Sprintf("annotation %s: no protocol %q; write TCP or HTTP", key, value))
				return nil
			}
		}
	}
	if port == 0 || protocol == "" {
		return nil
	}
	return &corev1.ServicePort{Name: healthPortName, Protocol: corev1.ProtocolTCP, Port: int32(port), TargetPort: intstr.FromInt32(int32(port))}
}

// ports reads an annotation with the port of each listener, as JSON, whose braces may be missing.
func (t *translation) ports(g *gate, annotation string) map[string]int {
	text, ok := g.Annotations[annotation]
	if !ok && g.config != nil {
		text, ok = g.config.Spec.LoadBalancerServiceAnnotations[annotation]
	}
	if !ok {
		return nil
	}
	var all map[string]int
	if json.Unmarshal([]byte(text), &all) != nil {
		if json.Unmarshal([]byte("{"+text+"}"), &all) != nil {
			t.warn(g.Gateway, "Gateway", "Annotation", fmt.Sprintf(`annotation %s: %q is no JSON object of numbers; write {"LISTENER": PORT}`, annotation, text))
			return nil
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		known := slices.ContainsFunc(g.listeners, func(l *listener) bool { return string(l.Name) == name })
		if port := all[name]; !known || port < 1 || port > 65535 {
			t.warn(g.Gateway, "Gateway", "Annotation", fmt.Sprintf("annotation %s: %s: %d: there is no such listener, or no such port; write the name of a listener and a port from 1 to 65535", annotation, name, port))
			delete(all, name)
		}
	}
	return all
}
