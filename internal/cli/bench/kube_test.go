package bench

import (
	"encoding/json"
	"testing"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/kube/kubelab"
	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// A small cluster that changes: each Pod that becomes ready is served by the kernel, and the operator writes nothing to the API for it.
func TestRootBenchKubeScale(t *testing.T) {
	netlabtest.Root(t)
	netlabtest.Tools(t, kubelab.Paths()...)
	if !clitest.OwnProcessFirst(t) {
		return
	}
	out, err := clitest.Execute(t, "bench", "run", "kube-scale", "--gateways", "30", "--endpoints", "3", "--rate", "60", "--duration", "2s", "--json")
	var results []*measure.Result
	if failed := json.Unmarshal([]byte(out), &results); err != nil || failed != nil || len(results) != 1 {
		t.Fatalf("%v, %v\n%s", err, failed, out)
	}
	r := results[0]
	if r.Parameters["verdict"] != "reached" || r.Requests < 3 || r.Latency.Quantile(0.5) <= 0 {
		t.Errorf("%d measured, %v, %+v", r.Requests, r.Parameters, r.Figures)
	}
	for _, f := range r.Figures {
		if f.Name == "API requests a change" && f.Value > 0.5 {
			t.Errorf("%g requests to the API for each change of an endpoint", f.Value)
		}
	}
}

// Flows of each kind and TURN allocations outlive the load balancer, the operator, the API server and the Pods that serve them.
func TestRootBenchKubeSessions(t *testing.T) {
	netlabtest.Root(t)
	netlabtest.Tools(t, kubelab.Paths()...)
	if !clitest.OwnProcessFirst(t) {
		return
	}
	t.Chdir("../../..")
	out, err := clitest.Execute(t, "bench", "run", "kube-sessions", "--flows", "40", "--allocations", "10", "--gone", "1s", "--every", "100ms",
		"--events", "balancer-restart,balancer-kill,operator-kill,api-gone,scale-in,scale-out,turn-roll", "--json")
	var results []*measure.Result
	if failed := json.Unmarshal([]byte(out), &results); failed != nil || len(results) != 7 {
		t.Fatalf("%v, %v\n%s", err, failed, out)
	}
	for _, r := range results {
		if r.Errors > 0 || r.Parameters["verdict"] != "nothing lost" || r.Requests < 50 {
			t.Errorf("%s: %d answered, %v, %+v", r.Path, r.Requests, r.Parameters, r.Figures)
		}
	}
}
