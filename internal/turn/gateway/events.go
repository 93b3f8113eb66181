package gateway

import (
	"encoding/json"

	"github.com/weir-lb/weir/internal/turn/allocation"
)

// events implements the table's allocation.Events for a worker.
type events worker

// Changed schedules the record to be stored at the end of the poll.
func (e *events) Changed(a *allocation.Allocation) {
	w := (*worker)(e)
	w.next = 0
	c, _ := a.Data.(*client)
	if c == nil || w.gateway.options.Store == nil || c.stream != nil || c.changed {
		return
	}
	c.changed = true
	w.changed = append(w.changed, a)
}

// Gone removes the record.
func (e *events) Gone(a *allocation.Allocation, why allocation.Reason) {
	w := (*worker)(e)
	c, _ := a.Data.(*client)
	if c == nil {
		return
	}
	w.tally.flush()
	c.counts.add(why, 1)
	c.gone = true
	if k := w.gateway.options.Store; k != nil && c.stream == nil {
		k.Delete(a.ID)
	}
}

// Bound prepares a channel and schedules it for the offload.
func (e *events) Bound(a *allocation.Allocation, ch *allocation.Channel) {
	w := (*worker)(e)
	c, _ := a.Data.(*client)
	if c == nil || a.TCP {
		return
	}
	p, _ := ch.Data.(*peer)
	if p == nil {
		if p = w.newPeer(c, ch); p == nil {
			return
		}
	}
	w.bound(c, ch, p)
}

// Unbound removes the channel from the offload.
func (e *events) Unbound(a *allocation.Allocation, ch *allocation.Channel) {
	if p, _ := ch.Data.(*peer); p != nil {
		(*worker)(e).unbound(p)
	}
}

// storeChanges stores the records that changed in this poll.
func (w *worker) storeChanges() {
	for i, a := range w.changed {
		w.changed[i] = nil
		c := a.Data.(*client)
		c.changed = false
		if c.gone {
			continue
		}
		r := w.record(a)
		r.Shift(w.gateway.clock.Epoch)
		b, err := json.Marshal(r)
		if err != nil {
			w.gateway.options.Log.Error("an allocation will not outlive this process", "id", a.ID, "error", err)
			continue
		}
		w.gateway.options.Store.Put(a.ID, b)
	}
	w.changed = w.changed[:0]
}

// record returns the record of an allocation. Its times are those of Options.Now.
func (w *worker) record(a *allocation.Allocation) allocation.Record {
	r := w.table.Record(a)
	r.Listener = a.Data.(*client).listener.current().Name
	return r
}
