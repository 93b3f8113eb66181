package bench

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/testbed/measure"
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
	var results []*measure.Result
	if err := json.Unmarshal([]byte(out), &results); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	figure := func(r *measure.Result, name string) float64 {
		i := slices.IndexFunc(r.Figures, func(f measure.Figure) bool { return f.Name == name })
		if i < 0 {
			t.Fatalf("%s: no figure %q: %v", r.Path, name, r.Parameters)
		}
		return r.Figures[i].Value
	}
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
