package ebpf

import (
	"net/netip"
	"sync/atomic"

	"github.com/weir-lb/weir/internal/datapath/ebpf/maps"
	"github.com/weir-lb/weir/internal/datapath/ebpf/nexthop"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// watchHops has the next hop of every backend followed. The caller holds mu.
func (d *Datapath) watchHops() {
	records := map[netip.Addr][]int{} // records of backends that an address serves
	for _, a := range d.state.inForce {
		if a.Spec.Mode == lb.Mark {
			continue
		}
		for i := range a.Spec.Backends {
			for family := range 2 {
				record := 2*int(a.Slots[i]) + family
				if r := &d.tables.Backends[record]; r.Family != 0 {
					address := maps.Address(r.Addr)
					records[address] = append(records[address], record)
				}
			}
		}
	}
	if d.config.detached {
		return
	}
	watches := make(map[netip.Addr]func(nexthop.Hop), len(records))
	for address, all := range records {
		watches[address] = func(h nexthop.Hop) {
			for _, record := range all {
				d.tables.SetHop(record, h)
			}
		}
	}
	d.hops.OnManage(d.store.NoteManaged)
	d.hops.OnChange(func() { atomic.AddUint32(&d.tables.Control.Routes, 1) })
	d.hops.Watch(watches)
}

// source is the outer source of a service's tunnels of a family.
func (d *Datapath) source(s *lb.Service, is6 bool) netip.Addr {
	configured := d.config.Source4
	if is6 {
		configured = d.config.Source6
	}
	if configured.IsValid() || s.Mode != lb.L3DSR {
		return configured
	}
	for _, b := range s.Backends {
		if address, ok := b.Address(is6); ok {
			if from, ok := d.hops.Source(address); ok {
				return from
			}
		}
	}
	return netip.Addr{}
}
