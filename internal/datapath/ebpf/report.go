package ebpf

import (
	"net"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// InterfaceReport is one attached interface.
type InterfaceReport = v1.EBPFInterface

// flowTable is the name of the table of flows.
const flowTable = "flows"

// fill is how full the tables are.
type fill struct {
	flows, proven, replies, fragments int
	bySlot                            map[uint16]int // flows
}

// fill counts the live entries of the tables: a pass over their memory, without
// Datapath.mu.
func (t *tables) fill(now uint64) fill {
	count := func(table []bpfBucket, each func(meta uint64)) (n int) {
		t.scan(table, func(_ int, b *bpfBucket) {
			for w := range b.Way {
				if atomic.LoadUint64(&b.Way[w].Print) <= 1 {
					continue
				}
				if meta := atomic.LoadUint64(&b.Way[w].Meta); alive(meta, now) {
					n++
					each(meta)
				}
			}
		})
		return n
	}
	none := func(uint64) {}
	f := fill{bySlot: map[uint16]int{}}
	f.flows = count(t.flows, func(meta uint64) {
		f.bySlot[uint16(meta)]++
		if proven(meta) {
			f.proven++
		}
	})
	f.replies = count(t.replies, none)
	f.fragments = count(t.fragments, none)
	return f
}

// alive mirrors the function of that name in flow.h.
func alive(meta, now uint64) bool {
	expiry := meta >> expiryShift
	return expiry > now || expiry == expiryNever
}

// proven mirrors way_proven in flow.h.
func proven(meta uint64) bool { return meta>>24&4 != 0 && meta>>24&3 != 1 }

// Report looks at everything once.
func (d *Datapath) Report() v1.EBPFReport {
	var fill fill
	if t := d.tablesNow(); t != nil {
		fill = t.fill(d.now())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	r := v1.EBPFReport{TookOver: d.restored, Interfaces: []InterfaceReport{}, Tables: []v1.EBPFTable{}, NextHops: []v1.NextHop{}, Flows: map[string]map[string]int{}}
	if d.pins != nil {
		r.Pins = d.pins.path
	}
	for i := range d.attached {
		a := &d.attached[i]
		r.Interfaces = append(r.Interfaces, InterfaceReport{Name: a.name, Hook: a.hook.String(), Why: a.why, Beside: a.beside, Gone: a.gone})
	}
	if d.tables == nil {
		return r
	}
	st, sizes := &d.state, d.tables.sizes
	vips, backends, services := len(st.halves[st.active].places), 0, 0
	for name, a := range st.byName {
		backends += len(a.slots)
		services++
		r.Flows[name] = map[string]int{}
		for i, b := range a.service.Backends {
			r.Flows[name][b.Name] = fill.bySlot[a.slots[i]]
		}
	}
	r.Tables = append(r.Tables,
		v1.EBPFTable{Name: flowTable, Used: fill.flows, Size: len(d.tables.flows) * ways, Proven: fill.proven},
		v1.EBPFTable{Name: "replies", Used: fill.replies, Size: len(d.tables.replies) * ways},
		v1.EBPFTable{Name: "fragments", Used: fill.fragments, Size: len(d.tables.fragments) * ways},
		v1.EBPFTable{Name: "services", Used: services, Size: maxServices - 1},
		v1.EBPFTable{Name: "backends", Used: backends, Size: maxSlots},
		v1.EBPFTable{Name: "vip_prefixes", Used: vips, Size: lb.MaxVIPs},
		v1.EBPFTable{Name: "maglev_cells", Used: st.maglev.used(), Size: sizes.maglevCells},
		v1.EBPFTable{Name: "owner_cells", Used: st.owners.used(), Size: sizes.ownerCells},
		v1.EBPFTable{Name: "snat_addresses", Used: len(st.snat), Size: int(d.tables.maps[bpfMapSnatAddresses].MaxEntries())},
	)
	r.NextHops = d.hopReports()
	return r
}

func (c *cells) used() int {
	n := len(c.memory)
	for _, f := range c.free {
		n -= f.length
	}
	return n
}

func (d *Datapath) hopReports() []v1.NextHop {
	list := []v1.NextHop{}
	interfaces := map[uint32]string{}
	for name, a := range d.state.byName {
		if a.service.Mode == lb.Mark {
			continue
		}
		for i, b := range a.service.Backends {
			for family := range 2 {
				record := &d.tables.backends[2*int(a.slots[i])+family]
				if record.Family == 0 || family == 1 && record.Addr == d.tables.backends[2*int(a.slots[i])].Addr {
					continue // none, or the same tunnel for both families
				}
				h := record.Hop[record.Cur&1]
				hop := v1.NextHop{
					Service: name, Backend: b.Name, Address: fromWords(record.Addr).String(),
					State: hopStates()[min(int(h.State), 2)], MTU: int(h.Mtu), Interface: d.interfaceName(interfaces, h.Ifindex),
				}
				if h.State == hopReady {
					hop.Link = net.HardwareAddr(h.Dmac[:]).String()
				}
				list = append(list, hop)
			}
		}
	}
	slices.SortFunc(list, func(a, b v1.NextHop) int {
		return strings.Compare(a.Service+"\x00"+a.Backend+"\x00"+a.Address, b.Service+"\x00"+b.Backend+"\x00"+b.Address)
	})
	return list
}

func hopStates() [3]string { return [3]string{"unknown", "ready", "failed"} }

// interfaceName asks once for each index, in the data path's namespace.
func (d *Datapath) interfaceName(known map[uint32]string, index uint32) string {
	if index == 0 {
		return ""
	}
	name, ok := known[index]
	if !ok {
		if l, err := d.links.LinkByIndex(int(index)); err == nil {
			name = l.Attrs().Name
		}
		known[index] = name
	}
	return name
}
