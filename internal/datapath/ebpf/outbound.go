package ebpf

import (
	"fmt"

	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/maps"
)

// outbounds enters the endpoints whose own flows are translated, under a number
// of the new generation's own. 0: there is none.
func (c *change) outbounds() (set uint32, err error) {
	starts := map[bpf.OutboundKey]bpf.Outbound{}
	set = c.st.more + 1
	for from, o := range c.next.Outbounds {
		a := c.byName[o.Backend.Service.Name]
		key := bpf.OutboundKey{Addr: maps.AddressWords(from.Addr()), Set: set, Port: maps.Swap16(from.Port())}
		starts[key] = bpf.Outbound{
			Vip: maps.AddressWords(o.VIP.Addr()), Port: maps.Swap16(o.VIP.Port()), Service: a.Number, Slot: uint32(a.Slots[o.Backend.Index]),
		}
	}
	if len(starts) == 0 {
		return 0, nil
	}
	c.st.more = set
	half := &c.st.halves[c.half]
	half.starts = starts
	c.undos = append(c.undos, func() { deleteAll(c.t.Maps[bpf.MapOutbounds], starts) })
	if err := putAll(c.t, bpf.MapOutbounds, starts); err != nil {
		return 0, fmt.Errorf("endpoints of outbound flows: %w", err)
	}
	return set, nil
}

// restoreOutbounds reads the sets back; those that the active generation does
// not use go with it at the next change.
func (d *Datapath) restoreOutbounds() {
	st := &d.state
	starts := map[bpf.OutboundKey]bpf.Outbound{}
	var key bpf.OutboundKey
	var value bpf.Outbound
	for it := d.tables.Maps[bpf.MapOutbounds].Iterate(); it.Next(&key, &value); {
		starts[key] = value
		st.more = max(st.more, key.Set)
	}
	st.halves[st.active].starts = starts
}
