package ebpf

import (
	"net"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/weir-lb/weir/internal/steering/lb"
)

// Report is what an operator wants to know beside counters.
type Report struct {
	Pins       string            `json:"pins,omitempty"` // where tables and programs are kept
	TookOver   bool              `json:"took_over"`      // found the tables of an earlier run there
	Interfaces []InterfaceReport `json:"interfaces" metric:""`
	Tables     []TableReport     `json:"tables"`
	NextHops   []HopReport       `json:"next_hops" metric:""`
	// Flows are the live ones, by service and backend.
	Flows map[string]map[string]int `json:"flows"`
}

// InterfaceReport is one attached interface.
type InterfaceReport struct {
	Name   string   `json:"name" label:"interface"`
	Hook   string   `json:"hook" label:"hook"`
	Why    string   `json:"why"`
	Gone   bool     `json:"gone,omitempty" metric:"weir_attached" when:"false" help:"1 for each interface with a program, by hook; 0 while the interface is gone."`
	Beside []string `json:"beside,omitempty"` // other programs on the hook, when weir attached
}

// flowTable is the name of the table of flows.
const flowTable = "flows"

// TableReport is how full a table is.
type TableReport struct {
	Name string `json:"name"`
	Used int    `json:"used"`
	Size int    `json:"size"`
	// Proven are those of Used that make no room for new flows: TCP that is established, others that were answered (mode
	// nat) or had a second packet. Of flows only.
	Proven int `json:"proven,omitempty"`
}

// HopReport is how packets reach one backend.
type HopReport struct {
	Service   string `json:"service" label:"service"`
	Backend   string `json:"backend" label:"backend"`
	Address   string `json:"address" label:"address"`
	State     string `json:"state" metric:"weir_next_hop_ready" when:"ready" help:"1 while the next hop to a backend is known."`
	Interface string `json:"interface,omitempty"`
	Link      string `json:"link,omitempty"` // MAC address
	MTU       int    `json:"mtu,omitempty"`
}

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
func (d *Datapath) Report() Report {
	var fill fill
	if t := d.tablesNow(); t != nil {
		fill = t.fill(d.now())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	r := Report{TookOver: d.restored, Interfaces: []InterfaceReport{}, Tables: []TableReport{}, NextHops: []HopReport{}, Flows: map[string]map[string]int{}}
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
		TableReport{Name: flowTable, Used: fill.flows, Size: len(d.tables.flows) * ways, Proven: fill.proven},
		TableReport{Name: "replies", Used: fill.replies, Size: len(d.tables.replies) * ways},
		TableReport{Name: "fragments", Used: fill.fragments, Size: len(d.tables.fragments) * ways},
		TableReport{Name: "services", Used: services, Size: maxServices - 1},
		TableReport{Name: "backends", Used: backends, Size: maxSlots},
		TableReport{Name: "vip_prefixes", Used: vips, Size: lb.MaxVIPs},
		TableReport{Name: "maglev_cells", Used: st.maglev.used(), Size: sizes.maglevCells},
		TableReport{Name: "owner_cells", Used: st.owners.used(), Size: sizes.ownerCells},
		TableReport{Name: "snat_addresses", Used: len(st.snat), Size: int(d.tables.maps[bpfMapSnatAddresses].MaxEntries())},
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

func (d *Datapath) hopReports() []HopReport {
	list := []HopReport{}
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
				hop := HopReport{
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
	slices.SortFunc(list, func(a, b HopReport) int {
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
