package programcost

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/weir-lb/weir/internal/datapath/ebpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/maps"
)

// agedTimeout is how long a flow lives in an aged table, by the clock that the benchmark sets.
const agedTimeout = 30 * time.Second

// agedSteps is how often the clock is advanced while as many flows come as the table is for.
const agedSteps = 64

// agedTable sends new flows to a table as it is in service: limits.flows flows are alive, the other entries are those of
// flows that expired, and each packet is a flow that the table does not know. The clock is advanced such that as many
// flows expire as come. Nothing reads or writes the table between the packets that are timed.
type agedTable struct {
	b     *bencher
	d     *ebpf.Unattached
	t     *bpf.BenchTemplate
	swept uint64 // when expired entries were reclaimed last
}

// fill sends twice limits.flows flows, of which the first half expires.
func (a *agedTable) fill(ctx context.Context) error {
	a.swept = uint64(a.d.Clock().Ticks(24 * time.Hour)) // time starts a day in, so that no expiry is zero
	atomic.StoreUint64(&a.d.Tables().Control.Now, a.swept)
	for range 2 * agedSteps {
		if err := ctx.Err(); err != nil {
			return err
		}
		a.sweep()
		if _, err := a.send(a.step()); err != nil {
			return err
		}
	}
	return nil
}

// round times packets. The first step is not timed: it fetches what the programs need besides the table, and the table's
// lines that are in the caches afterwards are those of random flows.
func (a *agedTable) round(packets int) (ns float64, err error) {
	a.sweep()
	if _, err := a.send(a.step()); err != nil {
		return 0, err
	}
	for left := packets; left > 0; {
		n := min(left, a.step())
		each, err := a.send(n)
		if err != nil {
			return 0, err
		}
		ns += each * float64(n)
		left -= n
	}
	return ns / float64(packets), nil
}

// step is the number of flows between two advances of the clock.
func (a *agedTable) step() int { return max(a.b.config.Flows/agedSteps, 1) }

// send sends n new flows and advances the clock by their share of the time-out.
func (a *agedTable) send(n int) (ns float64, err error) {
	ns, err = a.b.Time(a.d.Program(), a.t, n)
	a.t.Next += uint64(n)
	atomic.AddUint64(&a.d.Tables().Control.Now, uint64(a.d.Clock().Ticks(agedTimeout))*uint64(n)/uint64(a.b.config.Flows))
	return ns, err
}

// sweep does what the data path does every few seconds in service.
func (a *agedTable) sweep() {
	now := a.d.Now()
	a.d.Tables().WatchFlows(now, a.d.Clock())
	if now-a.swept >= uint64(a.d.Clock().Ticks(maps.ReclaimEvery)) {
		a.swept = now
		a.d.Tables().Reclaim(now)
	}
}
