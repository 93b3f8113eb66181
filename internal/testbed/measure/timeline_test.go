package measure_test

import (
	"slices"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/testbed/measure"
)

// roughly compares within the resolution of the histogram.
func roughly(got, want time.Duration) bool {
	return (got - want).Abs() <= want/100+200*time.Nanosecond
}

// A freeze of the path shows in its own second and in no other.
func TestATimelineShowsWhen(t *testing.T) {
	l := measure.NewTimeline(time.Second)
	for at := time.Duration(0); at < 5*time.Second; at += 10 * time.Millisecond {
		d := time.Millisecond
		if at == 3300*time.Millisecond {
			d = 300 * time.Millisecond
		}
		l.Record(at, d)
	}
	samples, all := l.End(5 * time.Second)
	if len(samples) != 5 || all.Count() != 500 {
		t.Fatalf("%d samples, %d durations", len(samples), all.Count())
	}
	for i, s := range samples {
		worst := time.Millisecond
		if i == 3 {
			worst = 300 * time.Millisecond
		}
		if s.At != time.Duration(i+1)*time.Second || s.Rate != 100 || !roughly(s.P50, time.Millisecond) || !roughly(s.Max, worst) {
			t.Errorf("sample %d: %+v", i, s)
		}
	}
}

// Seconds without an answer are in it, with a rate of 0; the last interval is as long as it was.
func TestATimelineHasItsGaps(t *testing.T) {
	l := measure.NewTimeline(time.Second)
	l.Record(500*time.Millisecond, time.Millisecond)
	l.Record(3500*time.Millisecond, time.Millisecond)
	samples, _ := l.End(3750 * time.Millisecond)
	var rates []float64
	for _, s := range samples {
		rates = append(rates, s.Rate)
	}
	if want := []float64{1, 0, 0, 1 / 0.75}; !slices.Equal(rates, want) || samples[3].At != 3750*time.Millisecond {
		t.Errorf("rates %v, want %v; %+v", rates, want, samples)
	}
}

// What is handed over in parts that are shorter than an interval is one sample, its errors included.
func TestATimelineOfParts(t *testing.T) {
	l := measure.NewTimeline(time.Second)
	for i := 1; i <= 25; i++ {
		part := measure.NewLatency()
		part.RecordN(time.Duration(i)*time.Millisecond, 4)
		l.Merge(time.Duration(i)*100*time.Millisecond, part, 1)
	}
	samples, all := l.End(2500 * time.Millisecond)
	if len(samples) != 3 || all.Count() != 100 {
		t.Fatalf("%+v, %d durations", samples, all.Count())
	}
	for i, want := range []measure.Sample{
		{At: time.Second, Rate: 40, Errors: 10, Max: 10 * time.Millisecond},
		{At: 2 * time.Second, Rate: 40, Errors: 10, Max: 20 * time.Millisecond},
		{At: 2500 * time.Millisecond, Rate: 40, Errors: 5, Max: 25 * time.Millisecond},
	} {
		if s := samples[i]; s.At != want.At || s.Rate != want.Rate || s.Errors != want.Errors || !roughly(s.Max, want.Max) {
			t.Errorf("sample %d: %+v, want %+v", i, s, want)
		}
	}
}

// Two hours of seconds take no more room than 20 minutes, and lose neither counts nor the longest duration.
func TestATimelineIsBounded(t *testing.T) {
	l := measure.NewTimeline(time.Second)
	const seconds = 7200
	for i := range seconds {
		d := time.Millisecond
		if i == 5000 {
			d = time.Minute
		}
		l.Record(time.Duration(i)*time.Second, d)
	}
	samples, all := l.End(seconds * time.Second)
	answered, before, worst := 0.0, time.Duration(0), time.Duration(0)
	for _, s := range samples {
		answered += s.Rate * (s.At - before).Seconds()
		before, worst = s.At, max(worst, s.Max)
	}
	if len(samples) > 1200 || len(samples) < 600 || all.Count() != seconds || answered < seconds-0.5 || answered > seconds+0.5 || !roughly(worst, time.Minute) {
		t.Errorf("%d samples of %d durations: %v answered, the longest %v", len(samples), all.Count(), answered, worst)
	}
}

func TestATimelineRecordsWithoutAllocation(t *testing.T) {
	l := measure.NewTimeline(time.Hour)
	if n := testing.AllocsPerRun(1000, func() { l.Record(time.Second, time.Millisecond) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
