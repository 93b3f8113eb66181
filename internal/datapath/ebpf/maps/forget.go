package maps

import (
	"sync/atomic"

	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
)

// ForgetSlots lets the flows of backend slots expire whose backends are gone, so that their epochs can wrap without ever meeting
// one of them. It goes over the whole table once, however many slots there are.
func (t *Tables) ForgetSlots(backends []uint16) {
	if len(backends) == 0 {
		return
	}
	var gone [1 << 16 / 64]uint64
	for _, backend := range backends {
		gone[backend/64] |= 1 << (backend % 64)
	}
	for i := range t.Flows {
		for w := range t.Flows[i].Slots {
			slot := &t.Flows[i].Slots[w]
			meta := atomic.LoadUint64(&slot.Meta)
			if backend := uint16(meta); gone[backend/64]>>(backend%64)&1 != 0 && meta>>bpf.ExpiryShift != 0 && atomic.LoadUint64(&slot.Fingerprint) > bpf.FingerprintBusy {
				t.ForgetFlow(i*bpf.BucketSlots+w, meta)
			}
		}
	}
}

// ForgetFlow lets the entry of one flow expire, and its reply's, which would
// stay for ever where timeouts are "never".
func (t *Tables) ForgetFlow(number int, meta uint64) {
	reply := atomic.LoadUint64(&t.Entries[number].Reply)
	slot := &t.Flows[number/bpf.BucketSlots].Slots[number%bpf.BucketSlots]
	if !atomic.CompareAndSwapUint64(&slot.Meta, meta, meta&(1<<bpf.ExpiryShift-1)) || reply == 0 {
		return
	}
	for choice := range bpf.Choices {
		b := &t.Replies[BucketOf(reply, choice, uint32(len(t.Replies)-1))]
		for w := range b.Slots {
			meta := atomic.LoadUint64(&b.Slots[w].Meta)
			if atomic.LoadUint64(&b.Slots[w].Fingerprint) == reply && int(meta&(1<<24-1)) == number {
				atomic.CompareAndSwapUint64(&b.Slots[w].Meta, meta, meta&(1<<bpf.ExpiryShift-1))
				return
			}
		}
	}
}
