package ebpf

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
)

// sweepEvery is how often expired entries are looked for. Programs take expired
// entries' places by themselves; sweeping makes counts right and frees what
// waits for first fragments that never came.
const sweepEvery = time.Second

// fragmentWaiting and fragmentLost mirror enum fragment_kind, rankLost enum fragment_rank, which is in the way's state.
const (
	fragmentWaiting, fragmentLost = 2, 3
	rankLost, rankShift           = 3, 24
)

// sweep frees expired entries until ctx ends.
func (d *Datapath) sweep(ctx context.Context) error {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if t := d.tablesNow(); t != nil {
			t.expireFragments(d.now())
		}
		d.mu.Lock()
		if d.tables != nil {
			d.watchFlows(d.now())
			d.endTrace()
			d.follow()
		}
		d.mu.Unlock()
	}
}

// tablesNow are the tables; nil before the first Apply.
func (d *Datapath) tablesNow() *tables {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.tables
}

// crowdedSample is how many buckets of the flow table one look at its fill reads: 256 KB, whatever the table's size.
const crowdedSample = 4096

// watchFlows tells the programs for the next seconds whether more than three quarters of the flow table are in use. The
// hash spreads flows evenly over the dense part and over the rest, so evenly spaced buckets stand for all.
func (d *Datapath) watchFlows(now uint64) {
	t := d.tables
	used, seen := t.flowsAlive(now, max(len(t.flows)/crowdedSample, 1))
	until := uint64(0)
	if 4*used > 3*seen {
		until = now + uint64(d.clock.ticks(3*sweepEvery)) // and no longer, should nobody look again
	}
	if atomic.LoadUint64(&t.control.Crowded) != until {
		atomic.StoreUint64(&t.control.Crowded, until)
	}
}

// flowsAlive counts the live entries of every step-th bucket of the flow table, and the entries that those buckets have room for.
func (t *tables) flowsAlive(now uint64, step int) (used, seen int) {
	for i := 0; i < len(t.flows); i += step {
		for w := range t.sizes.ways {
			way := &t.flows[i].Way[w]
			seen++
			if atomic.LoadUint64(&way.Print) > 1 && alive(atomic.LoadUint64(&way.Meta), now) {
				used++
			}
		}
	}
	return used, seen
}

// now is the data path's clock in ticks.
func (d *Datapath) now() uint64 {
	if d.clock.manual {
		return atomic.LoadUint64(&d.tables.control.Now)
	}
	return uint64(bootTicks(d.clock.tick))
}

// bootTicks computes jiffies from the coarse clock: both advance by one tick at
// a time, and jiffies start five minutes before they would wrap 32 bits.
func bootTicks(tick time.Duration) int64 {
	var ts unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	const early = 300 * time.Second
	return int64(1)<<32 - int64(early/tick) + ts.Nano()/int64(tick)
}

// expireFragments counts anew what waits for first fragments: those that did
// not come in time are given up. Counting from scratch also mends what two
// CPUs may have miscounted.
func (t *tables) expireFragments(now uint64) {
	var held uint32
	counted := t.scan(t.fragments, func(i int, b *bpf.Bucket) {
		for w := range b.Way {
			way := &b.Way[w]
			if atomic.LoadUint64(&way.Print) <= 1 || atomic.LoadUint64(&way.Meta)>>expiryShift <= now {
				continue
			}
			if e := &t.datagrams[i*ways+w]; e.Kind == fragmentWaiting {
				held += uint32(e.Held)
			}
		}
	})
	if counted && atomic.LoadUint32(&t.control.Held) != held {
		atomic.StoreUint32(&t.control.Held, held)
	}
}
