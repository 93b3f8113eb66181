package ebpf

import (
	"net"
	"slices"
	"strings"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/maps"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// flowTable is the name of the table of flows.
const flowTable = "flows"

// Report looks at everything once.
func (d *Datapath) Report() v1.EBPFReport {
	var fill maps.Fill
	if t := d.tablesNow(); t != nil {
		fill = t.Fill(d.now())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	r := v1.EBPFReport{TookOver: d.restored, Interfaces: []attach.InterfaceReport{}, Tables: []v1.EBPFTable{}, NextHops: []v1.NextHop{}, Flows: map[string]map[string]int{}}
	if d.pins != nil {
		r.Pins = d.pins.Path
	}
	for i := range d.attached {
		r.Interfaces = append(r.Interfaces, d.attached[i].Report())
	}
	if d.tables == nil {
		return r
	}
	st, sizes := &d.state, d.tables.Sizes
	vips, backends, services := len(st.generations[st.active].vips), 0, 0
	for name, a := range st.inForce {
		backends += len(a.Slots)
		services++
		r.Flows[name] = map[string]int{}
		for i, b := range a.Spec.Backends {
			r.Flows[name][b.Name] = fill.BySlot[a.Slots[i]]
		}
		if a.Spec.Earlier != nil && a.Earlier.Length == 0 {
			r.EarlierDropped = append(r.EarlierDropped, name)
		}
	}
	slices.Sort(r.EarlierDropped)
	r.Tables = append(r.Tables,
		v1.EBPFTable{Name: flowTable, Used: fill.Flows, Size: len(d.tables.Flows) * bpf.BucketSlots, Configured: sizes.Flows(), Proven: fill.Proven},
		v1.EBPFTable{Name: "replies", Used: fill.Replies, Size: len(d.tables.Replies) * bpf.BucketSlots, Configured: sizes.Flows()},
		v1.EBPFTable{Name: "fragments", Used: fill.Fragments, Size: len(d.tables.Fragments) * bpf.BucketSlots, Configured: sizes.Fragments()},
		v1.EBPFTable{Name: "services", Used: services, Size: bpf.MaxServices - 1},
		v1.EBPFTable{Name: "backends", Used: backends, Size: bpf.NoSlot},
		v1.EBPFTable{Name: "vip_prefixes", Used: vips, Size: lb.MaxVIPs},
		v1.EBPFTable{Name: "maglev_cells", Used: st.maglev.Used(), Size: sizes.MaglevRanges},
		v1.EBPFTable{Name: "owner_cells", Used: st.owners.Used(), Size: sizes.OwnerRanges},
		v1.EBPFTable{Name: "snat_addresses", Used: len(st.snat), Size: int(d.tables.Maps[bpf.MapSnatAddresses].MaxEntries())},
	)
	r.NextHops = d.hopReports()
	return r
}

func (d *Datapath) hopReports() []v1.NextHop {
	list := []v1.NextHop{}
	interfaces := map[uint32]string{}
	for name, a := range d.state.inForce {
		if a.Spec.Mode == lb.Mark {
			continue
		}
		for i, b := range a.Spec.Backends {
			for family := range 2 {
				record := &d.tables.Backends[2*int(a.Slots[i])+family]
				if record.Family == 0 || family == 1 && record.Addr == d.tables.Backends[2*int(a.Slots[i])].Addr {
					continue // none, or the same tunnel for both families
				}
				h := record.Hop[record.Cur&1]
				hop := v1.NextHop{
					Service: name, Backend: b.Name, Address: maps.Address(record.Addr).String(),
					State: hopStates()[min(int(h.State), 2)], MTU: int(h.Mtu), Interface: d.interfaceName(interfaces, h.Ifindex),
				}
				if h.State == bpf.HopReady {
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
