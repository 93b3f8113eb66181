package operator

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/kube/conditions"
	"github.com/weir-lb/weir/internal/kube/l4/policyv1alpha1"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// coaps is a Gateway with two nodes of DTLS behind it, each with a node id in its connection ids, and its policy.
const coaps = `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: coaps}
spec:
  gatewayClassName: weir
  listeners: [{name: coaps, protocol: UDP, port: 5684}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: UDPRoute
metadata: {name: coaps}
spec:
  parentRefs: [{name: coaps}]
  rules: [{backendRefs: [{name: coaps, port: 5684}]}]
---
apiVersion: v1
kind: Service
metadata: {name: coaps}
spec:
  selector: {app: coaps}
  ports: [{name: coaps, port: 5684, targetPort: 5784, protocol: UDP}]
---
apiVersion: weir-lb.github.io/v1alpha1
kind: LoadBalancerPolicy
metadata: {name: coaps}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: coaps, sectionName: coaps}]
  cid: {protocols: [dtls12], layouts: [{length: 6, owner: {offset: 0, bits: 8}}]}
  timeouts: {udp: 30s}
`

// node is a Pod whose connection ids have a node id.
func node(id int) string {
	return fmt.Sprintf(`
---
apiVersion: v1
kind: Pod
metadata: {name: coaps-%[1]d, labels: {app: coaps}, annotations: {weir-lb.github.io/node-ids: "%[1]d"}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: coap
    image: weir
    command: [/weir, coap, server, --dtls-only, --dtls, ":5784", --node-id, "%[1]d", --workers, "1", --no-supervisor, --admin, "unix:/run/admin", --metrics, ""]
    env: [{name: %[2]s, value: "1"}]
    volumeMounts: [{name: run, mountPath: /run}]
  volumes: [{name: run, emptyDir: {}}]
`, id, clitest.RunAsWeir)
}

// weirImage adds this program, which is weir too, to an image.
func weirImage(t *testing.T, image string) {
	self, err := os.Executable()
	clitest.Must(t, err)
	clitest.Must(t, exec.Command("cp", self, filepath.Join(image, "weir")).Run())
	libraries, err := exec.Command("ldd", self).Output()
	if err != nil { // a static one
		return
	}
	for _, word := range strings.Fields(string(libraries)) {
		if strings.HasPrefix(word, "/") {
			clitest.Must(t, exec.Command("cp", "--parents", "-L", word, image).Run())
		}
	}
}

// refusedPolicies are specs that the schema refuses, with what it says.
func refusedPolicies() map[string]string {
	return map[string]string{
		`mode: mark`:                   "Unsupported value",
		`affinity: cid`:                "belong together",
		`tunnel: gue`:                  "mode l3dsr",
		`timeouts: {udp: fast}`:        "should match",
		`newFlowRate: -1`:              "greater than or equal to 1",
		`health: {type: tcp, path: /}`: "are of type http",
		`health: {type: tcp, interval: 1s, timeout: 2s}`:                                                                  "shorter than the interval",
		`cid: {protocols: [dtls12], layouts: [{length: 2, owner: {offset: 9, bits: 8}}]}`:                                 "ends after the connection id",
		`cid: {protocols: [quic], layouts: [{length: 6, owner: {bits: 8}, quicLB: {serverIDLength: 2, nonceLength: 6}}]}`: "a layout has length and owner, or quicLB",
		`cid: {protocols: [tls], layouts: [{length: 6, owner: {bits: 8}}]}`:                                               "Unsupported value",
		`cid: {protocols: [dtls12], layouts: [{length: 6, owner: {bits: 8}}], nodeIDs: {from: Annotation, first: 1}}`:     "from: Ordinal",
		`targetRefs: [{group: apps, kind: Deployment, name: x}]`:                                                          "a target is a Gateway",
		`targetRefs: [{group: "", kind: Service, name: x, sectionName: port}]`:                                            "sectionName names a listener",
		`targetRefs: [{group: "", kind: Service, name: x}, {group: "", kind: Service, name: x}]`:                          "named once",
		`targetRefs: []`: "should have at least 1 items",
	}
}

// steersByPolicy attaches a policy with connection ids to a Gateway: DTLS sessions stay on their Pods while their clients change address.
func steersByPolicy(e *edge) {
	t := e.t
	crd, err := os.ReadFile("../../../deploy/operator/crds/weir-lb.github.io_loadbalancerpolicies.yaml")
	clitest.Must(t, err)
	e.plane.CRDs(crd)
	for spec, want := range refusedPolicies() {
		if !strings.HasPrefix(spec, "targetRefs") {
			spec = `targetRefs: [{group: "", kind: Service, name: x}]` + "\n  " + spec
		}
		text := "apiVersion: weir-lb.github.io/v1alpha1\nkind: LoadBalancerPolicy\nmetadata: {name: x}\nspec:\n  " + spec + "\n"
		if err := e.plane.Apply("default", []byte(text), true); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", spec, err, want)
		}
	}
	clitest.Must(t, e.plane.Apply("default", []byte(coaps+node(1)+node(2)), false))
	var p policyv1alpha1.LoadBalancerPolicy
	netlabtest.Eventually(t, "the policy is programmed, and its Pods have node ids", func() bool {
		if e.plane.Get("/apis/weir-lb.github.io/v1alpha1/namespaces/default/loadbalancerpolicies/coaps", &p) != nil || len(p.Status.Ancestors) != 1 {
			return false
		}
		for _, kind := range []string{"Accepted", "ResolvedNodes", "Programmed"} {
			if c := conditions.Find(p.Status.Ancestors[0].Conditions, kind); c == nil || c.Status != "True" {
				return false
			}
		}
		return p.Status.InForce != nil
	}, func() string { return fmt.Sprintf("%+v", p.Status) })
	vip := e.steers("default:coaps:coaps", []uint32{1, 2})

	const clients, requests = 16, 12
	output, err := e.client.Exec(t.Context(), os.Args[0], "coap", "bench", "coaps://"+vip+"/benchmark", "--clients", fmt.Sprint(clients), "--requests", fmt.Sprint(requests),
		"--interval", "50ms", "--rebind-every", "100ms", "--no-stop", "--workers", "1", "--json")
	var result v1.CoAPBench
	if at := strings.Index(output, "{"); at < 0 || json.NewDecoder(strings.NewReader(output[at:])).Decode(&result) != nil {
		t.Fatalf("the load: %v\n%s", err, output)
	}
	s := result.Stats
	t.Logf("%d requests of %d clients answered, %d changes of address, %d sessions lost", s.Requests, clients, s.Rebinds, s.LostSessions)
	if s.Requests != clients*requests || s.Rebinds < clients || s.LostSessions+s.Rehandshakes+s.Lost+s.Failed > 0 {
		t.Errorf("a change of address ends sessions: %+v", s)
	}
	byCID := 0
	for line := range strings.Lines(clitest.HTTPGet(t, e.balancer.Socket, "/metrics")) {
		if strings.HasPrefix(line, "weir_packets_total") && strings.Contains(line, `reason="cid"`) && strings.Contains(line, `service="default:coaps:coaps"`) {
			_, err := fmt.Sscan(line[strings.LastIndex(line, " ")+1:], &byCID)
			clitest.Must(t, err)
		}
	}
	if byCID < clients {
		t.Errorf("%d packets were steered by connection id", byCID)
	}
}

// steers waits until a service of the load balancer has backends with these node ids, and returns its VIP, ADDRESS:PORT.
func (e *edge) steers(name string, nodes []uint32) (vip string) {
	e.t.Helper()
	netlabtest.Eventually(e.t, "the load balancer knows the node ids", func() bool {
		status, err := e.balancer.Admin.LBStatus(e.t.Context())
		clitest.Must(e.t, err)
		for i := range status.Services {
			s := &status.Services[i]
			var got []uint32
			for _, b := range s.Backends {
				got = append(got, b.Nodes...)
			}
			if slices.Sort(got); s.Name == name && slices.Equal(got, nodes) {
				vip = strings.Fields(s.VIPs[0])[1]
				return true
			}
		}
		return false
	})
	return vip
}
