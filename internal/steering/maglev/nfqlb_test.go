package maglev

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// The first numbers of rand() in a C program that calls no srand().
func TestRandomIsTheCLibrarys(t *testing.T) {
	r := newRandom()
	for _, want := range []int{1804289383, 846930886, 1681692777, 1714636915, 1957747793, 424238335} {
		if got := r.next(); got != want {
			t.Fatalf("%d, want %d", got, want)
		}
	}
}

// Rows of nfqlb's permutation for M=997.
func TestNFQLBRows(t *testing.T) {
	r := newRandom()
	for i, want := range [][2]int{{537, 215}, {36, 8}, {707, 104}, {539, 37}} {
		if got := [2]int{r.next() % 997, r.next()%996 + 1}; got != want {
			t.Errorf("row %d is %v, want %v", i, got, want)
		}
	}
}

// Tables that nfqlb 1.2.0 itself shows.
func TestNFQLBTables(t *testing.T) {
	for _, c := range []struct {
		slots []int
		size  int
		want  string
	}{
		{[]int{0, 1, 2, 3}, 997, "2 0 0 2 2 1 0 1 0 0 1 2 3 1 2 1 3 0 2 0 3 0 2 3 2"},
		{[]int{0, 1}, 401, "1 0 0 1 0 1 0 1 1 0 0 0 1 0 1 1 1 0 1 1 0 0 1 0 0"},
		{[]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 9973, "8 0 6 3 5 4 6 5 8 0 4 2 2 2 0 4 3 5 0 3 4 3 0 8 6"},
	} {
		table := BuildNFQLB(c.slots, c.size)
		if got := strings.Trim(fmt.Sprint(table[:25]), "[]"); got != c.want {
			t.Errorf("M=%d: %s, want %s", c.size, got, c.want)
		}
	}
}

func TestNFQLBShares(t *testing.T) {
	counts := make([]int, 4)
	for _, slot := range BuildNFQLB([]int{0, 1, 2, 3}, 997) {
		counts[slot]++
	}
	if !slices.Equal(counts, []int{250, 249, 249, 249}) {
		t.Errorf("shares %v", counts)
	}
}

// A slot's row is its own, whatever else is active and in whatever order it is named.
func TestNFQLBGoesBySlot(t *testing.T) {
	table := BuildNFQLB([]int{7, 2, 5}, 997)
	sorted := BuildNFQLB([]int{2, 5, 7}, 997)
	for i, entry := range table {
		if []int{7, 2, 5}[entry] != []int{2, 5, 7}[sorted[i]] {
			t.Fatalf("slot %d depends on the order of the list", i)
		}
	}
	if moved := share(BuildNFQLB([]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 997), BuildNFQLB([]int{0, 1, 2, 3, 4, 5, 6, 7, 8}, 997)); moved > 0.13 {
		t.Errorf("%.1f%% move when one of ten goes", 100*moved)
	}
	empty := BuildNFQLB(nil, 251)
	if len(empty) != 251 {
		t.Fatalf("an empty table has %d slots", len(empty))
	}
	for _, entry := range empty {
		if entry != -1 {
			t.Fatal("an empty table has owners")
		}
	}
}

// share of places that differ.
func share(a, b []int32) float64 {
	n := 0
	for i := range a {
		if a[i] != b[i] {
			n++
		}
	}
	return float64(n) / float64(len(a))
}

func TestPrimeBelow(t *testing.T) {
	for n, want := range map[int]int{-1: 2, 2: 2, 3: 3, 4: 3, 997: 997, 1000: 997, 10000: 9973} {
		if got := PrimeBelow(n); got != want {
			t.Errorf("below %d: %d, want %d", n, got, want)
		}
	}
}
