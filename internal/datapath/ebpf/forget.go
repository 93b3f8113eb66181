package ebpf

import "sync/atomic"

// forgetSlot lets the entries of a slot expire whose backend is gone, so that
// its epoch can wrap without ever meeting one of them.
func (d *Datapath) forgetSlot(slot uint16) {
	for i := range d.tables.flows {
		for w := range d.tables.flows[i].Way {
			way := &d.tables.flows[i].Way[w]
			meta := atomic.LoadUint64(&way.Meta)
			if uint16(meta) == slot && meta>>expiryShift != 0 && atomic.LoadUint64(&way.Print) > 1 {
				d.forgetFlow(i*ways+w, meta)
			}
		}
	}
}

// forgetFlow lets the entry of one flow expire, and its reply's, which would
// stay for ever where timeouts are "never".
func (d *Datapath) forgetFlow(number int, meta uint64) {
	reply := atomic.LoadUint64(&d.tables.entries[number].Reply)
	way := &d.tables.flows[number/ways].Way[number%ways]
	if !atomic.CompareAndSwapUint64(&way.Meta, meta, meta&(1<<expiryShift-1)) || reply == 0 {
		return
	}
	for choice := range choices {
		b := &d.tables.replies[bucketOf(reply, choice, uint32(len(d.tables.replies)-1))]
		for w := range b.Way {
			meta := atomic.LoadUint64(&b.Way[w].Meta)
			if atomic.LoadUint64(&b.Way[w].Print) == reply && int(meta&(1<<24-1)) == number {
				atomic.CompareAndSwapUint64(&b.Way[w].Meta, meta, meta&(1<<expiryShift-1))
				return
			}
		}
	}
}
