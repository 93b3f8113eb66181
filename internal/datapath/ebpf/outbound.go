package ebpf

import (
	"fmt"
)

// generationOutbound mirrors enum generation_flag in types.h.
const generationOutbound = 2

// outbounds enters the endpoints whose own flows are translated, for the new
// generation, which no program reads yet.
func (c *change) outbounds() (map[bpfOutboundKey]bpfOutbound, error) {
	deleteAll(c.t.maps[bpfMapOutbounds], c.st.halves[c.half].starts) // of a change that was cut off
	starts := map[bpfOutboundKey]bpfOutbound{}
	for from, o := range c.next.Outbounds {
		a := c.byName[o.Backend.Service.Name]
		key := bpfOutboundKey{Addr: addressWords(from.Addr()), Port: swap16(from.Port()), Half: uint16(c.half)}
		starts[key] = bpfOutbound{
			Vip: addressWords(o.VIP.Addr()), Port: swap16(o.VIP.Port()), Service: a.number, Slot: uint32(a.slots[o.Backend.Index]),
		}
	}
	c.st.halves[c.half].starts = starts
	c.undos = append(c.undos, func() { deleteAll(c.t.maps[bpfMapOutbounds], starts) })
	if err := putAll(c.t.maps[bpfMapOutbounds], starts); err != nil {
		return nil, fmt.Errorf("endpoints of outbound flows: %w", err)
	}
	return starts, nil
}

// restoreOutbounds reads what both generations have; the next change replaces it.
func (d *Datapath) restoreOutbounds() {
	var key bpfOutboundKey
	var value bpfOutbound
	for it := d.tables.maps[bpfMapOutbounds].Iterate(); it.Next(&key, &value); {
		h := &d.state.halves[key.Half&1]
		if h.starts == nil {
			h.starts = map[bpfOutboundKey]bpfOutbound{}
		}
		h.starts[key] = value
	}
}
