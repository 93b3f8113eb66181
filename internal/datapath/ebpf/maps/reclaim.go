package maps

import (
	"sync/atomic"
	"time"

	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
)

// ReclaimEvery is how often expired slots are made unused ones. A pass reads 16
// bytes per entry that fits into the tables.
const ReclaimEvery = 10 * time.Second

// reclaimAfter is how many ticks ago what is reclaimed must have expired: so long that no entry that made room for another
// during a pass counts as one that had expired before it.
const reclaimAfter = 2 * bpf.EndedAgo

// BucketOf is bucket_of in flow.h: where a fingerprint is kept by one of the choices.
func BucketOf(fingerprint uint64, choice int, mask uint32) uint32 {
	index := uint32(fingerprint>>40 ^ fingerprint)
	dense := mask >> 2 & bpf.DenseMask
	if choice == 0 || mask == 0 {
		return index & dense
	}
	if choice == 2 {
		index ^= uint32(fingerprint >> 24)
	}
	return dense + 1 + uint32(uint64(index)*uint64(mask-dense)>>32)
}

// reclaim makes slots that expired into slots that were never used, where that
// is safe. A program looks into a flow's next bucket only if no slot of those
// before is unused, so these must not have overflowed: none of the live
// entries kept in a later choice may have chosen them before.
//
// Programs run meanwhile. An expired slot is taken before anything overflows,
// so a bucket that has one from before the first pass until it is changed
// cannot have overflowed in between. One race is left: an expired entry kept
// elsewhere comes back to life during the passes. Then its flow is opened once
// more, by Maglev.
func reclaim(table []bpf.Bucket, now uint64) (freed int) {
	mask := uint32(len(table) - 1)
	overflowed := make([]uint64, (len(table)+63)/64)
	for i := range table {
		for w := range table[i].Slots {
			fingerprint, expiry := atomic.LoadUint64(&table[i].Slots[w].Fingerprint), atomic.LoadUint64(&table[i].Slots[w].Meta)>>bpf.ExpiryShift
			if fingerprint <= bpf.FingerprintBusy || expiry <= now {
				continue
			}
			for choice := range bpf.Choices {
				before := BucketOf(fingerprint, choice, mask)
				if before == uint32(i) {
					break
				}
				overflowed[before/64] |= 1 << (before % 64)
			}
		}
	}
	for i := range table {
		if overflowed[i/64]>>(i%64)&1 != 0 {
			continue
		}
		for w := range table[i].Slots {
			slot := &table[i].Slots[w]
			fingerprint, expiry := atomic.LoadUint64(&slot.Fingerprint), atomic.LoadUint64(&slot.Meta)>>bpf.ExpiryShift
			if fingerprint > bpf.FingerprintBusy && expiry <= now && atomic.CompareAndSwapUint64(&slot.Fingerprint, fingerprint, 0) {
				freed++
			}
		}
	}
	return freed
}

// Reclaim makes slots of all tables that expired into slots that were never used.
func (t *Tables) Reclaim(now uint64) {
	for _, table := range [][]bpf.Bucket{t.Flows, t.Replies, t.Fragments} {
		reclaim(table, now-reclaimAfter)
	}
}
