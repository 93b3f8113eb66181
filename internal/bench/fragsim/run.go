package fragsim

import (
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-lb/weir/internal/steering/flow"
)

// Progress is called with the share that is done, 0 to 1; never by two goroutines at one time.
type Progress func(done float64)

// Run simulates c.Repeat runs and returns their results in order. The error is
// Validate's or the context's.
func Run(ctx context.Context, c Config, progress Progress) ([]Result, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	var (
		results   = make([]Result, c.Repeat)
		next      atomic.Int64
		workers   sync.WaitGroup
		reporting sync.Mutex
		passed    time.Duration // virtual, of all runs
	)
	step := func(d time.Duration) error {
		if progress != nil {
			reporting.Lock()
			passed += d
			progress(float64(passed) / float64(c.Duration) / float64(c.Repeat))
			reporting.Unlock()
		}
		return ctx.Err()
	}
	for range min(c.Parallel, c.Repeat) {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < c.Repeat; i = int(next.Add(1)) - 1 {
				var err error
				if results[i], err = simulate(c, i, step); err != nil {
					return
				}
			}
		})
	}
	workers.Wait()
	return results, ctx.Err()
}

// stepInserts is how often a run reports and can be stopped.
const stepInserts = 1 << 16

// table is what both kinds have in common.
type table interface {
	insert(id uint64, now time.Duration) bool
	// result fills in what the table knows once the traffic has ended.
	result(r *Result, now time.Duration)
}

// traffic is the arrivals of one run.
type traffic struct {
	random *rand.Rand
	spread int64 // nanoseconds, twice the mean; whole, as the original counts
	id     uint64
	now    time.Duration
}

func newTraffic(c Config, run int) *traffic {
	random := rand.New(rand.NewPCG(c.Seed, uint64(run)))
	spread := 2 * max(int64(time.Second)/int64(c.Rate), 1)
	return &traffic{random: random, spread: spread, id: uint64(random.Int32())}
}

func (t *traffic) next() (id uint64, now time.Duration) {
	t.id++
	t.now += time.Duration(t.random.Int64N(t.spread))
	return t.id, t.now
}

func simulate(c Config, run int, step func(time.Duration) error) (Result, error) {
	traffic := newTraffic(c, run)
	var t table
	if c.Table == NFQLB {
		t = newChains(c.Size, c.Buckets, c.TTL)
	} else {
		t = newSlab(c.Size, c.Buckets, c.TTL)
	}
	r := Result{TTLMillis: c.TTL.Milliseconds(), Size: c.Size, BucketsMax: c.Buckets}
	now, reported := time.Duration(0), time.Duration(0)
	for now < c.Duration {
		var id uint64
		id, now = traffic.next()
		r.Inserts++
		if !t.insert(id, now) {
			r.Rejected++
		}
		if r.Inserts%stepInserts == 0 {
			if err := step(now - reported); err != nil {
				return r, err
			}
			reported = now
		}
	}
	t.result(&r, now)
	r.PercentLoss = 100 * float64(r.Rejected) / float64(r.Inserts)
	return r, step(c.Duration - reported)
}

func (c *chains) result(r *Result, now time.Duration) {
	r.Collisions, r.BucketsPeak, r.EntriesPeak = c.collisions, c.highest, c.peak
	r.BucketsStale = c.finish(now)
	r.ObjGC, r.Active = c.reclaimed, c.live
}

// slab is Weir's table in the simulator.
type slab struct {
	fragments *flow.Fragments[int32]
	size      int
	peak      int
}

func newSlab(size, buckets int, ttl time.Duration) *slab {
	return &slab{fragments: flow.NewFragments[int32](size+buckets, 0, 1, ttl, nil), size: size}
}

func (s *slab) insert(id uint64, now time.Duration) bool {
	before := s.fragments.Counters().EvictedYoung
	_, held := s.fragments.First(flow.FragmentKey{ID: uint32(id), Proto: flow.ProtoUDP}, 1, now)
	after := s.fragments.Counters()
	s.peak = max(s.peak, after.Entries)
	// One that another evicts in the first half of its ttl is lost as if there had been no room for the other.
	return held == flow.FragmentKnown && after.EvictedYoung == before
}

func (s *slab) result(r *Result, now time.Duration) {
	before := s.fragments.Counters()
	s.fragments.Expire(now)
	after := s.fragments.Counters()
	r.EntriesPeak, r.BucketsPeak = s.peak, max(0, s.peak-s.size)
	r.BucketsStale, r.ObjGC, r.Active = after.Expired-before.Expired, after.Expired+after.EvictedKnown, after.Entries
	r.Early = after.EvictedKnown - after.EvictedYoung
}

// Mean is the mean of every field over the runs; counts are rounded.
func Mean(results []Result) Result {
	if len(results) == 0 {
		return Result{}
	}
	m := results[0]
	mean := func(of func(Result) float64) float64 {
		sum := 0.0
		for _, r := range results {
			sum += of(r)
		}
		return sum / float64(len(results))
	}
	count := func(of func(Result) uint64) uint64 {
		return uint64(math.Round(mean(func(r Result) float64 { return float64(of(r)) })))
	}
	m.Active = int(count(func(r Result) uint64 { return uint64(r.Active) }))
	m.Collisions = count(func(r Result) uint64 { return r.Collisions })
	m.Inserts = count(func(r Result) uint64 { return r.Inserts })
	m.Rejected = count(func(r Result) uint64 { return r.Rejected })
	m.ObjGC = count(func(r Result) uint64 { return r.ObjGC })
	m.BucketsPeak = int(count(func(r Result) uint64 { return uint64(r.BucketsPeak) }))
	m.BucketsStale = count(func(r Result) uint64 { return r.BucketsStale })
	m.EntriesPeak = int(count(func(r Result) uint64 { return uint64(r.EntriesPeak) }))
	m.Early = count(func(r Result) uint64 { return r.Early })
	m.PercentLoss = mean(func(r Result) float64 { return r.PercentLoss })
	return m
}
