package fragsim

import (
	"context"
	"math"
	"time"
)

const (
	adviceInserts = 200_000 // of a first try; each one ends with its first loss
	proofInserts  = 1_000_000
	proofRuns     = 3
)

// Advise finds table sizes for c.Rate and c.TTL; the other fields but Seed are
// not looked at. The error is the context's.
func Advise(ctx context.Context, c Config, progress Progress) (Advice, error) {
	live := c.live()
	a := Advice{Live: live, WeirEntries: int(math.Ceil(live + 6*math.Sqrt(live) + 1))}
	low, high := max(live/2, 3), max(20*live, 101)
	for size := nextPrime(int(low)); float64(size) <= high && size <= MaxEntries; size = nextPrime(max(size+1, size+size/64)) {
		if progress != nil {
			progress(math.Log(float64(size)/low) / math.Log(high/low))
		}
		a.NFQLBTried = size
		ok := lossless(ctx, c, size, 0, adviceInserts)
		for run := 1; ok && run <= proofRuns; run++ {
			ok = lossless(ctx, c, size, run, proofInserts)
		}
		if err := ctx.Err(); err != nil {
			return a, err
		}
		if ok {
			a.NFQLBSize = size
			break
		}
	}
	return a, nil
}

// lossless says whether nfqlb's table with size buckets twice takes that many
// datagrams without a loss.
func lossless(ctx context.Context, c Config, size, run int, inserts uint64) bool {
	c.Table, c.Size, c.Buckets = NFQLB, size, size
	t := newChains(c.Size, c.Buckets, c.TTL)
	traffic := newTraffic(c, run)
	for n := range max(inserts, uint64(20*c.live())) {
		if !t.insert(traffic.next()) || n%stepInserts == 0 && ctx.Err() != nil {
			return false
		}
	}
	return true
}

func nextPrime(n int) int {
	for ; ; n++ {
		if isPrime(n) {
			return n
		}
	}
}

func isPrime(n int) bool {
	for d := 2; d*d <= n; d++ {
		if n%d == 0 {
			return false
		}
	}
	return n > 1
}

// Point is one place on a curve of losses.
type Point struct {
	At          float64 // entries, or datagrams per second
	PercentLoss float64
}

// Curve is the loss of one table over its size or over the rate.
type Curve struct {
	Name   string
	Points []Point
}

// Curves are the losses of both tables around a configuration.
type Curves struct {
	OverSize, OverRate []Curve
}

const (
	curvePoints  = 24
	curveInserts = 40_000
)

// Sweep draws the curves: each point is one run of some ten thousand datagrams.
// The size is varied at c.Rate (as many buckets as main buckets), and the rate
// with the table of c. The error is the context's.
func Sweep(ctx context.Context, c Config, progress Progress) (Curves, error) {
	bySize := []Curve{{Name: "Weir"}, {Name: "nfqlb, prime size"}, {Name: "nfqlb, round size"}}
	byRate := []Curve{{Name: "Weir"}, {Name: "nfqlb"}}
	point := func(curve *Curve, at float64, c Config) {
		c.Repeat, c.Parallel = 1, 1
		inserts := max(curveInserts, 20*c.live())
		c.Duration = max(time.Duration(inserts/float64(c.Rate)*float64(time.Second)), 1)
		if r, err := simulate(c, 0, func(time.Duration) error { return ctx.Err() }); err == nil {
			curve.Points = append(curve.Points, Point{at, r.PercentLoss})
		}
	}
	for i := 1; i <= curvePoints; i++ {
		if progress != nil {
			progress(float64(i) / curvePoints)
		}
		half := max(int(c.live()*float64(i)/curvePoints*3/2), 1) // up to three times what is alive
		prime := min(nextPrime(half), MaxEntries)
		round := max((half+5)/10*10, 1)
		for j, s := range []Config{{Table: Weir, Size: half, Buckets: half}, {Table: NFQLB, Size: prime, Buckets: prime}, {Table: NFQLB, Size: round, Buckets: round}} {
			s.TTL, s.Rate, s.Seed = c.TTL, c.Rate, c.Seed
			point(&bySize[j], float64(s.Size+s.Buckets), s)
		}
		s := c
		s.Rate = max(c.Rate*2*i/curvePoints, 1)
		for j, kind := range []Kind{Weir, NFQLB} {
			s.Table = kind
			point(&byRate[j], float64(s.Rate), s)
		}
		if err := ctx.Err(); err != nil {
			return Curves{}, err
		}
	}
	return Curves{OverSize: bySize, OverRate: byRate}, nil
}
