package ebpf

import (
	"testing"

	"github.com/weir-lb/weir/internal/lab/netlab/netlabtest"
)

// TestRootBenchGoesTheRoadsItNames runs cases shortly: packets are counted as
// what the case is about, and the comparators find, insert and route them, or
// Bench fails.
func TestRootBenchGoesTheRoadsItNames(t *testing.T) {
	t.Parallel()
	netlabtest.Root(t)
	for _, c := range []struct {
		only   string
		hook   Hook
		reason string
	}{{"l2dsr new flow", HookXDP, "maglev"}, {"cid", HookTCX, "cid"}} {
		results, err := Bench(t.Context(), BenchConfig{Rounds: 1, Packets: 1 << 12, Hooks: []Hook{c.hook}, Only: c.only, lruSize: 1 << 17})
		if err != nil {
			t.Fatal(err)
		}
		if len(results) != 2 {
			t.Errorf("%s: %d results, want one for each family", c.only, len(results))
		}
		for _, r := range results {
			if r.Reason != c.reason {
				t.Errorf("%s, IPv%d, %s: packets were counted as %s", r.Case, r.Family, r.Hook, r.Reason)
			}
		}
	}
}
