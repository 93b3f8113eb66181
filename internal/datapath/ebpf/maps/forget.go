package maps

import (
	"sync/atomic"

	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
)

// ForgetSlot lets the entries of a slot expire whose backend is gone, so that
// its epoch can wrap without ever meeting one of them.
func (t *Tables) ForgetSlot(slot uint16) {
	for i := range t.Flows {
		for w := range t.Flows[i].Way {
			way := &t.Flows[i].Way[w]
			meta := atomic.LoadUint64(&way.Meta)
			if uint16(meta) == slot && meta>>bpf.WayShift != 0 && atomic.LoadUint64(&way.Print) > bpf.PrintBusy {
				t.ForgetFlow(i*bpf.Ways+w, meta)
			}
		}
	}
}

// ForgetFlow lets the entry of one flow expire, and its reply's, which would
// stay for ever where timeouts are "never".
func (t *Tables) ForgetFlow(number int, meta uint64) {
	reply := atomic.LoadUint64(&t.Entries[number].Reply)
	way := &t.Flows[number/bpf.Ways].Way[number%bpf.Ways]
	if !atomic.CompareAndSwapUint64(&way.Meta, meta, meta&(1<<bpf.WayShift-1)) || reply == 0 {
		return
	}
	for choice := range bpf.Choices {
		b := &t.Replies[BucketOf(reply, choice, uint32(len(t.Replies)-1))]
		for w := range b.Way {
			meta := atomic.LoadUint64(&b.Way[w].Meta)
			if atomic.LoadUint64(&b.Way[w].Print) == reply && int(meta&(1<<24-1)) == number {
				atomic.CompareAndSwapUint64(&b.Way[w].Meta, meta, meta&(1<<bpf.WayShift-1))
				return
			}
		}
	}
}
