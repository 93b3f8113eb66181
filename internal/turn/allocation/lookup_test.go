package allocation

import (
	"math/rand/v2"
	"testing"
)

// A lookup is a map, short or long, whatever is put in and taken out.
func TestLookup(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var l lookup[int, int]
	want := map[int]int{}
	for step := range 20_000 {
		k := random.IntN(1 + step%40)
		if _, ok := want[k]; ok && random.IntN(2) == 0 {
			l.drop(k)
			delete(want, k)
		} else if !ok {
			l.put(k, step+1)
			want[k] = step + 1
		}
		l.drop(-1)
		for k := range 40 {
			if l.get(k) != want[k] {
				t.Fatalf("step %d: %d is %d, want %d", step, k, l.get(k), want[k])
			}
		}
		if len(l.keys) != len(want) || len(l.values) != len(want) {
			t.Fatalf("step %d: %d keys, want %d", step, len(l.keys), len(want))
		}
	}
}

// All visits what is there, and its visitor may delete.
func TestAll(t *testing.T) {
	w := newWorld(t, basic())
	for port := range uint16(10) {
		w.allocated(4000 + port)
	}
	for range w.table.All {
		break
	}
	for a := range w.table.All {
		w.table.Delete(a, Stopped)
		w.table.Delete(a, Stopped) // gone already
	}
	if err := w.check(); err != nil || w.table.Len() != 0 || len(w.gone) != 10 {
		t.Errorf("%d left, %d reported, %v", w.table.Len(), len(w.gone), err)
	}
}
