package ebpf

import (
	"net/netip"
	"sync/atomic"
	"time"
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
}

func flowStates() [4]string { return [4]string{"plain", "opening", "established", "closing"} }

// Flows yields the live flows until yield returns false. It walks the table in
// place while programs change it: an entry that changes meanwhile may be left out.
func (d *Datapath) Flows(yield func(Flow) bool) {
	d.mu.Lock()
	t := d.tables
	if t == nil {
		d.mu.Unlock()
		return
	}
	now := d.now()
	labels := make(map[uint16]identity, len(d.state.backends))
	for slot, id := range d.state.backends {
		labels[slot] = id
	}
	snat := d.state.snat
	d.mu.Unlock()
	for i := range t.flows {
		for w := range t.flows[i].Way {
			way := &t.flows[i].Way[w]
			print, meta := atomic.LoadUint64(&way.Print), atomic.LoadUint64(&way.Meta)
			if print <= 1 || !alive(meta, now) {
				continue
			}
			slot := uint16(meta)
			id, ok := labels[slot]
			if !ok || uint8(meta>>16) != t.backends[2*int(slot)].Epoch {
				continue
			}
			entry := t.entries[i*ways+w]
			if atomic.LoadUint64(&way.Print) != print {
				continue // another flow's by now
			}
			if !yield(d.flowOf(&entry, meta, now, id, snat)) {
				return
			}
		}
	}
}

func (d *Datapath) flowOf(e *bpfFlowEntry, meta, now uint64, id identity, snat []netip.Addr) Flow {
	key := flowKey(e)
	f := Flow{
		Protocol: key.Proto, Client: key.Source(), VIP: key.Destination(), Service: id.service, Backend: id.backend,
		State: flowStates()[meta>>24&3], Expires: -1,
	}
	if expiry := meta >> expiryShift; expiry != expiryNever {
		f.Expires = time.Duration(expiry-now) * d.clock.tick
	}
	if at := int(e.Nat) - 1; at >= 0 && at < len(snat) {
		f.Source = netip.AddrPortFrom(snat[at], swap16(e.NatPort))
	}
	return f
}
