package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/bench"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// Weir's paths carry every load of both families, and the report can be drawn again from the JSON.
func TestRootBenchDSR(t *testing.T) {
	netlabtest.Root(t)
	if !clitest.OwnProcess(t) {
		return
	}
	netlabtest.Tools(t, "iperf")
	page := filepath.Join(t.TempDir(), "dsr.html")
	paths := []string{"weir-nat-xdp", "weir-l2dsr-tcx", "weir-l3dsr-xdp"}
	out, err := clitest.Execute(t, "bench", "run", "dsr", "--rounds", "1", "--duration", "100ms", "--loads", "iperf2,frames", "--json", "--report", page, "--only", strings.Join(paths, ","))
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var results []*measure.Result
	if err := json.Unmarshal([]byte(out), &results); err != nil || len(results) != 4*2*2 {
		t.Fatalf("%d results, %v", len(results), err)
	}
	for _, r := range results {
		if r.Bytes+r.Requests == 0 || r.Errors != 0 {
			t.Errorf("%s: %+v", r.Path, r)
		}
	}
	if drawn := clitest.DrawsReportAgain(t, out, page); !strings.Contains(drawn, "weir-l3dsr-xdp") {
		t.Error("the report lacks a path")
	}
	left, err := filepath.Glob(fmt.Sprintf("/sys/fs/bpf/weir/bench-%d-*", os.Getpid()))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// Live frames come through routing and through Weir by connection id, and the report can be drawn again from the JSON.
func TestRootBenchLive(t *testing.T) {
	netlabtest.Root(t)
	if !clitest.OwnProcess(t) {
		return
	}
	page := filepath.Join(t.TempDir(), "live.html")
	out, err := clitest.Execute(t, "bench", "ebpf", "--live", "--rounds", "1", "--duration", "100ms", "--only", "weir-cid", "--hook", "xdp", "--families", "ipv6", "--json", "--report", page)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var results []*measure.Result
	if err := json.Unmarshal([]byte(out), &results); err != nil || len(results) != 3*2 {
		t.Fatalf("%d results, %v", len(results), err)
	}
	for _, r := range results {
		if r.Scenario != "ebpf-live" || r.Requests == 0 || r.Errors != 0 {
			t.Errorf("%s: %+v", r.Path, r)
		}
	}
	text, err := os.ReadFile(page)
	if err != nil || !strings.Contains(string(text), "weir-cid-xdp") {
		t.Errorf("the report: %v", err)
	}
	for want, args := range map[string][]string{
		"is for --live":            {"--duration", "2s"},
		"--packets is for":         {"--live", "--packets", "5"},
		"no path on this hook has": {"--live", "--only", "nothing"},
		"give xdp, tcx or both":    {"--live", "--hook", "all"},
		`no family "ipv5"`:         {"--live", "--families", "ipv5"},
		"0s for each load: want":   {"--live", "--duration", "0"},
	} {
		if out, err := clitest.Execute(t, append([]string{"bench", "ebpf"}, args...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s\n%s", args, err, want, out)
		}
	}
}

func TestBenchListAndBadReports(t *testing.T) {
	out, err := clitest.Execute(t, "bench", "list", "--json")
	var all []bench.Scenario
	if err != nil || json.Unmarshal([]byte(out), &all) != nil || len(all) < 4 {
		t.Errorf("%v: %s", err, out)
	}
	for _, s := range all { // every command exists
		if _, err := clitest.Execute(t, append(strings.Fields(s.Command)[1:], "--help")...); err != nil {
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
		if _, err := clitest.Execute(t, append([]string{"bench", "report"}, args...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", args, err)
		}
	}
	for want, args := range map[string][]string{
		`no path "weir"`:             {"--only", "weir"},
		"0 rounds":                   {"--rounds", "0"},
		"0s for each load: want":     {"--duration", "0"},
		"iperf3 wants whole seconds": {"--duration", "500ms"},
	} {
		if _, err := clitest.Execute(t, append([]string{"bench", "run", "dsr"}, args...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", args, err)
		}
	}
}

// Every path carries every load, whole and through its queues, and the report can be drawn again from the JSON.
func TestRootBenchNFQueue(t *testing.T) {
	netlabtest.Root(t)
	if !clitest.OwnProcess(t) {
		return
	}
	netlabtest.Tools(t, "iperf", "iptables", "ip6tables", "ethtool")
	page := filepath.Join(t.TempDir(), "nfqueue.html")
	out, err := clitest.Execute(t, "bench", "run", "nfqueue", "--rounds", "1", "--duration", "100ms", "--loads", "tcp,tcp8-sources,udp,fragments,flood,pingpong",
		"--bandwidths", "20M", "--fragment-rates", "500", "--families", "ipv4,ipv6", "--json", "--report", page)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var results []*measure.Result
	if err := json.Unmarshal([]byte(out), &results); err != nil || len(results) != 2*(2*(3+4)+3+3+4+3) {
		t.Fatalf("%d results, %v", len(results), err)
	}
	for _, r := range results {
		name := fmt.Sprint(r.Path, r.Parameters)
		figures := map[string]float64{}
		for _, f := range r.Figures {
			figures[f.Name] = f.Value
		}
		if why := r.Parameters["not available"]; why != "" {
			t.Errorf("%s: %s", name, why)
			continue
		}
		if r.Bytes+r.Requests == 0 || r.Errors != 0 || r.Elapsed <= 0 || !(figures["rate"] > 0) {
			t.Errorf("%s: %+v", name, r)
		}
		if delivered, there := figures["delivered"]; there && !(delivered > 0 && delivered <= 100) {
			t.Errorf("%s: %v %% were delivered", name, delivered)
		}
		queued, there := figures["queued"]
		if there != (r.Path != "direct") {
			t.Errorf("%s: queue statistics: %t", name, there)
		}
		if r.Path == "direct" && figures["ratio to direct"] != 1 {
			t.Errorf("%s: ratio to itself is %v", name, figures["ratio to direct"])
		}
		datagrams := r.Parameters["unit"] != "Gbit/s" || strings.HasPrefix(r.Parameters["load"], "udp")
		if (r.Path == "queue" || r.Path == "queues") && (queued == 0 || datagrams && queued < float64(r.Requests)) {
			t.Errorf("%s: %v packets passed the queues, %d arrived", name, queued, r.Requests)
		}
	}
	file := filepath.Join(t.TempDir(), "nfqueue.json")
	if err := os.WriteFile(file, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := clitest.Execute(t, "bench", "report", file, "-o", "-")
	if err != nil {
		t.Fatal(err)
	}
	first, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if again != string(first) || !strings.Contains(again, "2400 bytes in 2 fragments") {
		t.Error("the report drawn again is another one")
	}
	if names, err := filepath.Glob(fmt.Sprintf("/run/netns/weirlab-bench-nfq.%d.*", os.Getpid())); err != nil || len(names) > 0 {
		t.Errorf("left behind: %v, %v", names, err)
	}
}

// nfqlb carries the same loads in weir's place, and leaves nothing behind. Where it is not installed the run is refused.
func TestRootBenchNFQueueWithNfqlb(t *testing.T) {
	netlabtest.Root(t)
	netlabtest.Tools(t, "iperf", "iptables", "ip6tables", "ethtool", "ip", "mount", "sysctl", "unshare")
	program := os.Getenv("WEIR_NFQLB")
	if program == "" {
		program = "nfqlb"
	}
	if _, err := exec.LookPath(program); err != nil {
		clitest.RefusesWithoutPeer(t, "$WEIR_NFQLB", "bench", "run", "nfqueue", "--with", "nfqlb")
		return
	}
	before, err := filepath.Glob("/dev/shm/*")
	if err != nil {
		t.Fatal(err)
	}
	out, err := clitest.Execute(t, "bench", "run", "nfqueue", "--with", "nfqlb", "--only", "queue", "--rounds", "1", "--duration", "500ms", "--offloads", "off",
		"--loads", "tcp,tcp8-sources,fragments", "--fragment-rates", "500", "--json")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var results []*measure.Result
	if err := json.Unmarshal([]byte(out), &results); err != nil || len(results) != 3+4+3 {
		t.Fatalf("%d results, %v", len(results), err)
	}
	for _, r := range results {
		if r.Errors != 0 || r.Bytes+r.Requests == 0 || r.Path != "direct" && len(r.Processes) != 4 {
			t.Errorf("%+v", r)
		}
	}
	if after, err := filepath.Glob("/dev/shm/*"); err != nil || len(after) > len(before) {
		t.Errorf("shared memory is left: %v, %v", after, err)
	}
}
