package maps

import (
	"sync/atomic"
	"time"

	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
)

// Fill is how full the tables are.
type Fill struct {
	Flows, Proven, Replies, Fragments int
	BySlot                            map[uint16]int // flows
}

// Fill counts the live entries of the tables: a pass over their memory, without
// Datapath.mu.
func (t *Tables) Fill(now uint64) Fill {
	count := func(table []bpf.Bucket, each func(meta uint64)) (n int) {
		t.Scan(table, func(_ int, b *bpf.Bucket) {
			for w := range b.Slots {
				if atomic.LoadUint64(&b.Slots[w].Fingerprint) <= bpf.FingerprintBusy {
					continue
				}
				if meta := atomic.LoadUint64(&b.Slots[w].Meta); Alive(meta, now) {
					n++
					each(meta)
				}
			}
		})
		return n
	}
	none := func(uint64) {}
	f := Fill{BySlot: map[uint16]int{}}
	f.Flows = count(t.Flows, func(meta uint64) {
		f.BySlot[uint16(meta)]++
		if Proven(meta) {
			f.Proven++
		}
	})
	f.Replies = count(t.Replies, none)
	f.Fragments = count(t.Fragments, none)
	return f
}

// crowdedSample is how many buckets of the flow table one look at its fill reads: 256 KB, whatever the table's size.
const crowdedSample = 4096

// crowdedFor is how long the programs go by one look at the fill.
const crowdedFor = 3 * time.Second

// WatchFlows notes for the programs for the next seconds whether more than three quarters of the flow table are in use. The
// hash spreads flows evenly over the dense part and over the rest, so evenly spaced buckets stand for all.
func (t *Tables) WatchFlows(now uint64, c Clock) {
	used, seen := t.FlowsAlive(now, max(len(t.Flows)/crowdedSample, 1))
	until := uint64(0)
	if 4*used > 3*seen {
		until = now + uint64(c.Ticks(crowdedFor)) // and no longer, should no one look again
	}
	if atomic.LoadUint64(&t.Control.Crowded) != until {
		atomic.StoreUint64(&t.Control.Crowded, until)
	}
}

// FlowsAlive counts the live entries of every step-th bucket of the flow table, and the entries that those buckets have room for.
func (t *Tables) FlowsAlive(now uint64, step int) (used, seen int) {
	for i := 0; i < len(t.Flows); i += step {
		for w := range t.Sizes.BucketSlots {
			slot := &t.Flows[i].Slots[w]
			seen++
			if atomic.LoadUint64(&slot.Fingerprint) > bpf.FingerprintBusy && Alive(atomic.LoadUint64(&slot.Meta), now) {
				used++
			}
		}
	}
	return used, seen
}

// ExpireFragments counts again what waits for first fragments: those that did
// not come in time are given up. Counting from scratch also mends what two
// CPUs may have miscounted.
func (t *Tables) ExpireFragments(now uint64) {
	var held uint32
	counted := t.Scan(t.Fragments, func(i int, b *bpf.Bucket) {
		for w := range b.Slots {
			slot := &b.Slots[w]
			if atomic.LoadUint64(&slot.Fingerprint) <= bpf.FingerprintBusy || atomic.LoadUint64(&slot.Meta)>>bpf.ExpiryShift <= now {
				continue
			}
			if e := &t.Datagrams[i*bpf.BucketSlots+w]; e.Kind == bpf.FragmentWaiting {
				held += uint32(e.Held)
			}
		}
	})
	if counted && atomic.LoadUint32(&t.Control.Held) != held {
		atomic.StoreUint32(&t.Control.Held, held)
	}
}
