package ebpf

import (
	"net/netip"
	"sync/atomic"

	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/nexthop"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// watchHops has the next hop of every backend followed. The caller holds mu.
func (d *Datapath) watchHops() {
	slots := map[netip.Addr][]int{} // places in backends that an address serves
	for _, a := range d.state.byName {
		if a.service.Mode == lb.Mark {
			continue
		}
		for i := range a.service.Backends {
			for family := range 2 {
				place := 2*int(a.slots[i]) + family
				if r := &d.tables.backends[place]; r.Family != 0 {
					address := fromWords(r.Addr)
					slots[address] = append(slots[address], place)
				}
			}
		}
	}
	if d.config.detached {
		return
	}
	watches := make(map[netip.Addr]func(nexthop.Hop), len(slots))
	for address, places := range slots {
		watches[address] = func(h nexthop.Hop) {
			for _, place := range places {
				d.setHop(place, h)
			}
		}
	}
	d.hops.OnManage(d.keeper.managed)
	d.hops.OnChange(func() { atomic.AddUint32(&d.tables.control.Routes, 1) })
	d.hops.Watch(watches)
}

// setHop writes the copy that no program reads, and then names it. The
// interval between two changes of one backend is many times a program's run.
func (d *Datapath) setHop(place int, h nexthop.Hop) {
	r := &d.tables.backends[place]
	if h.State == nexthop.Unknown && r.Hop[r.Cur&1].State == hopReady {
		return // being asked for again, as after a restart: the last answer serves until there is another
	}
	next := 1 - r.Cur&1
	r.Hop[next] = bpf.NextHop{
		Dmac: h.Link, Smac: h.From, Ifindex: uint32(h.IfIndex), Mtu: mtuOf(h.MTU), State: uint8(h.State),
	}
	storeByte(&r.Cur, next)
}

// storeByte is one plain store, behind all before it.
func storeByte(at *uint8, v uint8) {
	var fence atomic.Uint32
	fence.Add(1)
	*at = v
}
