package kubetest_test

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/kube/kubelab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// l4Values are the chart's values of the load balancer.
const l4Values = `
l4:
  addressPools: [192.0.2.0/29]
  gatewayClass: weir
  discovery: {tlsSecret: l4-tls, tokenSecret: l4-token}
  loadBalancer: {enabled: true, interfaces: [outside, pods], hook: tcx, source: "https://` + operatorPod + `:13479"}
`

const l4Token = "a-token-of-sixteen-characters"

// l4Secrets are those that the values name.
func l4Secrets(t *testing.T) []byte {
	t.Helper()
	text, err := kubelab.TLSSecret("l4-tls", &x509.Certificate{SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.ParseIP(operatorPod)}, IsCA: true, BasicConstraintsValid: true})
	clitest.Must(t, err)
	return []byte(text + "---\napiVersion: v1\nkind: Secret\nmetadata: {name: l4-token}\nstringData: {token: " + l4Token + "}\n")
}

// l4Objects are servers behind a Gateway and behind a Service of type LoadBalancer.
const l4Objects = `
apiVersion: v1
kind: Namespace
metadata: {name: edge}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge}
spec:
  gatewayClassName: weir
  listeners: [{name: coap, protocol: UDP, port: 5683}, {name: tcp, protocol: TCP, port: 5683}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: UDPRoute
metadata: {name: coap}
spec: {parentRefs: [{name: edge}], rules: [{backendRefs: [{name: coap, port: 5683}]}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: TCPRoute
metadata: {name: coap}
spec: {parentRefs: [{name: edge}], rules: [{backendRefs: [{name: coap, port: 5683}]}]}
---
apiVersion: weir-lb.github.io/v1alpha1
kind: LoadBalancerPolicy
metadata: {name: coap}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: edge, sectionName: coap}]
  cid: {protocols: [dtls12], layouts: [{length: 6, owner: {bits: 8}}]}
---
apiVersion: v1
kind: Service
metadata: {name: coap}
spec:
  type: LoadBalancer
  loadBalancerClass: weir-lb.github.io/l4
  allocateLoadBalancerNodePorts: false
  selector: {app: coap}
  ports: [{port: 5683, protocol: UDP}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: coap}
spec:
  replicas: 2
  selector: {matchLabels: {app: coap}}
  template:
    metadata: {labels: {app: coap}}
    spec:
      containers:
      - name: coap
        image: weir
        command: [/usr/bin/weir, coap, server, --listen, ":5683", --metrics, ":9182"]
        env: [{name: XDG_RUNTIME_DIR, value: /run}]
        volumeMounts: [{name: run, mountPath: /run}]
        readinessProbe: {httpGet: {path: /readyz, port: 9182}}
      volumes: [{name: run, emptyDir: {}}]
`

// balancer is the ready Pod of the DaemonSet that is not old, with its status.
func (c *turnCluster) balancer(old string) (pod *corev1.Pod, status *v1.LBStatus) {
	c.t.Helper()
	why := ""
	netlabtest.Eventually(c.t, "a load balancer is ready", func() bool {
		pods := c.pods("weir-system")
		at := slices.IndexFunc(pods, func(p corev1.Pod) bool {
			return p.Labels["app.kubernetes.io/name"] == "weir-l4" && p.Name != old && isReady(&p)
		})
		if at < 0 {
			why = "no Pod is ready"
			return false
		}
		r := c.kubelet.Pod("weir-system/" + pods[at].Name)
		if r == nil {
			return false
		}
		out, err := r.Command("/usr/bin/weir", "lb", "status", "--json")
		s := new(v1.LBStatus)
		if err == nil {
			err = json.Unmarshal([]byte(out), s)
		}
		why = fmt.Sprint(err, out)
		pod, status = &pods[at], s
		return err == nil && s.Kernel != nil
	}, func() string { return why + c.output("weir-system") })
	return pod, status
}

func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(x corev1.PodCondition) bool { return x.Type == corev1.PodReady && x.Status == corev1.ConditionTrue })
}

// layer4 runs clients through a Gateway while the Pod of the load balancer is replaced, killed, and while the operator is: no request is
// lost, and each new Pod takes over what the one before has left in the kernel.
func (c *turnCluster) layer4() {
	c.t.Helper()
	clitest.Must(c.t, c.plane.Apply("edge", []byte(l4Objects), false))
	address := ""
	netlabtest.Eventually(c.t, "the Gateway is programmed", func() bool {
		g := c.gatewayOf("edge", "edge")
		if len(g.Status.Addresses) == 1 {
			address = g.Status.Addresses[0].Value
		}
		return is(g.Status.Conditions, g.Generation, "Programmed", "True", "Programmed")
	}, func() string { return c.output("weir-system") })
	netlabtest.Eventually(c.t, "two servers are ready", func() bool {
		pods := c.pods("edge")
		return len(pods) == 2 && isReady(&pods[0]) && isReady(&pods[1])
	}, func() string { return c.output("edge") })

	load := exec.Command(c.weir, "coap", "bench", "coap://"+address+":5683/benchmark?rlen=40", "--clients", "20", "--interval", "20ms", "--duration", "30m", "--json")
	var result, diagnostics bytes.Buffer
	load.Stdout, load.Stderr = &result, &diagnostics
	clitest.Must(c.t, c.remote.Start(load))
	c.t.Cleanup(func() { _ = load.Process.Kill() }) // it has ended, unless the test has failed
	old, _ := c.balancer("")
	rolled := old.Name
	clitest.Must(c.t, c.plane.Merge("/apis/apps/v1/namespaces/weir-system/daemonsets/weir-operator-l4", `{"spec": {"template": {"metadata": {"annotations": {"rolled": "once"}}}}}`))
	pod, status := c.balancer(rolled)
	if !status.Kernel.TookOver {
		c.t.Errorf("Pod %s found nothing in the pins", pod.Name)
	}
	clitest.Must(c.t, c.kubelet.Pod("weir-system/"+pod.Name).Kill())
	netlabtest.Eventually(c.t, "the load balancer runs again", func() bool {
		now, _ := c.balancer(rolled)
		return now.Status.ContainerStatuses[0].RestartCount == 1
	})
	c.restartOperator()
	clitest.Must(c.t, load.Process.Signal(os.Interrupt))
	err := load.Wait()
	var bench v1.CoAPBench
	if wrong := json.Unmarshal(result.Bytes(), &bench); err != nil || wrong != nil {
		c.t.Fatalf("load: %v, %v\n%s\n%s", err, wrong, &result, &diagnostics)
	}
	if s := bench.Stats; s.Lost+s.Failed+s.Errors != 0 || s.Requests < 100 {
		c.t.Errorf("load: %+v", s)
	}
	c.t.Logf("%d requests through the load balancer, %d retransmissions", bench.Stats.Requests, bench.Stats.Retransmissions)
}

// access compares what the operator has requested of the API server with what the chart's roles allow: nothing was refused, and each verb
// of each rule was used.
func (c *turnCluster) access() {
	c.t.Helper()
	used, err := c.plane.Requests("weir-system", "weir-operator")
	clitest.Must(c.t, err)
	for r := range used {
		if r.Forbidden {
			c.t.Errorf("refused: %+v", r)
		}
	}
	documents, err := kubelab.Documents([]byte(c.chart))
	clitest.Must(c.t, err)
	for _, document := range documents {
		var role rbacv1.ClusterRole
		clitest.Must(c.t, json.Unmarshal(document, &role))
		if role.Kind != "ClusterRole" && role.Kind != "Role" {
			continue
		}
		for _, rule := range role.Rules {
			c.used(used, &rule)
		}
	}
}

// unseen are verbs that are needed though no request of the test has them.
func unseen() map[string]string {
	const apply = "server-side apply, a patch, makes objects only for those who may create them"
	const kind = "a Dataplane that becomes a DaemonSet or a Deployment; the test has Deployments alone"
	return map[string]string{
		"create deployments": apply, "create daemonsets": apply, "create services": apply,
		"patch daemonsets": kind, "delete daemonsets": kind, "delete deployments": kind,
		"delete services":            "a Gateway without listeners",
		"update gateways/finalizers": "an owner reference that blocks deletion, with the admission plugin OwnerReferencesPermissionEnforcement",
		"patch events":               "an event that is repeated becomes a series",
	}
}

// used fails the test for each verb of a rule that no request needed. Whether objects are listed or come with the watch is up to the server.
func (c *turnCluster) used(all map[kubelab.Request]int, rule *rbacv1.PolicyRule) {
	c.t.Helper()
	for _, resource := range rule.Resources {
		for _, verb := range rule.Verbs {
			if verb == "list" || unseen()[verb+" "+resource] != "" {
				continue
			}
			if !slices.ContainsFunc(rule.APIGroups, func(group string) bool { return all[kubelab.Request{Verb: verb, Group: group, Resource: resource}] > 0 }) {
				c.t.Errorf("no request needs to %s %v %s", verb, rule.APIGroups, resource)
			}
		}
	}
}
