package turn_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/weir-lb/weir/internal/kube/turn"
)

const annotatedWorld = `
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: c}
spec: {controllerName: stunner.l7mp.io/gateway-operator, parametersRef: {group: stunner.l7mp.io, kind: GatewayConfig, name: g, namespace: media}}
---
apiVersion: stunner.l7mp.io/v1
kind: GatewayConfig
metadata: {name: g, namespace: media}
spec: {userName: user, password: pass}
---
apiVersion: stunner.l7mp.io/v1
kind: Dataplane
metadata: {name: default}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: turn, namespace: media}
spec:
  gatewayClassName: c
  listeners: [{name: udp, port: 3478, protocol: TURN-UDP}, {name: tcp, port: 3479, protocol: TURN-TCP}]
`

const annotationPrefix = "stunner.l7mp.io/"

// annotationCase is an annotation that has an effect, and one that has none.
type annotationCase struct {
	value, none string
	own         bool              // only that of the Gateway counts, as in STUNner's operator
	with        map[string]string // other annotations of the Gateway
	effect      func(r *turn.Result, s *corev1.Service) bool
}

// portNamed is the port of a listener, or nil.
func portNamed(s *corev1.Service, name string) *corev1.ServicePort {
	for i := range s.Spec.Ports {
		if s.Spec.Ports[i].Name == name {
			return &s.Spec.Ports[i]
		}
	}
	return nil
}

var annotationCases = map[string]annotationCase{
	"service-type": {value: "NodePort", none: "ExternalName", effect: func(_ *turn.Result, s *corev1.Service) bool {
		return s.Spec.Type == corev1.ServiceTypeNodePort
	}},
	"enable-mixed-protocol-lb": {value: "True", none: "false", effect: func(_ *turn.Result, s *corev1.Service) bool { return portNamed(s, "tcp") != nil }},
	"nodeport":                 {value: `{"udp": 30478}`, none: `{"other": 30478}`, effect: func(_ *turn.Result, s *corev1.Service) bool { return portNamed(s, "udp").NodePort == 30478 }},
	"targetport": {value: `"udp": 13478`, none: `{"udp": 70000}`, effect: func(r *turn.Result, s *corev1.Service) bool {
		listener := r.Configurations[types.NamespacedName{Namespace: "media", Name: "turn"}].Listeners[0]
		return portNamed(s, "udp").TargetPort == intstr.FromInt32(13478) && listener.Port == 13478
	}},
	"external-traffic-policy": {value: "local", none: "remote", effect: func(_ *turn.Result, s *corev1.Service) bool {
		return s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
	}},
	"disable-session-affinity": {value: "true", none: "no", effect: func(_ *turn.Result, s *corev1.Service) bool {
		return s.Spec.SessionAffinity == corev1.ServiceAffinityNone
	}},
	"disable-health-check-expose": {value: "true", none: "no", with: map[string]string{
		"service.beta.kubernetes.io/do-loadbalancer-healthcheck-port": "8086", "service.beta.kubernetes.io/do-loadbalancer-healthcheck-protocol": "http",
	}, effect: func(_ *turn.Result, s *corev1.Service) bool { return portNamed(s, "gateway-health-check") == nil }},
	"disable-managed-dataplane": {value: "true", none: "no", own: true, effect: func(r *turn.Result, _ *corev1.Service) bool {
		return len(r.Deployments) == 0 && len(r.Configurations) == 1
	}},
	"enable-relay-address-discovery": {value: "true", none: "no", own: true, effect: func(r *turn.Result, _ *corev1.Service) bool {
		return r.Configurations[types.NamespacedName{Namespace: "media", Name: "turn"}].Listeners[0].Address == "__node_address_placeholder"
	}},
}

// annotated translates the Gateway with annotations of its own and of its GatewayConfig.
func annotated(t *testing.T, own, common map[string]string) (*turn.Result, *corev1.Service) {
	t.Helper()
	w := worldOf(t, annotatedWorld)
	w.Gateways[0].Annotations, w.Configs[0].Spec.LoadBalancerServiceAnnotations = own, common
	r := turn.Translate(w, options(), now)
	if len(r.Services) != 1 {
		t.Fatalf("%d Services", len(r.Services))
	}
	return r, r.Services[0]
}

// Each of STUNner's annotations has its effect, and no other value of it has. One of the Gateway wins over one of the GatewayConfig.
func TestAnnotations(t *testing.T) {
	for name, c := range annotationCases {
		t.Run(name, func(t *testing.T) {
			key := annotationPrefix + name
			of := func(value string) map[string]string {
				all := map[string]string{}
				for k, v := range c.with {
					all[k] = v
				}
				if value != "" {
					all[key] = value
				}
				return all
			}
			for _, try := range []struct {
				what, own, common string
				want              bool
			}{
				{"of the Gateway", c.value, "", true},
				{"of the GatewayConfig", "", c.value, !c.own},
				{"of the Gateway, against the GatewayConfig", c.none, c.value, false},
				{"of the Gateway, with another value in the GatewayConfig", c.value, c.none, true},
				{"without effect", c.none, "", false},
				{"missing", "", "", false},
			} {
				var common map[string]string
				if try.common != "" {
					common = map[string]string{key: try.common}
				}
				r, service := annotated(t, of(try.own), common)
				if got := c.effect(r, service); got != try.want {
					t.Errorf("%s: %v, want %v\n%s", try.what, got, try.want, text(t, r))
				}
				if value := service.Annotations[key]; try.own != "" && value != try.own {
					t.Errorf("%s: the Service has %q", try.what, value)
				}
			}
		})
	}
}

// An annotation that STUNner does not define has no effect but to be on the Service and the Deployment, except those of tools that own the Gateway.
func TestOtherAnnotationsAreCopied(t *testing.T) {
	r, service := annotated(t, map[string]string{"example.com/pool": "public", "kubectl.kubernetes.io/last-applied-configuration": "{}"}, map[string]string{"example.com/pool": "private", "example.com/all": "1"})
	if a := service.Annotations; a["example.com/pool"] != "public" || a["example.com/all"] != "1" || a["kubectl.kubernetes.io/last-applied-configuration"] != "" {
		t.Errorf("%v", a)
	}
	if a := r.Deployments[0].Annotations; a["example.com/pool"] != "public" || a["example.com/all"] != "" {
		t.Errorf("%v", a)
	}
}

// The table of the documentation has the annotations that are tested, and no others.
func TestTheAnnotationsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/kubernetes-turn.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(page), "| annotation | ")
	if !ok {
		t.Fatal("no table of annotations")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	documented := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z-]+)`(?: \\*)? \\|.*\\| `TestAnnotations/([a-z-]+)`").FindAllStringSubmatch(table, -1) {
		if row[1] != row[2] {
			t.Errorf("the row of %s names the test of %s", row[1], row[2])
		}
		documented[row[1]] = true
	}
	for name := range annotationCases {
		if !documented[name] {
			t.Errorf("%s is not documented with its test", name)
		}
		delete(documented, name)
	}
	if len(documented) > 0 {
		t.Error(fmt.Sprint(documented), "are documented and not tested")
	}
}
