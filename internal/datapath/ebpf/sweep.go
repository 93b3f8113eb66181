package ebpf

import (
	"context"
	"time"

	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/maps"
	"github.com/weir-lb/weir/internal/steering/evict"
	"github.com/weir-lb/weir/internal/steering/lb"
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
	var full evict.Full
	for {
		if t := d.tablesNow(); t != nil {
			d.watchFull(t, &full)
		}
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

// watchFull logs when the flow table has become full.
func (d *Datapath) watchFull(t *maps.Tables, full *evict.Full) {
	evicted, displaced := t.Evictions()
	refused := d.flowsRefused()
	if !full.Becomes(evicted+displaced+refused, time.Duration(d.now())*d.clock.Tick) {
		return
	}
	fill := t.Fill(d.now())
	d.log.Warn("flow table full; it counts as full until no flow had to make room for a minute", "flows", fill.Flows, "of", len(t.Flows)*bpf.BucketSlots,
		"configured", t.Sizes.Flows(), "evicted", evicted+displaced, "refused", refused,
		"remedy", "see whether a source floods (weir lb flows); a greater limits.flows takes effect after weir lb stop and a new start, which ends the flows")
}

// flowsRefused counts the packets that found no room for their flow, or went without an entry.
func (d *Datapath) flowsRefused() (n uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	read := d.counts()
	for _, a := range d.state.inForce {
		reasons := read.service(a.Number)
		n += reasons[lb.ReasonFlowTableFull].Packets
	}
	return n
}
