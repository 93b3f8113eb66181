package metrics_test

import (
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/metrics"
)

type summed struct {
	Counted uint64
	Now     int
	Share   float64
	Spent   time.Duration
	Small   uint32
	Up      traffic
	Colours colours
}

// Every number of a sum counts, those inside as well, and a later look less an earlier one is what came between.
func TestAddAndSince(t *testing.T) {
	one := summed{1, 2, .5, time.Second, 3, traffic{Packets: 4, Bytes: 5}, colours{6, 7, 8}}
	sum := one
	metrics.Add(&sum, &one)
	metrics.Add(&sum, &one)
	if want := (summed{3, 6, 1.5, 3 * time.Second, 9, traffic{Packets: 12, Bytes: 15}, colours{18, 21, 24}}); sum != want {
		t.Errorf("%+v", sum)
	}
	twice := one
	metrics.Add(&twice, &one)
	if since := metrics.Since(&sum, &twice); since != one {
		t.Errorf("%+v", since)
	}
	if less := metrics.Since(&summed{}, &one); less.Now != -2 || less.Spent != -time.Second {
		t.Errorf("%+v", less)
	}
}

func TestAddHistograms(t *testing.T) {
	var sum, one struct{ Wait metrics.Histogram }
	one.Wait.Observe(time.Millisecond)
	metrics.Add(&sum, &one)
	metrics.Add(&sum, &one)
	if sum.Wait.Count() != 2 || sum.Wait.Sum() != 2*time.Millisecond {
		t.Errorf("%+v", sum)
	}
}

// What cannot be added is a mistake of the program, not a field that is left out.
func TestAddRefusesTexts(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a text was added")
		}
	}()
	metrics.Add(&struct{ Name string }{}, &struct{ Name string }{})
}
