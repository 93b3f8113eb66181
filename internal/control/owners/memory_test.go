package owners

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// A follower that begins while no node answers has the view of the one before it, also who drains; it counts as old, until a node
// answers, which then holds. A node at another address is another one.
func TestMemory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "owners")
	if memory, err := ReadMemory(path); memory != nil || err != nil {
		t.Fatalf("without a file: %v, %v", memory, err)
	}
	keep := func(m Memory) error { return m.Write(path) }
	moved := []v1.CoAPOwner{{Shard: 1, Owner: 2, Version: 3}}
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{nodes: map[string]*v1.CoAPStatus{"a:1": status(true, moved, 1), "b:1": status(false, moved, 2)}, states: map[lb.Target]lb.Override{}}
		f := New(t.Context(), c.query, nil, c.report)
		f.Remember(nil, keep)
		f.Follow(snapshot(t, "a:1", "b:1"))
		c.expect(t, time.Second, "map[a:[] b:[1 2]]", map[string]lb.Override{"a": lb.OverrideDrain})
		c.gone("a:1")
		c.expect(t, time.Second, "map[a:[] b:[1 2]]", map[string]lb.Override{"a": lb.OverrideDown})
		f.Stop()
		time.Sleep(time.Minute)

		memory, err := ReadMemory(path)
		if err != nil {
			t.Fatal(err)
		}
		overrides := memory.Overrides(snapshot(t, "a:1", "b:1"), nil)
		a := lb.Target{Service: "s", Backend: "a"}
		if owned := fmt.Sprint(overrides.Owners("s")); owned != "map[a:[] b:[1 2]]" || overrides.From(a, lb.FromCluster) != lb.OverrideDown {
			t.Errorf("remembered %s, %v", owned, overrides.From(a, lb.FromCluster))
		}
		if owned := fmt.Sprint(memory.Overrides(snapshot(t, "a:9", "b:1"), nil).Owners("s")); owned != "map[a:[] b:[1 2]]" {
			t.Errorf("with another node a: %s", owned) // b has reported that it owns shard 1
		}

		c.nodes = map[string]*v1.CoAPStatus{}
		c.owned, c.states, c.reports = overrides.Owners("s"), map[lb.Target]lb.Override{a: lb.OverrideDown}, 0
		f = New(t.Context(), c.query, nil, c.report)
		f.Remember(memory, keep)
		f.Follow(snapshot(t, "a:1", "b:1"))
		c.expect(t, 5*time.Second, "map[a:[] b:[1 2]]", map[string]lb.Override{"a": lb.OverrideDown})
		if s := f.Status()["s"]; !s.Old || s.Age < 60 || c.reports > 0 {
			t.Errorf("%+v after %d reports", s, c.reports)
		}
		c.set("a:1", status(false, nil, 1)) // all nodes were started again
		c.expect(t, time.Second, "map[a:[1] b:[2]]", nil)
		f.Stop()
		if memory, err := ReadMemory(path); err != nil || len(memory["s"]["a"].Owners) != 0 || memory["s"]["a"].Draining {
			t.Errorf("%+v, %v", memory, err)
		}
	})
}

func TestMemoryThatIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "owners")
	for text, want := range map[string]string{
		"{":             "remove it",
		`{"format": 2}`: "format 2 is not 1",
		`{"format": 1, "services": {"s": {"a": {"ids": [256]}}}}`: "more than one byte",
		`{"format": 1, "services": {"s": {"a": {}}}}`:             "0 node ids",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadMemory(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
