package ebpf

import (
	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// Removed is the name under which the former backends of a service are counted.
const Removed = "(removed)"

// Common returns the counters that all data paths share. tables are those of Report. New flows that the table refused have the
// reason flow_table_full.
func (c *Counters) Common(tables []v1.EBPFTable) lb.Counters {
	common := lb.Counters{
		Datapath: "ebpf", Packets: map[string]lb.ReasonCounts{}, Bytes: map[string]lb.ReasonCounts{}, Backends: map[lb.Target]lb.BackendCounts{},
	}
	common.Packets[""], common.Bytes[""] = split(&c.Other)
	for name, reasons := range c.Services {
		common.Packets[name], common.Bytes[name] = split(&reasons)
	}
	for target, n := range c.Backends {
		common.Backends[target] = n.common()
	}
	for service, n := range c.Gone {
		if n != (BackendCounts{}) {
			common.Backends[lb.Target{Service: service, Backend: Removed}] = n.common()
		}
	}
	for i := range tables {
		t := &tables[i]
		counts := lb.TableCounts{Name: t.Name, Entries: t.Used, Size: &t.Size}
		if t.Name == flowTable {
			counts.Proven, counts.Evicted, counts.Displaced = &t.Proven, &c.FlowsEvicted, &c.FlowsDisplaced
		}
		common.Tables = append(common.Tables, counts)
	}
	return common
}

func split(counts *[lb.NumReasons]Count) (packets, bytes lb.ReasonCounts) {
	for i, n := range counts {
		packets[i], bytes[i] = n.Packets, n.Bytes
	}
	return packets, bytes
}

func (c *BackendCounts) common() lb.BackendCounts {
	from := lb.Traffic(c.Out)
	return lb.BackendCounts{To: lb.Traffic(c.In), From: &from, Opened: c.Opened}
}
