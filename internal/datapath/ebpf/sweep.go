package ebpf

import (
	"context"
	"time"

	"github.com/weir-lb/weir/internal/datapath/ebpf/maps"
)

// sweepEvery is how often expired entries are looked for. Programs take expired
// entries' places by themselves; sweeping makes counts right and frees what
// waits for first fragments that never came.
const sweepEvery = time.Second

// sweep frees expired entries until ctx ends.
func (d *Datapath) sweep(ctx context.Context) error {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case d.answers <- struct{}{}:
			continue
		case <-ticker.C:
		}
		if t := d.tablesNow(); t != nil {
			t.ExpireFragments(d.now())
		}
		d.mu.Lock()
		if d.tables != nil {
			d.tables.WatchFlows(d.now(), d.clock)
			d.endTrace()
			d.follow()
		}
		d.mu.Unlock()
	}
}

// tablesNow are the tables; nil before the first Apply.
func (d *Datapath) tablesNow() *maps.Tables {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.tables
}

// now is the data path's clock in ticks.
func (d *Datapath) now() uint64 { return d.tables.Now(d.clock) }

// reclaimTables goes over all tables now and then until ctx ends.
func (d *Datapath) reclaimTables(ctx context.Context) error {
	ticker := time.NewTicker(maps.ReclaimEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		t := d.tablesNow()
		if t == nil {
			continue
		}
		t.Step(func() {
			t.Reclaim(d.now())
		})
	}
}
