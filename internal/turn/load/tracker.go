package load

import (
	"math"
	"time"
)

// tracker follows the datagrams of one connection in one direction. Times are ns since the Load was opened.
type tracker struct {
	received, reordered, duplicates, damaged, bytes uint64

	next   uint64              // one above the highest sequence number seen
	window [windowWords]uint64 // bit of sequence s is s mod windowBits; those of next-windowBits to next-1 are valid

	transit int64   // of the last arrival
	jitter  float64 // ns
	mean    float64 // of the latency, ns; Welford's recurrence
	m2      float64
	minimum int64
	limit   int64

	begin, last int64 // of the phase; of the last arrival
	gap         int64
}

const (
	windowWords = 64
	windowBits  = 64 * windowWords
)

// arrive counts a complete datagram. It returns false for a duplicate.
func (t *tracker) arrive(sequence uint64, sent, now int64, size int) bool {
	if !t.mark(sequence) {
		t.duplicates++
		return false
	}
	t.received++
	t.bytes += uint64(size)
	t.gap = max(t.gap, now-t.last)
	t.last = now
	transit := now - sent
	if t.received > 1 {
		t.jitter += (math.Abs(float64(transit-t.transit)) - t.jitter) / 16
	}
	t.transit = transit
	t.observe(transit)
	return true
}

func (t *tracker) observe(latency int64) {
	x := float64(latency)
	delta := x - t.mean
	t.mean += delta / float64(t.received)
	t.m2 += delta * (x - t.mean)
	if t.received == 1 {
		t.minimum, t.limit = latency, latency
	}
	t.minimum, t.limit = min(t.minimum, latency), max(t.limit, latency)
}

// mark records a sequence number and reports whether it is new. A number older than the window counts as late, not as
// a duplicate.
func (t *tracker) mark(sequence uint64) bool {
	if sequence >= t.next {
		if sequence-t.next >= windowBits {
			clear(t.window[:])
		} else {
			for s := t.next; s < sequence; s++ {
				t.window[s/64%windowWords] &^= 1 << (s % 64)
			}
		}
		t.next = sequence + 1
		t.window[sequence/64%windowWords] |= 1 << (sequence % 64)
		return true
	}
	if t.next-sequence <= windowBits {
		word, bit := &t.window[sequence/64%windowWords], uint64(1)<<(sequence%64)
		if *word&bit != 0 {
			return false
		}
		*word |= bit
	}
	t.reordered++
	return true
}

// connection returns the report of the connection. end is when sending ended.
func (t *tracker) connection(sent, refused uint64, end int64) Connection {
	c := Connection{
		Sent: sent, Refused: refused, Received: t.received, Lost: sent - min(sent, t.received), Reordered: t.reordered,
		Duplicates: t.duplicates, Damaged: t.damaged, Bytes: t.bytes, Elapsed: time.Duration(max(end, t.last) - t.begin),
		Jitter: time.Duration(t.jitter), LongestGap: time.Duration(max(t.gap, end-t.last)),
	}
	if t.received > 0 {
		c.Latency = Moments{
			Count: t.received, Mean: time.Duration(t.mean), Min: time.Duration(t.minimum), Max: time.Duration(t.limit),
			Stdev: time.Duration(math.Sqrt(t.m2 / float64(t.received))),
		}
	}
	return c
}

// sumOf adds connections up. Rates add; jitter is the mean, because a sum has no jitter; moments combine exactly.
func sumOf(list []Connection) Connection {
	sum := Connection{ID: -1}
	var mean, m2, jitter float64
	for _, c := range list {
		sum.Sent += c.Sent
		sum.Refused += c.Refused
		sum.Received += c.Received
		sum.Lost += c.Lost
		sum.Reordered += c.Reordered
		sum.Duplicates += c.Duplicates
		sum.Damaged += c.Damaged
		sum.Bytes += c.Bytes
		sum.Elapsed = max(sum.Elapsed, c.Elapsed)
		sum.LongestGap = max(sum.LongestGap, c.LongestGap)
		jitter += float64(c.Jitter)
		if n := c.Latency.Count; n > 0 {
			if sum.Latency.Count == 0 {
				sum.Latency.Min = c.Latency.Min
			}
			sum.Latency.Min, sum.Latency.Max = min(sum.Latency.Min, c.Latency.Min), max(sum.Latency.Max, c.Latency.Max)
			total := sum.Latency.Count + n
			delta := float64(c.Latency.Mean) - mean
			mean += delta * float64(n) / float64(total)
			deviation := float64(c.Latency.Stdev)
			m2 += deviation*deviation*float64(n) + delta*delta*float64(sum.Latency.Count)*float64(n)/float64(total)
			sum.Latency.Count = total
		}
	}
	if sum.Latency.Count > 0 {
		sum.Latency.Mean = time.Duration(mean)
		sum.Latency.Stdev = time.Duration(math.Sqrt(m2 / float64(sum.Latency.Count)))
		sum.Jitter = time.Duration(jitter / float64(len(list)))
	}
	return sum
}
