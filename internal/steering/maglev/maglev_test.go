package maglev

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

func entries(n int) []Entry {
	out := make([]Entry, n)
	for i := range out {
		out[i] = Entry{Name: fmt.Sprintf("backend-%d", i), Weight: 100}
	}
	return out
}

func shares(table []int32, n int) []int {
	out := make([]int, n)
	for _, e := range table {
		out[e]++
	}
	return out
}

// Maglev paper, section 5.3: with M=65,537 and up to 1,000 backends the largest
// share exceeds the mean by about 1 % at most.
func TestEvenness(t *testing.T) {
	for _, n := range []int{1, 2, 3, 10, 100, 655} {
		s := shares(Build(entries(n), DefaultSize), n)
		mean := float64(DefaultSize) / float64(n)
		over := float64(slices.Max(s))/mean - 1
		under := 1 - float64(slices.Min(s))/mean
		t.Logf("%4d backends: most +%.2f %%, least -%.2f %%", n, over*100, under*100)
		if slices.Max(s)-slices.Min(s) > 1 {
			t.Errorf("%d backends: shares from %d to %d", n, slices.Min(s), slices.Max(s))
		}
		if over > 0.01 {
			t.Errorf("%d backends: +%.2f %%", n, over*100)
		}
	}
}

// Section 5.3, figure 9: with 1,000 backends and M=65,537, if k fail, the slots
// that change needlessly stay few.
func TestDisruption(t *testing.T) {
	for _, c := range []struct {
		n, fail int
		limit   float64 // share of slots that change though their owner lives
	}{
		{10, 1, 0.01}, {100, 1, 0.01}, {1000, 1, 0.02}, {1000, 10, 0.06},
	} {
		all := entries(c.n)
		before := Build(all, DefaultSize)
		less := slices.Clone(all)
		for i := range c.fail {
			less[i*c.n/c.fail].Weight = 0
		}
		after := Build(less, DefaultSize)
		needless, must := 0, 0
		for i := range before {
			switch {
			case less[before[i]].Weight == 0:
				must++
			case before[i] != after[i]:
				needless++
			}
		}
		share := float64(needless) / DefaultSize
		t.Logf("%4d backends, %2d fail: %.2f %% must move, %.2f %% move needlessly", c.n, c.fail,
			float64(must)/DefaultSize*100, share*100)
		if share > c.limit {
			t.Errorf("%d backends, %d fail: %.2f %% change needlessly, want at most %.1f %%", c.n, c.fail, share*100, c.limit*100)
		}
	}
}

// The table in the paper's section 3.4 example: three backends with given
// offsets and skips, seven slots.
func TestPaperExample(t *testing.T) {
	fill := func(rows []row) []int32 {
		table := []int32{-1, -1, -1, -1, -1, -1, -1}
		for n := 0; n < len(table); {
			for i := range rows {
				if n < len(table) {
					table[rows[i].claim(table)] = rows[i].entry
					n++
				}
			}
		}
		return table
	}
	b0, b1, b2 := row{entry: 0, slot: 3, skip: 4}, row{entry: 1, slot: 0, skip: 2}, row{entry: 2, slot: 3, skip: 1}
	if got := fill([]row{b0, b1, b2}); !slices.Equal(got, []int32{1, 0, 1, 0, 2, 2, 0}) {
		t.Error(got)
	}
	if got := fill([]row{b0, b2}); !slices.Equal(got, []int32{0, 0, 0, 0, 2, 2, 2}) {
		t.Error(got)
	}
}

func TestWeights(t *testing.T) {
	e := []Entry{{"a", 1}, {"b", 2}, {"c", 5}, {"d", 0}, {"e", -3}, {"f", 10000}}
	s := shares(Build(e, DefaultSize), len(e))
	total := 10008.0
	for i, w := range []float64{1, 2, 5, 0, 0, 10000} {
		if want := w / total * DefaultSize; math.Abs(float64(s[i])-want) > 1+want/100 {
			t.Errorf("%s: %d slots, want %.1f", e[i].Name, s[i], want)
		}
	}
}

func TestOrderDoesNotMatter(t *testing.T) {
	e := entries(20)
	e[3].Weight = 7
	want := Build(e, 251)
	slices.Reverse(e)
	for i, owner := range Build(e, 251) {
		if owner != int32(len(e)-1)-want[i] {
			t.Fatal("the table depends on the order of entries")
		}
	}
}

func TestEdges(t *testing.T) {
	if got := Build(nil, 7); !slices.Equal(got, []int32{-1, -1, -1, -1, -1, -1, -1}) {
		t.Error(got)
	}
	if Build(entries(1), 0) != nil {
		t.Error("size 0")
	}
	for _, size := range []int{1, 2, 4, 12, 1024} { // not prime: still ends, still full
		if slices.Contains(Build(entries(3), size), -1) {
			t.Error(size)
		}
	}
	for n, want := range map[int]bool{-1: false, 0: false, 1: false, 2: true, 9: false, 251: true, 65537: true, 65539: true, 65541: false} {
		if IsPrime(n) != want {
			t.Error(n)
		}
	}
}

func BenchmarkBuild(b *testing.B) {
	e := entries(100)
	for b.Loop() {
		Build(e, DefaultSize)
	}
}
