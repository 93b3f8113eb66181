package programcost

import (
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// TestRootBenchTakesThePathsItNames runs cases shortly: packets are counted as
// what the case is about, and the comparators find, insert and route them, or
// Bench fails.
func TestRootBenchTakesThePathsItNames(t *testing.T) {
	t.Parallel()
	netlabtest.Root(t)
	for _, c := range []struct {
		only   string
		hook   attach.Hook
		reason string
	}{{"l2dsr new flow", attach.HookXDP, "maglev"}, {"cid", attach.HookTCX, "cid"}} {
		results, err := Run(t.Context(), Config{Rounds: 1, Packets: 1 << 12, Hooks: []attach.Hook{c.hook}, Only: c.only, Flows: 1 << 17})
		if err != nil {
			t.Fatal(err)
		}
		if len(results) != 2 {
			t.Errorf("%s: %d results, want one for each family", c.only, len(results))
		}
		for _, r := range results {
			if aged := c.only == "l2dsr new flow"; r.Table != 1<<17 || aged && (r.InUse < r.Table*95/100 || r.InUse > r.Table*105/100) {
				t.Errorf("%s, IPv%d, %s: %d of %d flows in use", r.Case, r.Family, r.Hook, r.InUse, r.Table)
			}
			if r.Reason != c.reason {
				t.Errorf("%s, IPv%d, %s: packets were counted as %s", r.Case, r.Family, r.Hook, r.Reason)
			}
		}
	}
}

// TestRootBenchOfASmallTable leaves out the cases that need more flows than the table is for.
func TestRootBenchOfASmallTable(t *testing.T) {
	t.Parallel()
	netlabtest.Root(t)
	_, err := Run(t.Context(), Config{Rounds: 1, Packets: 1 << 10, Hooks: []attach.Hook{attach.HookXDP}, Only: "nat hit", Flows: 1 << 10})
	if err == nil || !strings.Contains(err.Error(), "need a table of more than 1024 flows") {
		t.Errorf("%v", err)
	}
}
