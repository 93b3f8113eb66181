package ebpf

import (
	stdmaps "maps"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/maps"
)

// Flow is one entry of the flow table.
type Flow struct {
	Protocol         uint8
	Client, VIP      netip.AddrPort
	Service, Backend string
	State            string        // plain (UDP, ICMP), opening, established, closing
	Expires          time.Duration // from now; negative: never
	// Source is what the backend sees instead of the client; invalid where it sees the client.
	Source netip.AddrPort
	Given  bool // another balancer has told of it, and no packet of it has come here
}

func flowStates() [4]string { return [4]string{"plain", "opening", "established", "closing"} }

// flowBatch is how many buckets Flows reads before it yields their flows.
const flowBatch = 256

// Flows yields the live flows until yield returns false. It walks the table's
// memory while programs change it: an entry that changes meanwhile may be left
// out. No lock is held while yield runs, so it may take its time, and the walk
// needs memory for a batch only.
func (d *Datapath) Flows(yield func(Flow) bool) {
	d.mu.Lock()
	t := d.tables
	if t == nil {
		d.mu.Unlock()
		return
	}
	labels := stdmaps.Clone(d.state.backends)
	snat := d.state.snat
	d.mu.Unlock()
	batch := make([]Flow, 0, flowBatch*bpf.BucketSlots)
	for from := 0; from < len(t.Flows); from += flowBatch {
		batch = batch[:0]
		d.mu.Lock() // before Step, as in all others
		open := t.Step(func() {
			now := d.now()
			for i := from; i < min(from+flowBatch, len(t.Flows)); i++ {
				batch = d.flowsOf(t, i, now, labels, snat, batch)
			}
		})
		d.mu.Unlock()
		if !open {
			return
		}
		for _, f := range batch {
			if !yield(f) {
				return
			}
		}
	}
}

// flowsOf appends the live flows of one bucket.
func (d *Datapath) flowsOf(t *maps.Tables, i int, now uint64, labels map[uint16]maps.Identity, snat []netip.Addr, to []Flow) []Flow {
	for w := range t.Flows[i].Slots {
		tableSlot := &t.Flows[i].Slots[w]
		fingerprint, meta := atomic.LoadUint64(&tableSlot.Fingerprint), atomic.LoadUint64(&tableSlot.Meta)
		if fingerprint <= bpf.FingerprintBusy || !maps.Alive(meta, now) {
			continue
		}
		slot := uint16(meta)
		id, ok := labels[slot]
		if !ok || uint8(meta>>16) != t.Backends[2*int(slot)].Epoch {
			continue
		}
		entry := t.Entries[i*bpf.BucketSlots+w]
		if atomic.LoadUint64(&tableSlot.Fingerprint) != fingerprint {
			continue // another flow's by now
		}
		f := d.flowOf(&entry, meta, now, id, snat)
		if len(d.given) > 0 && t == d.tables {
			f.Given = d.unused(uint32(i*bpf.BucketSlots+w), meta)
		}
		to = append(to, f)
	}
	return to
}

func (d *Datapath) flowOf(e *bpf.FlowEntry, meta, now uint64, id maps.Identity, snat []netip.Addr) Flow {
	key := maps.FlowKey(e)
	f := Flow{
		Protocol: key.Proto, Client: key.Source(), VIP: key.Destination(), Service: id.Service, Backend: id.Backend,
		State: flowStates()[meta>>bpf.StateShift&3], Expires: -1,
	}
	if expiry := meta >> bpf.ExpiryShift; expiry != bpf.Never {
		f.Expires = time.Duration(expiry-now) * d.clock.Tick
	}
	if at := int(e.Nat) - 1; at >= 0 && at < len(snat) {
		f.Source = netip.AddrPortFrom(snat[at], maps.Swap16(e.NatPort))
	}
	return f
}
