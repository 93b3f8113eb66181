package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/lab/bench"
	"github.com/weir-lb/weir/internal/lab/measure"
	"github.com/weir-lb/weir/internal/lab/netlab/netlabtest"
)

// Weir's roads carry every load of both families, and the report can be drawn again from the JSON.
func TestRootBenchDSR(t *testing.T) {
	netlabtest.Root(t)
	netlabtest.Tools(t, "iperf")
	if testing.Short() {
		t.Skip("takes a minute")
	}
	t.Setenv(runAsWeir, "1") // the balancers are this test binary
	page := filepath.Join(t.TempDir(), "dsr.html")
	roads := []string{"weir-nat-xdp", "weir-l2dsr-tcx", "weir-l3dsr-xdp"}
	out, err := execute(t, "bench", "run", "dsr", "--rounds", "1", "--seconds", "1", "--loads", "iperf2,frames", "--json", "--report", page, "--only", strings.Join(roads, ","))
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var results []*measure.Result
	if err := json.Unmarshal([]byte(out), &results); err != nil || len(results) != 4*2*2 {
		t.Fatalf("%d results, %v", len(results), err)
	}
	for _, r := range results {
		if r.Bytes+r.Requests == 0 || r.Errors != 0 {
			t.Errorf("%s: %+v", r.Road, r)
		}
	}
	file := filepath.Join(t.TempDir(), "dsr.json")
	if err := os.WriteFile(file, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := execute(t, "bench", "report", file, "-o", "-")
	if err != nil {
		t.Fatal(err)
	}
	first, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if again != string(first) || !strings.Contains(again, "weir-l3dsr-xdp") {
		t.Error("the report drawn again is another one")
	}
	left, err := filepath.Glob(fmt.Sprintf("/sys/fs/bpf/weir/bench-%d-*", os.Getpid()))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// Live frames come through routing and through Weir by connection id, and the report can be drawn again from the JSON.
func TestRootBenchLive(t *testing.T) {
	netlabtest.Root(t)
	t.Setenv(runAsWeir, "1")
	page := filepath.Join(t.TempDir(), "live.html")
	out, err := execute(t, "bench", "ebpf", "--live", "--rounds", "1", "--only", "weir-cid", "--hook", "xdp", "--families", "ipv6", "--json", "--report", page)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var results []*measure.Result
	if err := json.Unmarshal([]byte(out), &results); err != nil || len(results) != 3*2 {
		t.Fatalf("%d results, %v", len(results), err)
	}
	for _, r := range results {
		if r.Scenario != bench.ScenarioLive || r.Requests == 0 || r.Errors != 0 {
			t.Errorf("%s: %+v", r.Road, r)
		}
	}
	text, err := os.ReadFile(page)
	if err != nil || !strings.Contains(string(text), "weir-cid-xdp") {
		t.Errorf("the report: %v", err)
	}
	for want, args := range map[string][]string{
		"is for --live":            {"--seconds", "2"},
		"--packets is for":         {"--live", "--packets", "5"},
		"no road on this hook has": {"--live", "--only", "nothing"},
		"give xdp, tcx or both":    {"--live", "--hook", "all"},
		`no family "ipv5"`:         {"--live", "--families", "ipv5"},
		"0s for each load: want":   {"--live", "--seconds", "0"},
	} {
		if out, err := execute(t, append([]string{"bench", "ebpf"}, args...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s\n%s", args, err, want, out)
		}
	}
}

func TestBenchListAndBadReports(t *testing.T) {
	out, err := execute(t, "bench", "list", "--json")
	var all []bench.Scenario
	if err != nil || json.Unmarshal([]byte(out), &all) != nil || len(all) < 4 {
		t.Errorf("%v: %s", err, out)
	}
	for _, s := range all { // every command exists
		if _, err := execute(t, append(strings.Fields(s.Command)[1:], "--help")...); err != nil {
			t.Errorf("%s: %v", s.Command, err)
		}
	}
	bad := filepath.Join(t.TempDir(), "bad.json")
	if err := os.WriteFile(bad, []byte(`{"roads":[]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"no such file":              {"/nowhere.json", "-o", "x.html"},
		"bad.json: not a result of": {bad, "-o", "x.html"},
		"name it with -o":           {bad},
	} {
		if _, err := execute(t, append([]string{"bench", "report"}, args...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", args, err)
		}
	}
	for want, args := range map[string][]string{
		`no road "weir"`:     {"--only", "weir"},
		"0 rounds":           {"--rounds", "0"},
		"want whole seconds": {"--seconds", "0"},
	} {
		if _, err := execute(t, append([]string{"bench", "run", "dsr"}, args...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", args, err)
		}
	}
}
