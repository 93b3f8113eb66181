package bench

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// A short run against real servers: kill -9 and an upgrade cost no session and no request, and no client waits for more than 3 s, whether or
// not the server replicates its sessions.
func TestBenchRestart(t *testing.T) {
	if !clitest.OwnProcess(t) {
		return
	}
	for _, r := range boundedRestart(t, []string{"kill", "upgrade"}) {
		measured := restartFigure(t, r, "sent") >= 100 && restartFigure(t, r, "serving after") > 0 && r.Requests > 0
		if !measured || len(r.Series) == 0 || len(r.Events) != 1 || len(r.Samples) == 0 {
			t.Errorf("%s: %v, %v, samples %+v", r.Path, r.Figures, r.Parameters, r.Samples)
		}
	}
	for _, r := range boundedRestart(t, []string{"kill", "upgrade"}, "--replicate", "embedded") {
		if r.Parameters["replicate"] != "embedded" || restartFigure(t, r, "sent") < 100 || restartFigure(t, r, "serving after") == 0 {
			t.Errorf("%s: %v, %v", r.Path, r.Figures, r.Parameters)
		}
		for _, name := range []string{"taken over", "dropped"} { // the memory of the machine had them
			if n := restartFigure(t, r, name); n != 0 {
				t.Errorf("%s: %s: %g; %v", r.Path, name, n, r.Figures)
			}
		}
		t.Logf("%s, replicated: %v", r.Path, r.Figures)
	}
}

// boundedRestart lets each event happen once, and fails the test where an aim is missed. Events of which a busy machine proves nothing are
// measured again.
func boundedRestart(t *testing.T, events []string, more ...string) (all []*measure.Result) {
	t.Helper()
	const tries = 3
	for try := 1; len(events) > 0; try++ {
		if try > tries {
			t.Fatalf("%v %v: the machine was too busy to prove anything, %d times", events, more, tries)
		}
		// From an event to the next one 4 s, so that also a wait which goes on is seen.
		args := []string{"bench", "run", "restart", "--clients", "50", "--interval", "20ms", "--times", "1", "--every", "4s", "--json"}
		out, err := clitest.Execute(t, slices.Concat(args, []string{"--events", strings.Join(events, ",")}, more)...)
		results := restartResults(t, out)
		if len(results) != len(events) {
			t.Fatalf("%d results of %v, %v", len(results), events, err)
		}
		events = nil
		for _, r := range results {
			switch r.Parameters["verdict"] {
			case "reached":
				all = append(all, r)
			case "VOID":
				t.Logf("%s %v: %s", r.Path, more, r.Parameters["missed"])
				events = append(events, r.Path)
			default:
				t.Errorf("%s %v: %v, %v", r.Path, more, r.Parameters, r.Figures)
			}
		}
		if reached := len(events) == 0 && !t.Failed(); (err == nil) != reached {
			t.Errorf("%v: %v", more, err)
		}
	}
	return all
}

// No session ends by SIGTERM with --state, and the aims are missed where the server is stopped without.
func TestBenchRestartByTerminate(t *testing.T) {
	if !clitest.OwnProcess(t) {
		return
	}
	out, err := clitest.Execute(t, "bench", "run", "restart", "--clients", "20", "--interval", "20ms", "--times", "1", "--every", "3s",
		"--events", "terminate,stop", "--json")
	if err == nil {
		t.Error("sessions end by SIGTERM without --state, and the exit code is 0")
	}
	results := restartResults(t, out)
	if len(results) != 2 {
		t.Fatalf("%d results", len(results))
	}
	r := results[0]
	kept := restartFigure(t, r, "lost") == 0 && restartFigure(t, r, "new handshakes") == 0
	if !kept || restartFigure(t, r, "sent") < 100 || restartFigure(t, r, "serving after") == 0 || r.Requests == 0 {
		t.Errorf("%s: %v, %v", r.Path, r.Figures, r.Parameters)
	}
	if r := results[1]; restartFigure(t, r, "new handshakes") == 0 || r.Parameters["verdict"] != "missed" {
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
