package bench

import (
	"slices"

	"github.com/weir-lb/weir/internal/testbed/measure"
)

// minimumSoak is the shortest run that is judged: abandoned TURN allocations live for 10 minutes, and only then does every table
// hold what it will go on to hold.
const minimumSoak = 20 * 60 // seconds

// level is how a gauge ended.
type level struct {
	last     float64 // median of the last third
	growth   float64 // over the last third, by a line through it
	perHour  float64 // the same line, in an hour
	allowed  float64 // growth over the last third
	levelled bool
}

// gaugeSlack is what a gauge may grow in any case: less is noise of the collector and of what happens to be under way.
func gaugeSlack(name string) float64 {
	switch name {
	case gaugeResident, gaugeHeap:
		return 2 << 20
	case gaugeThreads:
		return 2
	case gaugeDescriptors, gaugeGoroutines:
		return 10
	}
	return 0
}

// levelOf judges the last third of a series. It has levelled off if the line through it (Theil and Sen: the median of the slopes
// of all pairs, which no single outlier moves) grows by at most the share, or by the slack of the gauge.
func levelOf(s *measure.Series, share float64) level {
	if s == nil || len(s.At) == 0 {
		return level{levelled: true}
	}
	end := s.At[len(s.At)-1]
	first, _ := slices.BinarySearch(s.At, end*2/3)
	at, values := thinned(s.At[first:], 200), thinned(s.Values[first:], 200)
	l := level{last: median(values)}
	var slopes []float64
	for i := range at {
		for j := i + 1; j < len(at); j++ {
			if at[j] > at[i] {
				slopes = append(slopes, (values[j]-values[i])/(at[j]-at[i]))
			}
		}
	}
	l.allowed = max(share*l.last, gaugeSlack(s.Name))
	if len(slopes) > 0 {
		slope := median(slopes)
		l.growth, l.perHour = slope*(at[len(at)-1]-at[0]), slope*3600
	}
	l.levelled = l.growth <= l.allowed
	return l
}

// thinned takes at most n values, evenly spaced.
func thinned(values []float64, n int) []float64 {
	if len(values) <= n {
		return values
	}
	out := make([]float64, n)
	for i := range out {
		out[i] = values[i*len(values)/n]
	}
	return out
}
