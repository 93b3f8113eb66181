package lb

import (
	"testing"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/client"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// Run-time changes of the kernel data path under traffic: backend added, weights, VIP added and removed, drain. No flow that was there is
// lost or moves; new ones go where the change says.
func TestRootKernelRuntimeChanges(t *testing.T) {
	netlabtest.Root(t)
	lab := kernelLab(t, "wchg")
	k := newKernelLB(t, lab.Namespace("gateway"), "tcx", kernelInterfaces, kernelSpec(1, false))
	api := client.New("unix:"+k.socket, "", "lb")
	from := lab.Namespace("zone0")
	// opened has new flows, of both protocols.
	opened := func(n int, port string) (all []*talker) {
		t.Helper()
		for range n {
			for _, network := range []string{"tcp", "udp"} {
				all = append(all, newTalker(t, from, network, "10.0.0.1:"+port))
			}
		}
		return all
	}
	on := func(all []*talker) map[string]int {
		count := map[string]int{}
		for _, one := range all {
			count[one.name]++
		}
		return count
	}
	old := opened(8, "80")
	stop := keepTalking(t.Context(), old)
	change := func(op, path string, value any) {
		t.Helper()
		before := make([]int64, len(old))
		for i, one := range old {
			before[i] = one.sent.Load()
		}
		var answer *v1.ConfigAnswer
		var err error
		switch op {
		case "add":
			answer, err = api.Add(t.Context(), path, value)
		case "merge":
			answer, err = api.Merge(t.Context(), path, value)
		default:
			answer, err = api.Remove(t.Context(), path)
		}
		if err != nil || !answer.Changed {
			t.Fatalf("%s %s: %+v %v", op, path, answer, err)
		}
		netlabtest.Eventually(t, "every flow goes on", func() bool {
			for i, one := range old {
				if one.sent.Load() < before[i]+2 {
					return false
				}
			}
			return true
		})
	}

	change("add", "/services/nat/backends/c", map[string]any{"address": "10.3.0.3", "port": 8080})
	change("merge", "/services/nat/backends/a", map[string]any{"weight": 0})
	change("merge", "/services/nat/backends/b", map[string]any{"weight": 0})
	if count := on(opened(4, "80")); count["c"] != 8 {
		t.Errorf("with weight 0 at a and b, new flows are on %v", count)
	}
	change("add", "/services/nat/vips/tcp:10.0.0.1:81", nil)
	change("add", "/services/nat/vips/udp:10.0.0.1:81", nil)
	if count := on(opened(1, "81")); count["c"] != 2 {
		t.Errorf("at the new VIP, flows are on %v", count)
	}
	change("remove", "/services/nat/vips/tcp:10.0.0.1:81", nil)
	change("remove", "/services/nat/vips/udp:10.0.0.1:81", nil)
	change("merge", "/services/nat/backends/b", map[string]any{"weight": 1})
	if _, err := api.Drain(t.Context(), "nat", "c"); err != nil {
		t.Fatal(err)
	}
	if count := on(opened(4, "80")); count["b"] != 8 {
		t.Errorf("with c drained and a at weight 0, new flows are on %v", count)
	}
	change("merge", "/services/nat/backends/a", map[string]any{"weight": 1})
	for i, err := range stop() {
		if err != nil {
			t.Errorf("flow %d of %s: %v", i, old[i].name, err)
		}
	}
	k.until("the changes, not saved", func(s *v1.LBStatus) bool { return s.Unsaved && s.ConfigGeneration == 10 })
}
