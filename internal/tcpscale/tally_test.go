package tcpscale

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/testbed/measure"
)

// What comes through a worker's report is what a histogram would have recorded at once.
func TestTallyLosesNothing(t *testing.T) {
	direct, through := measure.NewLatency(), newLatencies()
	var counted tallies
	rnd := rand.New(rand.NewPCG(3, 4))
	for round := range 20 {
		for i := range 2000 {
			d := time.Duration(rnd.Int64N(1 << (1 + (i+round)%40)))
			switch i {
			case 0:
				d = 0
			case 1:
				d = -time.Second
			case 2:
				d = measure.Longest
			case 3:
				d = measure.Longest + time.Duration(round)
			}
			direct.Record(d)
			counted.rtt.record(d)
		}
		line, err := json.Marshal(counted.take())
		if err != nil {
			t.Fatal(err)
		}
		var r Recorded
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatal(err)
		}
		through.add(&r)
	}
	if counted.take() != nil {
		t.Error("something is left")
	}
	want, err := json.Marshal(direct)
	if err != nil {
		t.Fatal(err)
	}
	var r Report
	fillLatencies(&r, []*latencies{through})
	got, err := json.Marshal(r.Heartbeats.RTT)
	if err != nil || string(got) != string(want) {
		t.Errorf("%v\n%.300s\nwant\n%.300s", err, got, want)
	}
}

func TestTallyDoesNotAllocate(t *testing.T) {
	var counted tally
	n := time.Duration(0)
	if allocations := testing.AllocsPerRun(1000, func() { n++; counted.record(n % 100 * time.Millisecond) }); allocations > 0.1 {
		t.Errorf("%v allocations", allocations)
	}
}

// held is an engine with connections in a table, and nothing else.
type held struct{ engine }

func (held) fill(r *Report) { r.Connections.Established, r.TableBytes = 100, 1600 }

// A worker that has given back more of its start than its connections took does not report connections without memory.
func TestConnectionsTakeAtLeastTheirTables(t *testing.T) {
	m := meter{before: 1 << 50}
	if r := m.report(held{}, time.Second); r.BytesPerConnection != 16 {
		t.Errorf("%v bytes a connection, the table has 16", r.BytesPerConnection)
	}
}

// An interval is of its own time only, and a run's sum is all of them.
func TestIntervalsAreOfTheirTime(t *testing.T) {
	c := &Group{recent: measure.NewLatency()}
	sum := measure.NewLatency()
	for i, d := range []time.Duration{500 * time.Millisecond, time.Millisecond, 2 * time.Millisecond} {
		addPairs(c.recent, [][2]int64{{int64(d), 100}})
		if got := c.interval(sum); got.Count != 100 || got.P99 > 1.01*measure.Millis(d) || got.Max < 0.99*measure.Millis(d) || got.P50 < 0.99*measure.Millis(d) {
			t.Errorf("interval %d: %+v, want %v", i, got, d)
		}
	}
	if got := c.interval(sum); got.Count != 0 || got.P99 != 0 || sum.Count() != 300 {
		t.Errorf("nothing was recorded: %+v, %d in all", got, sum.Count())
	}
}
