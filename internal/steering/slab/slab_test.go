package slab

import "testing"

// Elements are zero at first, keep their values and their addresses while the slab grows, and are gone after Clear.
func TestElementsStayWhereTheyAre(t *testing.T) {
	var s Slab[int]
	const n = 5 * blockSize
	var at []*int
	for i := range n {
		number := s.Grow()
		if int(number) != i || *s.At(number) != 0 {
			t.Fatalf("element %d: number %d, value %d", i, number, *s.At(number))
		}
		*s.At(number) = i
		at = append(at, s.At(number))
	}
	if s.Len() != n {
		t.Errorf("%d elements, want %d", s.Len(), n)
	}
	for i := range n {
		if s.At(int32(i)) != at[i] || *at[i] != i {
			t.Fatalf("element %d moved or changed", i)
		}
	}
	if s.Clear(); s.Len() != 0 || *s.At(s.Grow()) != 0 {
		t.Error("elements were left")
	}
}

func TestOneAllocationPerBlock(t *testing.T) {
	var s Slab[[4]uint64]
	s.blocks = make([]*[blockSize][4]uint64, 0, 64)
	if n := testing.AllocsPerRun(10, func() {
		for range blockSize {
			s.Grow()
		}
	}); n != 1 {
		t.Errorf("%v allocations per block", n)
	}
}
