package measure

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"

	"github.com/weir-lb/weir/api/v1"
)

// Longest is the longest duration that a [Latency] distinguishes from longer ones.
const Longest = 10 * time.Minute

// shortest is the resolution asked of the histogram; it gives the power of two below.
const shortest = 100 * time.Nanosecond

const significantDigits = 3

// Latency is a histogram of durations. It is not for concurrent use: one per worker, then Merge.
type Latency struct {
	histogram *hdr.Histogram
	over      uint64 // values above Longest, recorded as Longest
}

// NewLatency returns an empty histogram.
func NewLatency() *Latency {
	return &Latency{histogram: hdr.New(int64(shortest), int64(Longest), significantDigits)}
}

// Record adds one duration. A negative one counts as 0, one above Longest as Longest (and in Over). It never allocates.
func (l *Latency) Record(d time.Duration) { l.RecordN(d, 1) }

// RecordN adds n equal durations.
func (l *Latency) RecordN(d time.Duration, n uint64) {
	if d > Longest {
		d, l.over = Longest, l.over+n
	}
	// Cannot fail: the value is within the histogram's range.
	_ = l.histogram.RecordValues(int64(max(d, 0)), int64(min(n, math.MaxInt64)))
}

// Merge adds everything that other recorded.
func (l *Latency) Merge(other *Latency) {
	l.histogram.Merge(other.histogram)
	l.over += other.over
}

// Reset forgets everything.
func (l *Latency) Reset() {
	l.histogram.Reset()
	l.over = 0
}

// Count is the number of recorded durations.
func (l *Latency) Count() uint64 { return uint64(l.histogram.TotalCount()) }

// Over is how many of them were above Longest.
func (l *Latency) Over() uint64 { return l.over }

// Quantile returns the duration that a share q (0 to 1) of the recorded ones do not exceed; 0 without any.
func (l *Latency) Quantile(q float64) time.Duration {
	if l.Count() == 0 {
		return 0
	}
	return time.Duration(l.histogram.ValueAtQuantile(min(max(q, 0), 1) * 100))
}

// Min is the shortest duration, within the resolution; 0 without any.
func (l *Latency) Min() time.Duration {
	if l.Count() == 0 {
		return 0
	}
	return time.Duration(l.histogram.Min())
}

// Max is the longest duration, within the resolution; 0 without any.
func (l *Latency) Max() time.Duration {
	if l.Count() == 0 {
		return 0
	}
	return time.Duration(l.histogram.Max())
}

// Mean is the average; 0 without any.
func (l *Latency) Mean() time.Duration {
	if l.Count() == 0 {
		return 0
	}
	return time.Duration(l.histogram.Mean())
}

// Form is the public form of the histogram, for JSON; nil of nil.
func (l *Latency) Form() *v1.BenchLatency {
	if l == nil {
		return nil
	}
	form := v1.BenchLatency{
		Count: l.Count(), Min: Millis(l.Min()), Mean: Millis(l.Mean()), P50: Millis(l.Quantile(0.50)),
		P90: Millis(l.Quantile(0.90)), P95: Millis(l.Quantile(0.95)), P99: Millis(l.Quantile(0.99)),
		P999: Millis(l.Quantile(0.999)), P9999: Millis(l.Quantile(0.9999)), Max: Millis(l.Max()), Over: l.over, Buckets: [][2]int64{},
	}
	for _, bar := range l.histogram.Distribution() {
		if bar.Count > 0 {
			form.Buckets = append(form.Buckets, [2]int64{bar.To, bar.Count})
		}
	}
	return &form
}

// LatencyOf is the histogram that has this form; nil of nil. It reads the buckets; the percentiles follow from them. The error says
// what no histogram can have.
func LatencyOf(form *v1.BenchLatency) (*Latency, error) {
	if form == nil {
		return nil, nil
	}
	read := NewLatency()
	var total uint64
	for i, bucket := range form.Buckets {
		if bucket[0] < 0 || bucket[1] <= 0 || uint64(bucket[1]) > math.MaxInt64-total {
			return nil, fmt.Errorf("buckets[%d]: duration %d ns, count %d: want both positive and a sum below 2^63", i, bucket[0], bucket[1])
		}
		total += uint64(bucket[1])
		read.RecordN(min(time.Duration(bucket[0]), Longest), uint64(bucket[1]))
	}
	if total != form.Count {
		return nil, fmt.Errorf("count is %d, the buckets hold %d", form.Count, total)
	}
	read.over = form.Over
	return read, nil
}

// MarshalJSON implements [json.Marshaler]: the public form.
func (l *Latency) MarshalJSON() ([]byte, error) { return json.Marshal(l.Form()) }

// UnmarshalJSON implements [json.Unmarshaler].
func (l *Latency) UnmarshalJSON(data []byte) error {
	var form v1.BenchLatency
	if err := json.Unmarshal(data, &form); err != nil {
		return err
	}
	read, err := LatencyOf(&form)
	if err == nil {
		*l = *read
	}
	return err
}

// Percentile is a point of a curve.
type Percentile struct {
	Name string  // "p99.9"
	Q    float64 // share, 0 to 1
	D    time.Duration
}

// CurvePoints are the distribution for a picture: y in milliseconds over x, in which each unit to the right is a tenth of the share
// that takes longer (p90 is 1, p99 is 2, the longest 5). Both are nil for nothing.
func (l *Latency) CurvePoints() (x, y []float64) {
	if l == nil || l.Count() == 0 {
		return nil, nil
	}
	for _, p := range l.Curve() {
		x, y = append(x, min(-math.Log10(1-p.Q), 5)), append(y, Millis(p.D))
	}
	return x, y
}

// Curve is the distribution from the median to its end, the maximum.
func (l *Latency) Curve() []Percentile {
	var all []Percentile
	for _, p := range []struct {
		name string
		q    float64
	}{{"p50", .5}, {"p75", .75}, {"p90", .9}, {"p95", .95}, {"p99", .99}, {"p99.5", .995}, {"p99.9", .999}, {"p99.99", .9999}} {
		all = append(all, Percentile{p.name, p.q, l.Quantile(p.q)})
	}
	return append(all, Percentile{"max", 1, l.Max()})
}

// Millis is d in milliseconds, as results state it.
func Millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
