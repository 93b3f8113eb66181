package heap_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/steering/heap"
)

// TestHeapAgainstModel: after any sequence of operations the heap's first entry is the earliest of a plain map, up to the
// last one that is removed. The steps reach a heap of hundreds of entries and an empty one.
func TestHeapAgainstModel(t *testing.T) {
	t.Parallel()
	const numbers, steps = 700, 200_000
	random := rand.New(rand.NewPCG(1, 2))
	h := heap.New[time.Duration](8)
	model := make(map[int32]time.Duration)
	most, empty := 0, 0
	for step := range steps {
		number := int32(random.IntN(numbers))
		// Phases of growth and of decline, so that both ends are reached.
		if random.IntN(10) < 2+6*(step/10_000%2) {
			h.Remove(number)
			delete(model, number)
		} else {
			at := time.Duration(random.IntN(1000))
			h.Set(number, at)
			model[number] = at
		}
		if step%10_000 == 0 {
			drain(t, &h, model, len(model)*(step/10_000%3)/2)
		}
		checkFirst(t, &h, model)
		most = max(most, len(model))
		if len(model) == 0 {
			empty++
		}
	}
	drain(t, &h, model, len(model))
	if most < numbers/2 || empty == 0 {
		t.Errorf("the model held at most %d entries and was empty %d times: the test does not reach what it is for", most, empty)
	}
}

// drain removes the first n entries one by one.
func drain(t *testing.T, h *heap.Heap[time.Duration], model map[int32]time.Duration, n int) {
	t.Helper()
	last := time.Duration(-1)
	for range n {
		number, at, ok := h.First()
		if !ok || at < last || model[number] != at {
			t.Fatalf("first is %d at %v (%v) after %v; the model has %v", number, at, ok, last, model[number])
		}
		last = at
		h.Remove(number)
		delete(model, number)
	}
}

func checkFirst(t *testing.T, h *heap.Heap[time.Duration], model map[int32]time.Duration) {
	t.Helper()
	number, at, ok := h.First()
	if h.Len() != len(model) || ok != (len(model) > 0) {
		t.Fatalf("%d entries, first %v; the model has %d", h.Len(), ok, len(model))
	}
	if !ok {
		return
	}
	if want, there := model[number]; !there || want != at {
		t.Fatalf("first is %d at %v; the model has %v, %v", number, at, want, there)
	}
	for other, want := range model {
		if want < at {
			t.Fatalf("first is at %v, but %d is due at %v", at, other, want)
		}
	}
}

func TestClearedHeapIsEmpty(t *testing.T) {
	t.Parallel()
	var h heap.Heap[int64]
	h.Set(3, 30)
	h.Set(1, 10)
	h.Clear()
	h.Remove(3)
	h.Set(2, 20)
	if number, at, ok := h.First(); number != 2 || at != 20 || !ok || h.Len() != 1 {
		t.Errorf("first %d at %d (%v), %d entries; want 2 at 20, one entry", number, at, ok, h.Len())
	}
}

// Remove of a number that was never set does nothing, also where the memory for numbers ends.
func TestRemoveOfUnknownNumbers(t *testing.T) {
	t.Parallel()
	var h heap.Heap[int64]
	h.Set(511, 30) // the last number of a block
	for number := range int32(5000) {
		if number != 511 {
			h.Remove(number)
		}
	}
	if h.Len() != 1 {
		t.Errorf("%d entries, want one", h.Len())
	}
}

// A heap of New(n) does not copy its entries while it grows to n.
func TestNewHasMemoryForItsEntries(t *testing.T) {
	const entries = 5000
	allocations := func(room int) float64 {
		return testing.AllocsPerRun(3, func() {
			h := heap.New[int64](room)
			for i := range int32(entries) {
				h.Set(i, int64(i))
			}
		})
	}
	if presized, grown := allocations(entries), allocations(0); presized >= grown-1 {
		t.Errorf("%v allocations with memory for all entries, %v without", presized, grown)
	}
}

func BenchmarkSet(b *testing.B) {
	const entries = 1 << 18
	h := heap.New[int64](entries)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range int32(entries) {
		h.Set(i, random.Int64N(entries))
	}
	b.ReportAllocs()
	for i := range b.N {
		h.Set(int32(random.Uint32N(entries)), int64(entries+i))
	}
}
