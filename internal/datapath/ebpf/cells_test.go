package ebpf

import (
	"math/rand/v2"
	"testing"
)

func TestCellsGiveDisjointRunsAndTakeThemBack(t *testing.T) {
	const size = 1024
	c := newCells(make([]uint16, size))
	r := rand.New(rand.NewPCG(3, 4))
	var runs []run
	owner := make([]int, size)
	for step := 1; step < 3000; step++ {
		if len(runs) > 0 && r.IntN(2) == 0 {
			i := r.IntN(len(runs))
			for at := runs[i].start; at < runs[i].start+runs[i].length; at++ {
				owner[at] = 0
			}
			c.give(runs[i])
			runs = append(runs[:i], runs[i+1:]...)
			continue
		}
		got, err := c.take("table", 1+r.IntN(100))
		if err != nil {
			continue // full: the next round gives some back
		}
		if got.start%4 != 0 {
			t.Fatalf("run %v shares a map value with its neighbour", got)
		}
		for at := got.start; at < got.start+got.length; at++ {
			if owner[at] != 0 {
				t.Fatalf("cell %d was given twice", at)
			}
			owner[at] = step
		}
		runs = append(runs, got)
	}
	for _, r := range runs {
		c.give(r)
	}
	if len(c.free) != 1 || c.free[0] != (run{0, size}) {
		t.Fatalf("after everything came back: %v", c.free)
	}
	if _, err := c.take("table", size+1); err == nil {
		t.Fatal("more cells than there are were given")
	}
	if !c.reserve(run{100, 20}) || c.reserve(run{96, 8}) {
		t.Fatal("reserve takes what is free, once")
	}
}

func TestNumbersComeBackAsLateAsPossible(t *testing.T) {
	n := newNumbers[string]("things", 1, 4)
	for i, name := range []string{"a", "b", "c"} {
		if got, fresh, err := n.take(name); got != uint16(i+1) || !fresh || err != nil {
			t.Fatal(got, fresh, err)
		}
	}
	if got, fresh, _ := n.take("b"); got != 2 || fresh {
		t.Fatal("a second take of one name is not the same number")
	}
	if _, _, err := n.take("d"); err == nil {
		t.Fatal("more numbers than the limit")
	}
	n.give("b")
	n.give("a")
	if got, _, _ := n.take("e"); got != 2 {
		t.Fatalf("got %d, want the number that was free longest", got)
	}
}
