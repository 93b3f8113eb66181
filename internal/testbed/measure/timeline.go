package measure

import "time"

// maxSamples bounds the samples of a Timeline: 20 minutes of one a second.
const maxSamples = 1200

// Timeline is a distribution of durations in all, and percentiles of each interval of a run. It is bounded: beyond 1200 samples two
// neighbours become one, and intervals last twice as long. It is not for concurrent use. Times count from the start of the run
// and ascend.
type Timeline struct {
	step    time.Duration // of an interval, at least
	from    time.Duration // begin of the interval under way
	recent  *Latency      // of that interval
	errors  uint64        // likewise
	all     *Latency      // of those that are over
	samples []Sample
}

// NewTimeline returns an empty Timeline with intervals of at least step, which must be positive.
func NewTimeline(step time.Duration) *Timeline {
	return &Timeline{step: step, recent: NewLatency(), all: NewLatency()}
}

// Record adds one duration that was measured at a time. It allocates only where an interval is over. Intervals end at multiples of
// their length; those in which nothing was measured have a sample too.
func (t *Timeline) Record(at, d time.Duration) {
	for at >= t.from+t.step {
		t.close(t.from + t.step)
	}
	t.recent.Record(d)
}

// Merge adds what was measured, and went wrong, since the call before, until a time. The interval ends there if it is long enough.
func (t *Timeline) Merge(until time.Duration, l *Latency, errors uint64) {
	t.recent.Merge(l)
	t.errors += errors
	if until >= t.from+t.step {
		t.close(until)
	}
}

// End returns the samples and all durations of a run that ends at a time. The last interval may be shorter than the others; it has no
// sample if nothing was measured. A later call continues the run.
func (t *Timeline) End(at time.Duration) ([]Sample, *Latency) {
	if at > t.from && t.recent.Count()+t.errors > 0 {
		t.close(at)
	}
	t.all.Merge(t.recent) // of an instant
	t.recent.Reset()
	return t.samples, t.all
}

// close ends the interval under way.
func (t *Timeline) close(at time.Duration) {
	t.samples = append(t.samples, Sample{
		At: at, Rate: float64(t.recent.Count()) / (at - t.from).Seconds(), Errors: t.errors,
		P50: t.recent.Quantile(.5), P99: t.recent.Quantile(.99), Max: t.recent.Max(),
	})
	t.all.Merge(t.recent)
	t.recent.Reset()
	t.from, t.errors = at, 0
	if len(t.samples) >= maxSamples {
		begin := time.Duration(0)
		t.samples = Halve(t.samples, func(a, b Sample) Sample {
			first, second := (a.At - begin).Seconds(), (b.At - a.At).Seconds()
			begin = b.At
			b.Rate = (a.Rate*first + b.Rate*second) / (first + second)
			b.P50, b.P99, b.Max = max(a.P50, b.P50), max(a.P99, b.P99), max(a.Max, b.Max)
			b.Errors += a.Errors
			return b
		})
		t.step *= 2
	}
}

// Halve makes half as many points of a history of those there are: join returns the one for two neighbours, in their order. Percentiles of
// two intervals cannot be computed from theirs; those of the worse one are never better than what was measured. A last point without
// a neighbour is dropped.
func Halve[Point any](points []Point, join func(a, b Point) Point) []Point {
	for i := range len(points) / 2 {
		points[i] = join(points[2*i], points[2*i+1])
	}
	return points[:len(points)/2]
}
