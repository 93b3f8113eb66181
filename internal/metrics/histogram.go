package metrics

import (
	"fmt"
	"strings"
	"time"
)

// bounds are the upper bounds of the buckets of every Histogram; one more bucket holds what is above.
var bounds = [...]time.Duration{
	1 * time.Microsecond, 2500 * time.Nanosecond, 5 * time.Microsecond,
	10 * time.Microsecond, 25 * time.Microsecond, 50 * time.Microsecond,
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	1 * time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	1 * time.Second, 2500 * time.Millisecond, 5 * time.Second,
	10 * time.Second, 25 * time.Second, 50 * time.Second,
}

// Histogram counts durations from 1 µs to 50 s in 24 buckets, three for each power of ten. The zero value is empty. It has no
// lock: its owner, one goroutine or the holder of a mutex, observes and copies it. Observe allocates nothing.
type Histogram struct {
	counts [len(bounds) + 1]uint64
	sum    time.Duration
}

// Observe counts one duration. A negative one, as of a clock that was set back, counts as 0.
func (h *Histogram) Observe(d time.Duration) {
	d = max(d, 0)
	h.sum += d
	h.counts[bucketOf(d)]++
}

// ObserveN counts n equal durations.
func (h *Histogram) ObserveN(d time.Duration, n uint64) {
	d = max(d, 0)
	h.sum += d * time.Duration(n)
	h.counts[bucketOf(d)] += n
}

// bucketOf is a binary search by hand, because slices.BinarySearch compares through a function value.
func bucketOf(d time.Duration) int {
	from, to := 0, len(bounds)
	for from < to {
		middle := (from + to) / 2
		if bounds[middle] < d {
			from = middle + 1
		} else {
			to = middle
		}
	}
	return from
}

// Add adds the counts of another histogram, such as another worker's.
func (h *Histogram) Add(o *Histogram) {
	h.sum += o.sum
	for i, n := range o.counts {
		h.counts[i] += n
	}
}

// Count is the number of durations observed.
func (h *Histogram) Count() (n uint64) {
	for _, c := range h.counts {
		n += c
	}
	return n
}

// Sum is the sum of all durations observed.
func (h *Histogram) Sum() time.Duration { return h.sum }

// bucketRange is which of the bounds a metric exports. What lies below the first is counted in the first.
type bucketRange struct{ first, last int }

// parseBuckets reads LOW..HIGH; both must be bounds. Empty: all of them.
func parseBuckets(text string) (bucketRange, error) {
	all := bucketRange{0, len(bounds) - 1}
	if text == "" {
		return all, nil
	}
	low, high, ok := strings.Cut(text, "..")
	if !ok {
		return all, fmt.Errorf("buckets %q: write LOW..HIGH", text)
	}
	for _, end := range []struct {
		text  string
		index *int
	}{{low, &all.first}, {high, &all.last}} {
		d, err := time.ParseDuration(end.text)
		if err != nil {
			return all, err
		}
		if *end.index = bucketOf(d); *end.index == len(bounds) || bounds[*end.index] != d {
			return all, fmt.Errorf("buckets %q: %s is no bound of a bucket", text, end.text)
		}
	}
	return all, nil
}

// buckets returns the cumulative counts by upper bound in seconds.
func (h *Histogram) buckets(r bucketRange) map[float64]uint64 {
	out := make(map[float64]uint64, r.last-r.first+1)
	var sum uint64
	for i := 0; i <= r.last; i++ {
		sum += h.counts[i]
		if i >= r.first {
			out[seconds(bounds[i])] = sum
		}
	}
	return out
}

// seconds divides once, so that 2.5 ms is 0.0025 and not 0.0025000000000000005.
func seconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e9 }
