package slab

import "testing"

// Numbers are dense from 0 on, a freed one is given again before a new one, and the others keep their entries.
func TestNumbersAreUsedAgain(t *testing.T) {
	var n Numbers[string]
	entries := make([]string, 6)
	for i := range 4 {
		if got := n.Put(&entries[i]); got != int32(i) {
			t.Fatalf("entry %d has number %d", i, got)
		}
	}
	n.Remove(0)
	n.Remove(2)
	if n.Len() != 2 || n.Size() != 4 {
		t.Errorf("%d of %d numbers in use, want 2 of 4", n.Len(), n.Size())
	}
	if n.At(0) != nil || n.At(2) != nil {
		t.Error("a freed number keeps its entry")
	}
	first, second := n.Put(&entries[4]), n.Put(&entries[5])
	if first+second != 2 || first*second != 0 {
		t.Errorf("numbers %d and %d are given, 0 and 2 are free", first, second)
	}
	if n.At(first) != &entries[4] || n.At(second) != &entries[5] || n.At(1) != &entries[1] || n.At(3) != &entries[3] {
		t.Error("a number refers to another entry than it was given to")
	}
	if more := n.Put(&entries[0]); more != 4 || n.Len() != 5 || n.Size() != 5 {
		t.Errorf("number %d, %d of %d in use; want 4, 5 of 5", more, n.Len(), n.Size())
	}
}
