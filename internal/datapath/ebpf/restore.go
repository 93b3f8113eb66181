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
// what a process that ended in the middle of Apply left half made or half removed.
func (st *state) restore(t *maps.Tables, text *pins.Generation) error {
	st.active = atomic.LoadUint32(&t.Control.Active) & 1
	for i := range text.Services {
		if err := st.restoreService(&text.Services[i]); err != nil {
			return err
		}
	}
	st.services.Refill(1)
	st.slots.Refill(0)
	if err := st.restoreShared(t); err != nil {
		return err
	}
	st.dropLeftovers(t)
	return nil
}

func (st *state) restoreService(s *pins.Service) error {
	a := &maps.Service{
		Spec: s.Rebuild(), Number: s.Number, Maglev: maps.Range{Start: s.Maglev[0], Length: s.Maglev[1]},
		Earlier: maps.Range{Start: s.Earlier[0], Length: s.Earlier[1]},
	}
	if s.Number == 0 || s.Number >= bpf.MaxServices || st.names[s.Number] != "" || !st.services.Restore(s.Name, s.Number) {
		return fmt.Errorf("journal: service %q has number %d", s.Name, s.Number)
	}
	free := a.Maglev.Length == 0 || st.maglev.Reserve(a.Maglev)
	free = free && (a.Earlier.Length == 0 || st.maglev.Reserve(a.Earlier))
	for _, o := range s.Owners {
		r := maps.Range{Start: o[0], Length: o[1]}
		free = free && (r.Length == 0 || st.owners.Reserve(r))
		a.Owners = append(a.Owners, r)
	}
	if !free {
		return fmt.Errorf("journal: elements of service %q belong to another service", s.Name)
	}
	for i, b := range s.Backends {
		id := maps.IdentityOf(a.Spec.Backends[i])
		if _, taken := st.backends[b.Slot]; taken || !st.slots.Restore(id, b.Slot) {
			return fmt.Errorf("journal: backend %q of service %q has slot %d", b.Name, s.Name, b.Slot)
		}
		a.Slots = append(a.Slots, b.Slot)
		st.backends[b.Slot] = id
	}
	st.inForce[s.Name] = a
	st.names[a.Number] = s.Name
	return nil
}

// restoreShared reads back what lies in maps that both generations share.
func (st *state) restoreShared(t *maps.Tables) error {
	byRange := map[uint32]*maps.Service{}
	for _, a := range st.inForce {
		for _, r := range a.Owners {
			if r.Length > 0 {
				byRange[uint32(r.Start)] = a
			}
		}
	}
	var owner bpf.OwnerKey
	var slot uint32
	var stray []bpf.OwnerKey
	for it := t.Maps[bpf.MapLargeOwners].Iterate(); it.Next(&owner, &slot); {
		if a := byRange[owner.Owners]; a != nil {
			a.LargeOwners = append(a.LargeOwners, owner)
		} else {
			stray = append(stray, owner)
		}
	}
	for _, key := range stray {
		t.Maps[bpf.MapLargeOwners].Delete(key)
	}
	if err := st.restoreVIPs(t); err != nil {
		return err
	}
	if err := st.restoreClients(t); err != nil {
		return err
	}
	// Ports of either generation: the next commit drops what is not its own.
	ports, ranges := map[bpf.VportKey]uint16{}, map[bpf.VipRangesKey]bpf.VipRanges{}
	var port bpf.VportKey
	var service uint16
	for it := t.Maps[bpf.MapVports].Iterate(); it.Next(&port, &service); {
		ports[port] = service
		st.lastSet = max(st.lastSet, port.Vip)
	}
	var key bpf.VipRangesKey
	var r bpf.VipRanges
	for it := t.Maps[bpf.MapVranges].Iterate(); it.Next(&key, &r); {
		ranges[key] = r
		st.lastSet = max(st.lastSet, key.Vip)
	}
	st.generations[st.active].ports, st.generations[st.active].ranges = ports, ranges
	st.restoreOutbounds(t)
	var a bpf.Addr
	var one uint32
	for it := t.Maps[bpf.MapNatBackends].Iterate(); it.Next(&a, &one); {
		st.natBackends[maps.Address(a.Word)] = true
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

// restoreVIPs reads the lines of both generations' VIPs.
func (st *state) restoreVIPs(t *maps.Tables) error {
	records := uint32(t.Sizes.VIPs)
	st.generations[0].vips, st.generations[1].vips = map[uint32]bpf.Vip{}, map[uint32]bpf.Vip{}
	keys, values := make([]uint32, 4096), make([]bpf.Vip, 4096)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := t.Maps[bpf.MapVips].BatchLookup(&cursor, keys, values, nil)
		for i := range n {
			if values[i].Bits != 0 && keys[i] < 2*records {
				st.generations[keys[i]/records].vips[keys[i]%records] = values[i]
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

// restoreClients reads back who serves the clients of shared VIPs, of both generations.
func (st *state) restoreClients(t *maps.Tables) error {
	var prefix bpf.ClientPrefix
	var service uint32
	all := t.Maps[bpf.MapClients].Iterate()
	for all.Next(&prefix, &service) {
		st.generations[prefix.Set>>1&1].clients[prefix] = service
	}
	if err := all.Err(); err != nil {
		return fmt.Errorf("read sources of services back: %w", err)
	}
	return nil
}

// dropLeftovers makes slots that no one has stale, and lets the entries of flows
// expire that no longer count.
func (st *state) dropLeftovers(t *maps.Tables) {
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
		for w := range t.Flows[i].Slots {
			tableSlot := &t.Flows[i].Slots[w]
			meta := atomic.LoadUint64(&tableSlot.Meta)
			if atomic.LoadUint64(&tableSlot.Fingerprint) <= bpf.FingerprintBusy || meta>>bpf.ExpiryShift == 0 {
				continue
			}
			slot, epoch := uint16(meta), uint8(meta>>16)
			if _, used := st.backends[slot]; !used || epoch != t.Backends[2*int(slot)].Epoch && epoch != t.Backends[2*int(slot)+1].Epoch {
				t.ForgetFlow(i*bpf.BucketSlots+w, meta)
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

// restoreOutbounds reads the sets back; those that the active generation does
// not use go with it at the next change.
func (st *state) restoreOutbounds(t *maps.Tables) {
	outbounds := map[bpf.OutboundKey]bpf.Outbound{}
	var key bpf.OutboundKey
	var value bpf.Outbound
	for it := t.Maps[bpf.MapOutbounds].Iterate(); it.Next(&key, &value); {
		outbounds[key] = value
		st.lastSet = max(st.lastSet, key.Set)
	}
	st.generations[st.active].outbounds = outbounds
}
