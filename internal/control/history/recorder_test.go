package history

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/metrics"
)

type counted struct {
	Packets map[string]uint64 `metric:"weir_packets_total" key:"reason" help:"Packets."`
	Flows   int               `metric:"weir_flows" help:"Flows."`
	Took    metrics.Histogram `metric:"weir_took_seconds" help:"Time."`
}

func plots() []Plot {
	return []Plot{
		{Title: "packets", Rate: true, Lines: []Source{{Metric: "weir_packets_total", By: "reason"}}},
		{Title: "drops", Rate: true, Lines: []Source{{Metric: "weir_packets_total", Name: "dropped", Where: map[string]string{"reason": "b"}}}},
		{Title: "flows", Lines: []Source{{Metric: "weir_flows", Name: "flows", Scale: 2}}},
		{Title: "took", Unit: "seconds", Lines: []Source{{Metric: "weir_took_seconds", Quantiles: []float64{0.5, 0.99}}}},
	}
}

// valueOf is the newest value of a line; NaN: unknown.
func valueOf(t *testing.T, h *v1.History, plot, name string) float64 {
	t.Helper()
	for _, p := range h.Plots {
		for _, l := range p.Lines {
			if p.Title == plot && l.Name == name {
				if v := l.Values[len(l.Values)-1]; v != nil {
					return *v
				}
				return math.NaN()
			}
		}
	}
	t.Fatalf("no line %s of %s", name, plot)
	return 0
}

func TestRatesSumsAndQuantiles(t *testing.T) {
	r, now := New(plots()), time.Unix(1000, 0)
	c := counted{Packets: map[string]uint64{"a": 100}, Flows: 3}
	r.Take(now, metrics.Of(c))
	c.Packets["a"], c.Packets["b"], c.Flows = 200, 50, 4 // b was not there: it began at 0
	for range 100 {
		c.Took.Observe(80 * time.Millisecond) // between 50 and 100 ms
	}
	r.Take(now.Add(Step), metrics.Of(c))
	h := r.History()
	for _, want := range []struct {
		plot, line string
		value      float64
	}{{"packets", "a", 10}, {"packets", "b", 5}, {"drops", "dropped", 5}, {"flows", "flows", 8}, {"took", "median", 0.075}, {"took", "99 %", 0.0995}} {
		if got := valueOf(t, &h, want.plot, want.line); math.Abs(got-want.value) > 1e-9 {
			t.Errorf("%s, %s: %v, want %v", want.plot, want.line, got, want.value)
		}
	}
	c.Packets["a"] = 40 // begun again
	r.Take(now.Add(2*Step), metrics.Of(c))
	if h = r.History(); valueOf(t, &h, "packets", "a") != 4 || !math.IsNaN(valueOf(t, &h, "took", "median")) {
		t.Errorf("after the counter began again: %v; nothing was observed: %v", valueOf(t, &h, "packets", "a"), valueOf(t, &h, "took", "median"))
	}
}

func TestTheHistoryIsBoundedAndKnowsItsGaps(t *testing.T) {
	r, now := New(plots()), time.Unix(1000, 0)
	c := counted{Packets: map[string]uint64{}}
	for i := range 3 * maxLines {
		c.Packets[fmt.Sprintf("r%02d", i)] = 1
	}
	for i := range Slots + 5 {
		r.Take(now.Add(time.Duration(i)*Step), metrics.Of(c))
	}
	h := r.History()
	if lines := h.Plots[0].Lines; len(lines) != maxLines+1 || len(lines[0].Values) != Slots || lines[0].Name != other {
		t.Fatalf("%d lines, %d points", len(lines), len(lines[0].Values))
	}
	r.Take(now.Add((Slots+8)*Step), metrics.Of(c)) // three points were missed
	h = r.History()
	values := h.Plots[2].Lines[0].Values
	unknown := 0
	for _, v := range values {
		if v == nil {
			unknown++
		}
	}
	if unknown != 3 || values[Slots-1] == nil {
		t.Errorf("%d points are unknown", unknown)
	}
	r.Take(now, nil) // a clock that goes back adds nothing
	if h := r.History(); len(h.Plots[2].Lines[0].Values) != Slots {
		t.Error("a point of the past was taken")
	}
	r.Take(now.Add(1e6*Step), metrics.Of(c)) // a long pause costs no more than the ring
}
