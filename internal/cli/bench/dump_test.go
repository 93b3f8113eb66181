package bench

import (
	"encoding/json"
	"testing"

	"github.com/weir-lb/weir/internal/bench"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// Every data path lists all of its flows while datagrams go through them, and loses none of these.
func TestRootBenchDump(t *testing.T) {
	netlabtest.Root(t)
	if !clitest.OwnProcess(t) {
		return
	}
	netlabtest.Tools(t, "iptables")
	const flows = 4096
	out, err := clitest.Execute(t, "bench", "run", "dump", "--flows", "4096", "--rate", "2000", "--duration", "500ms", "--json")
	if err != nil {
		t.Errorf("%v", err)
	}
	var results []*measure.Result
	if err := json.Unmarshal([]byte(out), &results); err != nil || len(results) != len(bench.DumpTargets()) {
		t.Fatalf("%d results, %v\n%s", len(results), err, out)
	}
	for _, r := range results {
		if r.Parameters["verdict"] != "reached" {
			t.Errorf("%s: %v", r.Path, r.Parameters)
		}
		if figure(r, "dumps") < 1 || figure(r, "listed") < flows || figure(r, "scrapes") < 1 || figure(r, "dumping sent") < 200 {
			t.Errorf("%s: it proves nothing: %v", r.Path, r.Figures)
		}
	}
}
