package history

import (
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/metrics"
)

const (
	// Step is the time between two points.
	Step = 10 * time.Second
	// Slots is how many points a line has at most.
	Slots = 360

	maxLines = 12
	other    = "other"
)

// Plot is a group of lines that have one unit.
type Plot struct {
	Title string
	Unit  string // bytes, seconds, percent; empty: a number
	Rate  bool   // of counters: how much they grow per second
	Lines []Source
}

// Source is where lines come from.
type Source struct {
	Metric string
	Name   string            // of the line; with By, what is before the label's value
	Where  map[string]string // labels that a sample must have
	By     string            // label: a line for each of its values; empty: one line
	// Group makes the name of a line of By's value; an empty name leaves the sample out. Nil: the value.
	Group func(value string) string
	Scale float64 // factor; 0: 1
	// Quantiles of what a histogram observed since the last point; a line for each.
	Quantiles []float64
}

// Recorder has the lines of one process. Its methods may be called from several goroutines.
type Recorder struct {
	mu    sync.Mutex
	plots []*plot
	start time.Time // of the first point; zero: none yet
	at    time.Time // of the newest point
	step  int       // its number
}

type plot struct {
	Plot
	lines []*line
}

// line is a ring of values; NaN: unknown.
type line struct {
	name    string
	values  []float64 // the newest one last, at most Slots
	total   float64   // of a counter, at the newest point
	buckets map[float64]uint64
	count   uint64

	sum  float64 // of the point that is being taken
	seen bool    // the point has samples of it
}

// New returns a recorder without points.
func New(plots []Plot) *Recorder {
	r := &Recorder{step: -1}
	for _, p := range plots {
		r.plots = append(r.plots, &plot{Plot: p})
	}
	return r
}

// Take adds a point. Points that were missed before it are unknown.
func (r *Recorder) Take(now time.Time, samples []metrics.Sample) {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := r.start.IsZero()
	if first {
		r.start = now
	}
	step := int(now.Sub(r.start).Round(Step) / Step)
	if !first && step <= r.step {
		return
	}
	seconds := now.Sub(r.at).Seconds()
	for _, p := range r.plots {
		p.collect(samples)
		for _, l := range p.lines {
			l.skip(step - r.step - 1)
			l.push(p.Rate, first, seconds)
		}
	}
	r.step, r.at = step, now
}

// collect sums the samples of each line. Quantiles are values at once.
func (p *plot) collect(samples []metrics.Sample) {
	for i := range p.Lines {
		source := &p.Lines[i]
		merged := map[string]*merged{}
		for j := range samples {
			if name, ok := source.nameOf(&samples[j]); ok {
				merge(merged, name, &samples[j])
			}
		}
		names := make([]string, 0, len(merged))
		for name := range merged {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			if len(source.Quantiles) > 0 {
				p.quantiles(source, name, merged[name])
				continue
			}
			l := p.line(name)
			l.sum += merged[name].value * source.scale()
			l.seen = true
		}
	}
}

// merged is the sum of several samples.
type merged struct {
	value   float64
	count   uint64
	buckets map[float64]uint64
}

func merge(into map[string]*merged, name string, s *metrics.Sample) {
	m := into[name]
	if m == nil {
		m = &merged{buckets: map[float64]uint64{}}
		into[name] = m
	}
	m.value += s.Value
	m.count += s.Count
	for bound, n := range s.Buckets {
		m.buckets[bound] += n
	}
}

func (s *Source) scale() float64 {
	if s.Scale == 0 {
		return 1
	}
	return s.Scale
}

// nameOf is the line to which a sample belongs.
func (s *Source) nameOf(sample *metrics.Sample) (string, bool) {
	if sample.Name != s.Metric {
		return "", false
	}
	matched, value := 0, ""
	for _, label := range sample.Labels {
		if wanted, ok := s.Where[label.Name]; ok {
			if wanted != label.Value {
				return "", false
			}
			matched++
		}
		if label.Name == s.By {
			value = label.Value
		}
	}
	if matched < len(s.Where) {
		return "", false
	}
	if s.By == "" {
		return s.Name, true
	}
	if s.Group != nil {
		value = s.Group(value)
	}
	return strings.TrimSpace(s.Name + " " + value), value != ""
}

// line finds a line or makes it. When the plot has as many as it may, it is that of all others.
func (p *plot) line(name string) *line {
	for _, l := range p.lines {
		if l.name == name {
			return l
		}
	}
	if len(p.lines) >= maxLines && name != other {
		return p.line(other)
	}
	l := &line{name: name}
	p.lines = append(p.lines, l)
	return l
}

func (p *plot) quantiles(source *Source, name string, m *merged) {
	for _, q := range source.Quantiles {
		l := p.line(strings.TrimSpace(name + " " + quantileNames[q]))
		value := math.NaN()
		if l.buckets != nil {
			value = quantile(m, l, q)
		}
		l.buckets, l.count = m.buckets, m.count
		l.sum, l.seen = value*source.scale(), true
	}
}

var quantileNames = map[float64]string{0.5: "median", 0.99: "99 %"}

// quantile interpolates inside a bucket of what came since the last point; NaN: nothing. What is above the last bound counts as that bound.
func quantile(now *merged, last *line, q float64) float64 {
	bounds := make([]float64, 0, len(now.buckets))
	for bound := range now.buckets {
		bounds = append(bounds, bound)
	}
	slices.Sort(bounds)
	all := float64(now.count - last.count)
	if now.count <= last.count || len(bounds) == 0 {
		return math.NaN()
	}
	low, below := 0.0, 0.0
	for _, bound := range bounds {
		n := float64(now.buckets[bound] - last.buckets[bound])
		if n >= q*all {
			return low + (bound-low)*(q*all-below)/(n-below)
		}
		low, below = bound, n
	}
	return low
}

func (l *line) skip(steps int) {
	for range min(max(steps, 0), Slots) {
		l.add(math.NaN())
	}
}

// push ends a point. A counter that was not there before began at 0; one that went back has begun again.
func (l *line) push(rate, first bool, seconds float64) {
	value := math.NaN()
	switch {
	case !l.seen:
	case !rate:
		value = l.sum
	case !first && seconds > 0:
		grown := l.sum - l.total
		if grown < 0 {
			grown = l.sum
		}
		value = grown / seconds
	}
	if l.seen && l.buckets == nil {
		l.total = l.sum
	}
	l.sum, l.seen = 0, false
	l.add(value)
}

func (l *line) add(value float64) {
	if len(l.values) == Slots {
		copy(l.values, l.values[1:])
		l.values = l.values[:Slots-1]
	}
	l.values = append(l.values, value)
}

// History returns all lines.
func (r *Recorder) History() v1.History {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := v1.History{At: r.at, Step: Step.Seconds(), Slots: Slots, Plots: []v1.Plot{}}
	for _, p := range r.plots {
		shown := v1.Plot{Title: p.Title, Unit: p.Unit, Rate: p.Rate, Lines: []v1.Line{}}
		for _, l := range p.lines {
			shown.Lines = append(shown.Lines, v1.Line{Name: l.name, Values: l.json()})
		}
		slices.SortFunc(shown.Lines, func(a, b v1.Line) int { return strings.Compare(a.Name, b.Name) })
		h.Plots = append(h.Plots, shown)
	}
	return h
}

func (l *line) json() []*float64 {
	values := make([]*float64, len(l.values))
	for i, v := range l.values {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			values[i] = &v
		}
	}
	return values
}
