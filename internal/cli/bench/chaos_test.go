package bench

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/kube/kubetest"
	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// A short script of a fixed seed: no answer is wrong, nothing is executed twice, no nonce is used twice, no session ends.
func TestRootBenchChaos(t *testing.T) {
	netlabtest.Root(t)
	if !clitest.OwnProcess(t) {
		return
	}
	page := filepath.Join(t.TempDir(), "chaos.html")
	out, err := clitest.Execute(t, "bench", "run", "chaos", "--duration", "12s", "--seed", "16", "--every", "600ms", "--clients", "20", "--interval", "50ms", "--json", "--report", page)
	var results []*measure.Result
	if failed := json.Unmarshal([]byte(out), &results); failed != nil || len(results) != 1 {
		t.Fatalf("%v, %v\n%s", err, failed, out)
	}
	r := results[0]
	if err != nil {
		t.Errorf("%v: %v\n%+v", err, r.Parameters, r.Figures)
	}
	figure := func(name string) float64 {
		i := slices.IndexFunc(r.Figures, func(f measure.Figure) bool { return f.Name == name })
		if i < 0 {
			t.Fatalf("no figure %q", name)
		}
		return r.Figures[i].Value
	}
	for _, name := range []string{"answered", "executed", "records audited", "of them between nodes"} {
		if figure(name) < 100 {
			t.Errorf("%g %s: the test has tested nothing", figure(name), name)
		}
	}
	if figure("steps refused") > 0 {
		t.Log(r.Parameters["refused steps"]) // such as a drain while all other nodes are away
	}
	if len(r.Events) < 10 {
		t.Errorf("%d events", len(r.Events))
	}
	if drawn := clitest.DrawsReportAgain(t, out, page); !strings.Contains(drawn, "chaos: longest wait") {
		t.Error("the report lacks the picture")
	}
}

// A node with copied sessions is cut off from the others and from the store, while its clients reach it: by a short script of a fixed seed. No session ends, and no nonce is used
// twice.
func TestRootBenchChaosReplicated(t *testing.T) {
	netlabtest.Root(t)
	if !clitest.OwnProcess(t) {
		return
	}
	store := filepath.Join(kubetest.Directory(), "etcd")
	netlabtest.Tools(t, store)
	out, err := clitest.Execute(t, "bench", "run", "chaos", "--duration", "12s", "--seed", "56", "--every", "1s", "--clients", "10", "--interval", "100ms", "--events", "partition,nat", "--replicate", store, "--json")
	var results []*measure.Result
	if failed := json.Unmarshal([]byte(out), &results); failed != nil || len(results) != 1 {
		t.Fatalf("%v, %v\n%s", err, failed, out)
	}
	if r := results[0]; err != nil || !slices.ContainsFunc(r.Events, func(e measure.Event) bool { return strings.HasPrefix(e.What, "partition") }) {
		t.Errorf("%v: %v\n%+v\n%+v", err, r.Parameters, r.Figures, r.Events)
	}
}

// Idle sessions of a node survive its serving process, and where they are replicated the node: every client is served again, without a new
// session.
func TestRootBenchIdleCrash(t *testing.T) {
	netlabtest.Root(t)
	etcd := filepath.Join(kubetest.Directory(), "etcd")
	netlabtest.Tools(t, etcd)
	if !clitest.OwnProcess(t) {
		return
	}
	out, err := clitest.Execute(t, "bench", "run", "idle-crash", "--sessions", "300", "--within", "1s", "--only", "process,replicated", "--replicate", etcd, "--json")
	var results []*measure.Result
	if failed := json.Unmarshal([]byte(out), &results); err != nil || failed != nil || len(results) != 2 {
		t.Fatalf("%v, %v\n%s", err, failed, out)
	}
	for _, r := range results {
		if r.Requests != 100 || r.Errors != 0 || r.Parameters["verdict"] != "reached" {
			t.Errorf("%s: %d served, %v, %+v", r.Path, r.Requests, r.Parameters, r.Figures)
		}
	}
}
