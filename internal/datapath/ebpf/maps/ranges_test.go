package maps

import (
	"math/rand/v2"
	"testing"
)

func TestRangesAreDisjointAndReused(t *testing.T) {
	const size = 1024
	c := NewRanges(make([]uint16, size))
	r := rand.New(rand.NewPCG(3, 4))
	var runs []Range
	owner := make([]int, size)
	for step := 1; step < 3000; step++ {
		if len(runs) > 0 && r.IntN(2) == 0 {
			i := r.IntN(len(runs))
			for at := runs[i].Start; at < runs[i].Start+runs[i].Length; at++ {
				owner[at] = 0
			}
			c.Give(runs[i])
			runs = append(runs[:i], runs[i+1:]...)
			continue
		}
		got, err := c.Take("table", 1+r.IntN(100))
		if err != nil {
			continue // full: the next round gives some back
		}
		if got.Start%4 != 0 {
			t.Fatalf("run %v shares a map value with its neighbour", got)
		}
		for at := got.Start; at < got.Start+got.Length; at++ {
			if owner[at] != 0 {
				t.Fatalf("element %d was given twice", at)
			}
			owner[at] = step
		}
		runs = append(runs, got)
	}
	for _, r := range runs {
		c.Give(r)
	}
	if len(c.Free) != 1 || c.Free[0] != (Range{0, size}) {
		t.Fatalf("after everything came back: %v", c.Free)
	}
	if _, err := c.Take("table", size+1); err == nil {
		t.Fatal("more elements than there are were given")
	}
	if !c.Reserve(Range{100, 20}) || c.Reserve(Range{96, 8}) {
		t.Fatal("reserve takes what is free, once")
	}
}

func TestNumbersComeBackAsLateAsPossible(t *testing.T) {
	n := NewNumbers[string]("things", 1, 4)
	for i, name := range []string{"a", "b", "c"} {
		if got, fresh, err := n.Take(name); got != uint16(i+1) || !fresh || err != nil {
			t.Fatal(got, fresh, err)
		}
	}
	if got, fresh, _ := n.Take("b"); got != 2 || fresh {
		t.Fatal("a second take of one name is not the same number")
	}
	if _, _, err := n.Take("d"); err == nil {
		t.Fatal("more numbers than the limit")
	}
	n.Give("b")
	n.Give("a")
	if got, _, _ := n.Take("e"); got != 2 {
		t.Fatalf("got %d, want the number that was free longest", got)
	}
}
