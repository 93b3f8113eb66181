package snat

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/bench/snatlab"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// Weir's NAT in the kernel's place lets through what the planner says, to the connection, and counts what it refuses. The
// kernel's own: TestRootKernelNATMeetsThePlan in lab/snatlab.
// The more connections are refused, the sooner the last free ports of 64,512 are found.
func TestRootSnatLab(t *testing.T) {
	netlabtest.Root(t)
	if !clitest.OwnProcess(t) {
		return
	}
	netlabtest.Tools(t, "nft")
	dir := t.TempDir()
	file, page := filepath.Join(dir, "lab.yaml"), filepath.Join(dir, "lab.html")
	if err := os.WriteFile(file, []byte(`scenarios:
- {table: T, name: default, connections: 2000, path: [{kind: ephemeral}, {kind: masquerade}, {kind: azure-lb}]}
- {table: T, name: blocks, nodes: 2, replicas: 2, connections: 4500, destinations: 2, expect: 8000, path: [{kind: azure-lb, ports: 2000}]}
- {table: T, name: kube-proxy, connections: 3500, path: [{kind: masquerade}, {kind: dnat-lb}, {kind: masquerade-lb, ports: 3000}]}
- {table: T, name: external, connections: 3500, path: [{kind: masquerade, ports: 3000}, {kind: dnat-lb}, {kind: masquerade-lb, ports: 3000}]}
- {table: T, name: gateway, replicas: 2, connections: 2000, path: [{kind: azure-nat, ips: 4}]}
- {table: T, name: "64,512", replicas: 7, connections: 11000, path: [{kind: ephemeral}, {kind: masquerade}]}
- {table: T, name: pods, connections: 2000, path: [{kind: ephemeral}]}
- {table: U, name: not requested, connections: 2000, path: [{kind: ephemeral}]}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := clitest.Execute(t, "snat", "lab", file, "--only", "t: ", "--nat", "weir", "--json", "--report", page)
	var result snatlab.Result
	if decoded := json.Unmarshal([]byte(out), &result); err != nil || decoded != nil || len(result.Cells) != 7 || result.Runs != 6 || result.Differ != 0 {
		t.Fatalf("%v, %v: %s", err, decoded, out)
	}
	for i, want := range []int{1024, 8000, 3000, 3000, 4000, 64512, 2000} {
		c := result.Cells[i]
		if c.Scenario == "pods" {
			if c.Weir.SNATMeasured != nil || !strings.Contains(c.Weir.NotRun, "no translator") {
				t.Errorf("%s: %+v", c.Scenario, c.Weir)
			}
			continue
		}
		full := int64(want) < c.Plan.Demand && c.Scenario != "external" // its node refuses: Weir keeps the ports that it gets
		if c.Weir.SNATMeasured == nil || c.Weir.Held != want || c.Weir.Server != want || !c.Agree || (c.Weir.Exhausted > 0) != full {
			t.Errorf("%s: %+v", c.Scenario, c.Weir.SNATMeasured)
		}
	}
	if text := clitest.ReadPage(t, page); !strings.Contains(text, "T: kube-proxy") || !strings.Contains(text, "<polyline") {
		t.Error("the report does not show the runs")
	}
	left, err := filepath.Glob(fmt.Sprintf("/sys/fs/bpf/weir/bench-%d-snatlab-*", os.Getpid()))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
