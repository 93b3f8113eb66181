package ebpf

import (
	"net/netip"
	"sync/atomic"

	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/maps"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// commit switches to the new generation and then removes what only the old one used.
func (c *change) commit() {
	old, oldHalf := c.st.byName, c.st.halves[c.st.active]
	atomic.StoreUint32(&c.t.Control.Active, c.t.Control.Active+1) // its lowest bit is c.half
	c.st.active, c.st.byName, c.st.snat = c.half, c.byName, c.snat
	inUse := map[maps.Identity]bool{}
	for _, a := range c.byName {
		c.st.names[a.Number] = a.Spec.Name
		for i, b := range a.Spec.Backends {
			id := maps.IdentityOf(b)
			inUse[id] = true
			c.st.backends[a.Slots[i]] = id
			for family := range 2 {
				c.updateBackend(a.Slots[i], b, a.Number, family == 1)
			}
		}
	}
	maps.Grace()
	deleteAll(c.t.Maps[bpf.MapVports], oldHalf.ports)
	deleteAll(c.t.Maps[bpf.MapVranges], oldHalf.ranges)
	deleteAll(c.t.Maps[bpf.MapOutbounds], oldHalf.starts)
	c.st.halves[1-c.half].ports, c.st.halves[1-c.half].ranges, c.st.halves[1-c.half].starts = nil, nil, nil
	for name, a := range old {
		now := c.byName[name]
		if now == nil || now.Maglev != a.Maglev {
			c.st.maglev.Give(a.Maglev)
		}
		for _, r := range a.Owners {
			c.st.owners.Give(r)
		}
		for _, key := range a.LargeOwners {
			c.t.Maps[bpf.MapFarOwners].Delete(key)
		}
		for i, b := range a.Spec.Backends {
			if id := maps.IdentityOf(b); !inUse[id] {
				c.d.foldBackend(a.Slots[i], a.Number)
				c.removeBackend(a.Slots[i], id)
			}
		}
		if now == nil {
			c.d.foldService(a.Number)
			c.st.services.Give(name)
		}
	}
	c.dropInside()
}

// updateBackend brings the record of a backend that stays up to date.
func (c *change) updateBackend(slot uint16, b *lb.Backend, service uint16, is6 bool) {
	r := &c.t.Backends[2*int(slot)]
	if is6 {
		r = &c.t.Backends[2*int(slot)+1]
	}
	want := maps.BackendRecord(b, is6)
	r.State, r.Service = want.State, service
	if r.Addr != want.Addr || r.Family != want.Family {
		r.Addr, r.Family = want.Addr, want.Family // the mode changed
	}
}

// removeBackend makes every entry of a slot stale.
func (c *change) removeBackend(slot uint16, id maps.Identity) {
	for family := range 2 {
		r := &c.t.Backends[2*int(slot)+family]
		r.Epoch++ // first: a process that dies in between is not seen to have finished
		r.State = uint8(lb.Down)
	}
	delete(c.st.backends, slot)
	c.t.ForgetSlot(slot)
	c.st.slots.Give(id)
}

// dropInside forgets addresses that no backend in mode NAT has any more.
func (c *change) dropInside() {
	now := map[netip.Addr]bool{}
	for _, service := range c.next.Services {
		if service.Mode == lb.NAT {
			for _, b := range service.Backends {
				now[b.Address4], now[b.Address6] = true, true
			}
		}
	}
	for a := range c.st.inside {
		if a.IsValid() && !now[a] {
			c.t.Maps[bpf.MapInside].Delete(bpf.Addr{Word: maps.AddressWords(a)})
		}
	}
	c.st.inside = now
}
