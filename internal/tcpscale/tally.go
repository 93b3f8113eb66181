package tcpscale

import (
	"math/bits"
	"time"

	"github.com/weir-lb/weir/internal/testbed/measure"
)

// tally counts durations since the last report, in the buckets of a [measure.Latency], so that nothing is lost when they
// are added to one. It knows which buckets it has used: a report costs what was recorded, not what could have been.
type tally struct {
	counts [tallyBuckets + 1]uint32 // the last one: longer than measure.Longest
	used   []uint32
}

// Values below 2048 units of 64 ns have a bucket each, as have 1024 shares of each octave above.
const (
	tallyUnit    = 6  // bits
	tallyDigits  = 11 // bits
	tallyOctaves = 40 - tallyDigits - tallyUnit
	tallyBuckets = (tallyOctaves + 2) << (tallyDigits - 1)
)

func (t *tally) record(d time.Duration) {
	i := uint32(tallyBuckets)
	if d <= measure.Longest {
		v := uint64(max(d, 0))
		shift := max(bits.Len64(v)-tallyDigits, tallyUnit)
		i = uint32(v>>shift) + uint32(shift-tallyUnit)<<(tallyDigits-1)
	}
	if t.counts[i]++; t.counts[i] == 1 {
		t.used = append(t.used, i)
	}
}

// take returns pairs of a duration in ns and a count, and begins again.
func (t *tally) take() [][2]int64 {
	if len(t.used) == 0 {
		return nil
	}
	all := make([][2]int64, 0, len(t.used))
	for _, i := range t.used {
		d := int64(measure.Longest) + 1
		if i < tallyBuckets {
			const half = 1 << (tallyDigits - 1)
			octave := max(int64(i)/half-1, 0)
			d = (int64(i) - octave*half) << (octave + tallyUnit)
		}
		all = append(all, [2]int64{d, int64(t.counts[i])})
		t.counts[i] = 0
	}
	t.used = t.used[:0]
	return all
}

// tallies are a client's.
type tallies struct{ connect, rtt, detected, back tally }

func (t *tallies) take() *Recorded {
	r := &Recorded{Connect: t.connect.take(), RTT: t.rtt.take(), Detected: t.detected.take(), Reconnect: t.back.take()}
	if r.Connect == nil && r.RTT == nil && r.Detected == nil && r.Reconnect == nil {
		return nil
	}
	return r
}

// Recorded is what a worker has measured since its last report: pairs of a duration in ns and a count.
type Recorded struct {
	Connect   [][2]int64 `json:"connect,omitempty"`
	RTT       [][2]int64 `json:"rtt,omitempty"`
	Detected  [][2]int64 `json:"detected,omitempty"`
	Reconnect [][2]int64 `json:"reconnect,omitempty"`
}

// latencies are those of all workers of a client since its start.
type latencies struct{ connect, rtt, detected, back *measure.Latency }

func newLatencies() *latencies {
	return &latencies{connect: measure.NewLatency(), rtt: measure.NewLatency(), detected: measure.NewLatency(), back: measure.NewLatency()}
}

func (l *latencies) add(r *Recorded) {
	if r == nil {
		return
	}
	for _, one := range []struct {
		into  *measure.Latency
		pairs [][2]int64
	}{{l.connect, r.Connect}, {l.rtt, r.RTT}, {l.detected, r.Detected}, {l.back, r.Reconnect}} {
		addPairs(one.into, one.pairs)
	}
}

func addPairs(into *measure.Latency, pairs [][2]int64) {
	for _, p := range pairs {
		into.RecordN(time.Duration(p[0]), uint64(max(p[1], 0)))
	}
}

// fillLatencies gives a report the sum: a copy, as ours go on. Without any, a server's, it does nothing.
func fillLatencies(r *Report, all []*latencies) {
	if len(all) == 0 {
		return
	}
	sum := newLatencies()
	for _, l := range all {
		sum.connect.Merge(l.connect)
		sum.rtt.Merge(l.rtt)
		sum.detected.Merge(l.detected)
		sum.back.Merge(l.back)
	}
	r.Connect, r.Heartbeats.RTT, r.Detected, r.Reconnect = sum.connect, sum.rtt, sum.detected, sum.back
}
