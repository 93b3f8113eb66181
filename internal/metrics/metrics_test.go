package metrics_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/metrics"
)

type traffic struct {
	Packets uint64 `metric:"_packets_total" help:"Packets"`
	Bytes   uint64 `metric:"_bytes_total" help:"Bytes of user data"`
}

type colours [3]uint64

func (colours) Key(i int) string { return []string{"red", "green", "blue"}[i] }

type target struct {
	Service string `label:"service"`
	Backend string `label:"backend"`
}

type embedded struct {
	Part string `label:"part"`
	Seen uint64 `metric:"_seen_total" help:"Seen."`
}

type named struct {
	Name string `label:"listener"`
}

type inner struct {
	named
	Node  *int          `label:"node"`
	Wait  time.Duration `metric:"weir_x_wait_seconds" help:"Wait."`
	Age   float64       `metric:"weir_x_age_seconds" unit:"ms" help:"Age."`
	State string        `metric:"weir_x_up" when:"up" help:"1 while up."`
	Up    traffic       `metric:"weir_x,direction=up" help:"relayed."`
}

type events struct {
	Come uint64 `metric:"_,event=come"`
	Gone uint64 `metric:"_,event=gone"`
}

type outer struct {
	embedded `metric:"weir_x"`
	Silent   int                          // no tag: no metric
	Error    string                       `metric:"weir_x_failed" help:"1 while it fails."`
	Ready    bool                         `metric:"weir_x_ready" help:"1 while ready."`
	Mode     string                       `metric:"weir_x_info" label:"mode" help:"The mode."`
	Proven   *int                         `metric:"weir_x_proven" help:"Proven."`
	Lists    []inner                      `metric:""`
	Colours  colours                      `metric:"weir_x_colours_total" key:"colour" help:"Colours."`
	Nested   map[string]colours           `metric:"weir_x_nested_total" key:"service,colour" help:"Nested."`
	Backends map[target]traffic           `metric:"weir_x_backend" help:"by backend."`
	Words    map[string]map[string]uint64 `metric:"weir_x_words_total" key:"a,b" help:"Words."`
	Events   events                       `metric:"weir_x_events_total,part=p" help:"Events."`
	Took     metrics.Histogram            `metric:"weir_x_took_seconds" buckets:"1ms..100ms" help:"Took."`
}

func full() *outer {
	node := 7
	o := &outer{
		embedded: embedded{"e", 3}, Error: "no", Ready: true, Mode: "xdp", Silent: 9,
		Lists: []inner{
			{named: named{"a"}, Node: &node, Wait: 1500 * time.Millisecond, Age: 250, State: "up", Up: traffic{1, 2}},
			{named: named{"b"}, State: "down"},
		},
		Colours:  colours{0, 5, 0},
		Nested:   map[string]colours{"s": {1}},
		Backends: map[target]traffic{{"s", "y"}: {5, 6}, {"s", "x"}: {3, 4}},
		Words:    map[string]map[string]uint64{"q": {"w": 8}},
	}
	o.Took.Observe(-time.Second)
	o.Took.Observe(time.Millisecond)
	o.Took.Observe(30 * time.Millisecond)
	o.Took.ObserveN(time.Second, 2)
	return o
}

func text(samples []metrics.Sample) string {
	var lines []string
	for _, s := range samples {
		var labels []string
		for _, l := range s.Labels {
			labels = append(labels, l.Name+"="+l.Value)
		}
		line := fmt.Sprintf("%s{%s} %g", s.Name, strings.Join(labels, ","), s.Value)
		if s.Kind == metrics.HistogramKind {
			line += fmt.Sprintf(" of %d %v", s.Count, s.Buckets)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func TestTagsBecomeSamples(t *testing.T) {
	const want = `weir_x_seen_total{part=e} 3
weir_x_failed{} 1
weir_x_ready{} 1
weir_x_info{mode=xdp} 1
weir_x_wait_seconds{listener=a,node=7} 1.5
weir_x_age_seconds{listener=a,node=7} 0.25
weir_x_up{listener=a,node=7} 1
weir_x_packets_total{listener=a,node=7,direction=up} 1
weir_x_bytes_total{listener=a,node=7,direction=up} 2
weir_x_wait_seconds{listener=b,node=} 0
weir_x_age_seconds{listener=b,node=} 0
weir_x_up{listener=b,node=} 0
weir_x_packets_total{listener=b,node=,direction=up} 0
weir_x_bytes_total{listener=b,node=,direction=up} 0
weir_x_colours_total{colour=green} 5
weir_x_nested_total{service=s,colour=red} 1
weir_x_backend_packets_total{service=s,backend=x} 3
weir_x_backend_bytes_total{service=s,backend=x} 4
weir_x_backend_packets_total{service=s,backend=y} 5
weir_x_backend_bytes_total{service=s,backend=y} 6
weir_x_words_total{a=q,b=w} 8
weir_x_events_total{part=p,event=come} 0
weir_x_events_total{part=p,event=gone} 0
weir_x_took_seconds{} 2.031 of 5 map[0.001:2 0.0025:2 0.005:2 0.01:2 0.025:2 0.05:3 0.1:3]`
	if got := text(metrics.Of(full())); got != want {
		t.Errorf("samples\n%s\nwant\n%s", got, want)
	}
}

// What Of serves, Describe lists, without a value to look at.
func TestDescribeNamesEverySample(t *testing.T) {
	families, err := metrics.Describe(outer{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range metrics.Of(full()) {
		at := slices.IndexFunc(families, func(f metrics.Family) bool { return f.Name == s.Name })
		if at < 0 {
			t.Errorf("%s is not described", s.Name)
			continue
		}
		f := families[at]
		if f.Help != s.Help || f.Kind != s.Kind {
			t.Errorf("%s: %+v, want %s, %s", s.Name, f, s.Kind, s.Help)
		}
		for _, l := range s.Labels {
			if !slices.Contains(f.Labels, l.Name) {
				t.Errorf("%s: label %s is not described in %v", s.Name, l.Name, f.Labels)
			}
		}
	}
	at := slices.IndexFunc(families, func(f metrics.Family) bool { return f.Name == "weir_x_backend_bytes_total" })
	if f := families[at]; f.Help != "Bytes of user data by backend." || f.Unit != "bytes" || f.Kind != metrics.Counter {
		t.Errorf("%+v", f)
	}
	if !slices.ContainsFunc(families, func(f metrics.Family) bool { return f.Name == "weir_x_proven" }) {
		t.Error("a nil pointer hides its metric from Describe")
	}
}

func TestWrongTagsAreFound(t *testing.T) {
	for want, value := range map[string]any{
		"no help text": struct {
			N int `metric:"weir_n"`
		}{},
		"is no name": struct {
			N int `metric:"Weir-N" help:"N."`
		}{},
		"described twice": struct {
			N int `metric:"weir_n" help:"N."`
			M int `metric:"weir_n" help:"M."`
		}{},
		"needs key": struct {
			N map[string]int `metric:"weir_n" help:"N."`
		}{},
		"method Key": struct {
			N [3]int `metric:"weir_n" key:"k" help:"N."`
		}{},
		"is no number": struct {
			N chan int `metric:"weir_n" help:"N."`
		}{},
		"no label=value": struct {
			N int `metric:"weir_n,x" help:"N."`
		}{},
		"no bound of a bucket": struct {
			N metrics.Histogram `metric:"weir_n_seconds" buckets:"3ms..5ms" help:"N."`
		}{},
		"is no struct": 3,
	} {
		if _, err := metrics.Describe(value); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%T: %v, want %q", value, err, want)
		}
	}
}

func TestHistogramsAdd(t *testing.T) {
	var a, b metrics.Histogram
	a.Observe(time.Millisecond)
	b.Observe(time.Hour)
	b.Observe(0)
	a.Add(&b)
	if a.Count() != 3 || a.Sum() != time.Hour+time.Millisecond {
		t.Errorf("%d durations of %s", a.Count(), a.Sum())
	}
}

func TestObserveAllocatesNothing(t *testing.T) {
	var h metrics.Histogram
	d := time.Microsecond
	if n := testing.AllocsPerRun(100, func() { h.Observe(d); d += time.Millisecond }); n != 0 {
		t.Errorf("%g allocations", n)
	}
}

func BenchmarkObserve(b *testing.B) {
	b.ReportAllocs()
	var h metrics.Histogram
	d := time.Duration(0)
	for b.Loop() {
		h.Observe(d & (1<<30 - 1))
		d += 7919
	}
}
