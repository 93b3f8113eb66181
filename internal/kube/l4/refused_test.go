package l4

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weir-lb/weir/internal/kube/conditions"
	"github.com/weir-lb/weir/internal/kube/world"
)

const twoGateways = `
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: weir}
spec: {controllerName: weir-lb.github.io/l4}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: a}
spec: {gatewayClassName: weir, addresses: [{value: 192.0.2.1}], listeners: [{name: x, protocol: UDP, port: 53}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: b}
spec: {gatewayClassName: weir, addresses: [{value: 192.0.2.2}], listeners: [{name: x, protocol: UDP, port: 53}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: UDPRoute
metadata: {name: r}
spec: {parentRefs: [{name: a}], rules: [{backendRefs: [{name: s, port: 53}]}]}
---
apiVersion: v1
kind: Service
metadata: {name: s, annotations: {weir-lb.github.io/l4-addresses: 192.0.2.3}}
spec: {type: LoadBalancer, loadBalancerClass: weir-lb.github.io/l4, ports: [{name: u, port: 53, protocol: UDP}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: s-1, labels: {kubernetes.io/service-name: s}}
addressType: IPv4
ports: [{name: u, port: 53, protocol: UDP}]
endpoints: [{addresses: [10.0.0.1], conditions: {ready: true}}]
`

// programmedOf is the condition of each Gateway, by name, and of the Service, with its message.
func programmedOf(objects []client.Object) map[string]string {
	all := map[string]string{}
	for _, object := range objects {
		switch o := object.(type) {
		case *gatewayv1.Gateway:
			c := conditions.Find(o.Status.Conditions, programmed)
			all[o.Name] = string(c.Status) + " " + c.Message
		case *corev1.Service:
			c := conditions.Find(o.Status.Conditions, ServiceCondition)
			all[o.Name] = string(c.Status) + " " + c.Message
			for _, i := range o.Status.LoadBalancer.Ingress {
				all[o.Name] += " at " + i.IP
			}
		}
	}
	return all
}

// Programmed follows the last answer of the data path, for the same generation too: what it refuses is not programmed, what it runs
// otherwise unchanged is, and both are again once it has applied the configuration.
func TestProgrammedFollowsRefusals(t *testing.T) {
	var o Options
	objects := read(t, []byte(twoGateways))
	first := o.Translate(world.New(now, objects...))
	running := map[string]map[string]string{Plane: first.Configs[0].Pieces}
	next := func(refused string) map[string]string {
		t.Helper()
		w := world.New(now.Add(time.Minute), objects...)
		if refused == "" {
			running = map[string]map[string]string{Plane: o.Translate(w).Configs[0].Pieces}
			w = w.With(running, nil)
		} else {
			w = w.With(running, map[string]string{Plane: refused})
		}
		objects = apply(objects, o.Translate(w))
		return programmedOf(objects)
	}
	want := func(step string, got map[string]string, a, b, s string) {
		t.Helper()
		for name, text := range map[string]string{"a": a, "b": b, "s": s} {
			if !strings.HasPrefix(got[name], text) {
				t.Errorf("%s: %s is %q, want %q", step, name, got[name], text)
			}
		}
	}
	want("applied", next(""), "True", "True", "True  at 192.0.2.3")
	for i, object := range objects {
		if s, ok := object.(*discoveryv1.EndpointSlice); ok {
			s = s.DeepCopy()
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.0.0.2"}})
			objects[i] = s
		}
	}
	const why = "False the data path refuses the configuration: node n: too many backends"
	want("the new endpoint is refused", next("node n: too many backends"), why, "True", why+" at 192.0.2.3")
	want("still refused", next("node n: too many backends"), why, "True", why+" at 192.0.2.3")
	want("applied at last", next(""), "True", "True", "True  at 192.0.2.3")
	running = nil // a load balancer that runs nothing is connected
	want("nothing runs", next("node m: no memory"), "False the data path refuses", "False the data path refuses", "False the data path refuses")
}
