package bench

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// Every process is sampled, every load gets answers, nothing is lost, and the page can be drawn again from the JSON.
func TestRootBenchSoak(t *testing.T) {
	netlabtest.Root(t)
	if !clitest.OwnProcess(t) {
		return
	}
	page := filepath.Join(t.TempDir(), "soak.html")
	out, err := clitest.Execute(t, "bench", "run", "soak", "--duration", "6s", "--every", "500ms", "--load", "2", "--json", "--report", page)
	if err != nil {
		t.Errorf("%v", err)
	}
	var results []*measure.Result
	if err := json.Unmarshal([]byte(out), &results); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	kinds := map[string]int{}
	for _, r := range results {
		kinds[r.Parameters["kind"]]++
		switch r.Parameters["kind"] {
		case "load":
			if r.Requests == 0 || r.Errors != 0 {
				t.Errorf("%s: %d answered, %d lost, %v", r.Path, r.Requests, r.Errors, r.Figures)
			}
		case "process":
			if len(r.Series) == 0 || len(r.Series[0].At) < 5 || r.Parameters["verdict"] != "too short to judge" {
				t.Errorf("%s: %+v", r.Path, r)
			}
		case "losses": // each stage of TURN counts something, and each datagram was passed on
			if len(r.Figures) < 3 || r.Figures[0].Value == 0 || r.Figures[1].Value < r.Figures[2].Value || r.Errors != 0 {
				t.Errorf("%s: %v", r.Path, r.Figures)
			}
		}
	}
	if kinds["process"] != 7 || kinds["load"] != 7 || kinds["losses"] != 1 {
		t.Errorf("results: %v", kinds)
	}
	file := filepath.Join(t.TempDir(), "soak.json")
	if err := os.WriteFile(file, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := clitest.Execute(t, "bench", "report", file, "-o", "-")
	if err != nil {
		t.Fatal(err)
	}
	first, err := os.ReadFile(page)
	if err != nil || again != string(first) || !strings.Contains(again, "tables of lb-ebpf") {
		t.Errorf("the report drawn again is another one: %v", err)
	}
}
