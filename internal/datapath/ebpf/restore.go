package ebpf

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/maps"
	"github.com/weir-lb/weir/internal/datapath/ebpf/pins"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// restore rebuilds the state from the tables and their journal, and clears away
// what a process that died in the middle of Apply left half made or half removed.
func (d *Datapath) restore(text *pins.Generation) error {
	st, t := &d.state, d.tables
	st.active = atomic.LoadUint32(&t.Control.Active) & 1
	for i := range text.Services {
		if err := d.restoreService(&text.Services[i]); err != nil {
			return err
		}
	}
	st.services.Refill(1)
	st.slots.Refill(0)
	if err := d.restoreShared(); err != nil {
		return err
	}
	d.dropLeftovers()
	return nil
}

func (d *Datapath) restoreService(s *pins.Service) error {
	st := &d.state
	a := &maps.Service{
		Spec: s.Rebuild(), Number: s.Number, Maglev: maps.Range{Start: s.Maglev[0], Length: s.Maglev[1]},
	}
	if s.Number == 0 || s.Number >= bpf.MaxServices || st.names[s.Number] != "" || !st.services.Restore(s.Name, s.Number) {
		return fmt.Errorf("journal: service %q has number %d", s.Name, s.Number)
	}
	free := a.Maglev.Length == 0 || st.maglev.Reserve(a.Maglev)
	for _, o := range s.Owners {
		r := maps.Range{Start: o[0], Length: o[1]}
		free = free && (r.Length == 0 || st.owners.Reserve(r))
		a.Owners = append(a.Owners, r)
	}
	if !free {
		return fmt.Errorf("journal: cells of service %q are another's", s.Name)
	}
	for i, b := range s.Backends {
		id := maps.IdentityOf(a.Spec.Backends[i])
		if _, taken := st.backends[b.Slot]; taken || !st.slots.Restore(id, b.Slot) {
			return fmt.Errorf("journal: backend %q of service %q has slot %d", b.Name, s.Name, b.Slot)
		}
		a.Slots = append(a.Slots, b.Slot)
		st.backends[b.Slot] = id
	}
	st.byName[s.Name] = a
	st.names[a.Number] = s.Name
	return nil
}

// restoreShared reads back what lies in maps that both generations share.
func (d *Datapath) restoreShared() error {
	st, t := &d.state, d.tables
	starts := map[uint32]*maps.Service{}
	for _, a := range st.byName {
		for _, r := range a.Owners {
			if r.Length > 0 {
				starts[uint32(r.Start)] = a
			}
		}
	}
	var far bpf.OwnerKey
	var slot uint32
	var stray []bpf.OwnerKey
	for it := t.Maps[bpf.MapFarOwners].Iterate(); it.Next(&far, &slot); {
		if a := starts[far.Owners]; a != nil {
			a.LargeOwners = append(a.LargeOwners, far)
		} else {
			stray = append(stray, far)
		}
	}
	for _, key := range stray {
		t.Maps[bpf.MapFarOwners].Delete(key)
	}
	if err := d.restorePlaces(); err != nil {
		return err
	}
	// Ports of either generation: the next commit drops what is not its own.
	ports, ranges := map[bpf.VportKey]uint16{}, map[bpf.VipRangesKey]bpf.VipRanges{}
	var port bpf.VportKey
	var service uint16
	for it := t.Maps[bpf.MapVports].Iterate(); it.Next(&port, &service); {
		ports[port] = service
		st.more = max(st.more, port.Vip)
	}
	var key bpf.VipRangesKey
	var r bpf.VipRanges
	for it := t.Maps[bpf.MapVranges].Iterate(); it.Next(&key, &r); {
		ranges[key] = r
		st.more = max(st.more, key.Vip)
	}
	st.halves[st.active].ports, st.halves[st.active].ranges = ports, ranges
	d.restoreOutbounds()
	var a bpf.Addr
	var one uint32
	for it := t.Maps[bpf.MapInside].Iterate(); it.Next(&a, &one); {
		st.inside[maps.Address(a.Word)] = true
	}
	for at := range t.Maps[bpf.MapSnatAddresses].MaxEntries() {
		if err := t.Maps[bpf.MapSnatAddresses].Lookup(at, &a); err != nil {
			return fmt.Errorf("read SNAT addresses back: %w", err)
		}
		if a.Word == ([4]uint32{}) {
			break
		}
		st.snat = append(st.snat, maps.Address(a.Word))
	}
	return nil
}

// restorePlaces reads the lines of both generations' VIPs.
func (d *Datapath) restorePlaces() error {
	st, places := &d.state, uint32(d.tables.Sizes.VIPs)
	st.halves[0].places, st.halves[1].places = map[uint32]bpf.Vip{}, map[uint32]bpf.Vip{}
	keys, values := make([]uint32, 4096), make([]bpf.Vip, 4096)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := d.tables.Maps[bpf.MapVips].BatchLookup(&cursor, keys, values, nil)
		for i := range n {
			if values[i].Bits != 0 && keys[i] < 2*places {
				st.halves[keys[i]/places].places[keys[i]%places] = values[i]
			}
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read VIPs back: %w", err)
		}
	}
}

// dropLeftovers makes slots that nobody has stale, and lets the entries of flows
// expire that no longer count.
func (d *Datapath) dropLeftovers() {
	st, t := &d.state, d.tables
	for slot := range bpf.NoSlot {
		if _, ok := st.backends[uint16(slot)]; ok {
			continue
		}
		for family := range 2 {
			r := &t.Backends[2*slot+family]
			if r.Service != 0 && r.State != uint8(lb.Down) {
				r.Epoch++
				r.State = uint8(lb.Down)
			}
		}
	}
	for i := range t.Flows {
		for w := range t.Flows[i].Way {
			way := &t.Flows[i].Way[w]
			meta := atomic.LoadUint64(&way.Meta)
			if atomic.LoadUint64(&way.Print) <= bpf.PrintBusy || meta>>bpf.WayShift == 0 {
				continue
			}
			slot, epoch := uint16(meta), uint8(meta>>16)
			if _, used := st.backends[slot]; !used || epoch != t.Backends[2*int(slot)].Epoch && epoch != t.Backends[2*int(slot)+1].Epoch {
				t.ForgetFlow(i*bpf.Ways+w, meta)
			}
		}
	}
}

// warnLimits says that pinned tables keep their sizes.
func (d *Datapath) warnLimits(have, want lb.Limits) {
	if have != want {
		d.log.Warn("tables found in the pins keep their limits; to change them, weir lb stop first (flows are forgotten)",
			"have", fmt.Sprintf("%+v", have), "file", fmt.Sprintf("%+v", want))
	}
}
