package bench

import (
	"encoding/json"
	"slices"
	"strconv"
	"testing"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// A short run against real servers: no session ends by kill -9, by SIGTERM with --state or by an upgrade, and the aims are missed where
// the server is stopped without --state.
func TestBenchRestart(t *testing.T) {
	if !clitest.OwnProcess(t) {
		return
	}
	out, err := clitest.Execute(t, "bench", "run", "restart", "--clients", "20", "--interval", "20ms", "--times", "1", "--every", "3s", "--events", "kill,terminate,upgrade,stop", "--json")
	if err == nil {
		t.Error("sessions end by SIGTERM without --state, and the exit code is 0")
	}
	results := restartResults(t, out)
	figure := func(r *measure.Result, name string) float64 { return restartFigure(t, r, name) }
	if len(results) != 4 {
		t.Fatalf("%d results", len(results))
	}
	for _, r := range results[:3] {
		if figure(r, "lost") != 0 || figure(r, "new handshakes") != 0 || figure(r, "sent") < 100 || figure(r, "serving after") == 0 || r.Requests == 0 || len(r.Series) == 0 || len(r.Events) != 1 || len(r.Samples) == 0 {
			t.Errorf("%s: %v, %v, samples %+v", r.Path, r.Figures, r.Parameters, r.Samples)
		}
	}
	if r := results[3]; figure(r, "new handshakes") == 0 || r.Parameters["verdict"] != "missed" {
		t.Errorf("%s: %v, %v", r.Path, r.Figures, r.Parameters)
	}
}

// Three nodes behind weir lb with the kernel data path, which follows the cluster, are drained and restarted one after the other under load: no request
// and no session is lost, and once a shard has moved, or is back, no record is forwarded between nodes, though some were while it moved.
func TestRootBenchRollingRestart(t *testing.T) { rollingRestart(t, "rolling", 3) }

// The same with direct server return, for one node.
func TestRootBenchRollingRestartDSR(t *testing.T) { rollingRestart(t, "rolling-dsr", 1) }

func rollingRestart(t *testing.T, event string, times int) {
	netlabtest.Root(t)
	if !clitest.OwnProcess(t) {
		return
	}
	out, err := clitest.Execute(t, "bench", "run", "restart", "--clients", "100", "--interval", "50ms", "--times", strconv.Itoa(times), "--every", "2s", "--events", event, "--json")
	results := restartResults(t, out)
	if len(results) != 1 {
		t.Fatalf("%d results, %v", len(results), err)
	}
	r := results[0]
	if err != nil && r.Parameters["verdict"] != "VOID" { // a machine too busy for its own clients proves nothing of waits; the rest is exact
		t.Errorf("%v, %v", err, r.Parameters)
	}
	for _, name := range []string{"lost", "new handshakes", "forwarded after"} {
		if n := restartFigure(t, r, name); n != 0 {
			t.Errorf("%s: %g; %v", name, n, r.Parameters)
		}
	}
	if restartFigure(t, r, "forwarded while moving") == 0 || restartFigure(t, r, "sent") < 500 || r.Requests == 0 || len(r.Events) != times {
		t.Errorf("%v, %v", r.Figures, r.Parameters)
	}
}

func restartResults(t *testing.T, out string) (results []*measure.Result) {
	t.Helper()
	if err := json.Unmarshal([]byte(out), &results); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return results
}

func restartFigure(t *testing.T, r *measure.Result, name string) float64 {
	t.Helper()
	i := slices.IndexFunc(r.Figures, func(f measure.Figure) bool { return f.Name == name })
	if i < 0 {
		t.Fatalf("%s: no figure %q: %v", r.Path, name, r.Parameters)
	}
	return r.Figures[i].Value
}
