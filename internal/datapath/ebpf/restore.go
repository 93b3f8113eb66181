package ebpf

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	stdmaps "maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/maps"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// meaning changes when the same bytes in the maps come to mean something else.
const meaning = 4

// abi is a hash of everything in which two builds must agree to share tables:
// kinds, sizes and layouts of the maps.
func abi(spec *ebpf.CollectionSpec) (string, error) {
	h := sha256.New()
	fmt.Fprintf(h, "meaning %d\n", meaning)
	for _, name := range slices.Sorted(stdmaps.Keys(spec.Maps)) {
		m := spec.Maps[name]
		if strings.HasPrefix(name, ".") {
			continue
		}
		fmt.Fprintf(h, "%s %s %d %d %d %d\n", name, m.Type, m.KeySize, m.ValueSize, m.MaxEntries, m.Flags)
		for _, t := range []btf.Type{m.Key, m.Value} {
			writeType(h, t, 0)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:12]), nil
}

// writeType writes a type's layout with the names of its fields.
func writeType(w io.Writer, t btf.Type, depth int) {
	if t == nil || depth > 8 {
		return
	}
	t = btf.UnderlyingType(t)
	switch t := t.(type) {
	case *btf.Struct:
		for _, m := range t.Members {
			fmt.Fprintf(w, "%d:%s ", m.Offset, m.Name)
			writeType(w, m.Type, depth+1)
		}
	case *btf.Union:
		for _, m := range t.Members {
			fmt.Fprintf(w, "|%s ", m.Name)
			writeType(w, m.Type, depth+1)
		}
	case *btf.Array:
		fmt.Fprintf(w, "[%d]", t.Nelems)
		writeType(w, t.Type, depth+1)
	default:
		size, _ := btf.Sizeof(t)
		fmt.Fprintf(w, "%d\n", size)
	}
}

// kept are maps found in pins, of a data path like this one.
type kept struct {
	maps    map[string]*ebpf.Map
	keeper  *keeper
	fixture fixture
}

func (k *kept) close() {
	for _, m := range k.maps {
		m.Close()
	}
	k.keeper.close()
}

// errUnlike says why what is pinned cannot be taken over.
type errUnlike struct{ why string }

func (e errUnlike) Error() string { return e.why }

// find looks for tables in the pins. Nil without an error: there are none. An
// errUnlike: there are, but of no use.
func (p *pins) find(spec *ebpf.CollectionSpec, namesOf []string) (k *kept, err error) {
	if len(names(p.maps())) == 0 {
		return nil, nil
	}
	k = &kept{maps: map[string]*ebpf.Map{}}
	defer func() {
		if err != nil {
			k.close()
			k = nil
		}
	}()
	if k.keeper, err = loadKeeper(p, nil); err != nil {
		return k, errUnlike{err.Error()}
	}
	if err := k.keeper.read(textFixture, &k.fixture); errors.Is(err, os.ErrNotExist) {
		return k, errUnlike{"they were never finished"}
	} else if err != nil {
		return k, errUnlike{err.Error()}
	}
	maps.SizesFor(k.fixture.Limits).Adapt(spec)
	if own, err := abi(spec); err != nil {
		return k, err
	} else if own != k.fixture.ABI {
		return k, errUnlike{fmt.Sprintf("another build of weir made them (layout %s, this one has %s)", k.fixture.ABI, own)}
	}
	for _, name := range namesOf {
		m, err := ebpf.LoadPinnedMap(p.mapAt(name), nil)
		if err != nil {
			return k, errUnlike{fmt.Sprintf("map %s: %v", name, err)}
		}
		k.maps[name] = m
	}
	var control bpf.Control
	if err := k.maps[bpf.MapControls].Lookup(uint32(0), &control); err != nil {
		return k, fmt.Errorf("map %s: %w", bpf.MapControls, err)
	}
	// Killed in its first Apply, a process leaves tables that no generation is in.
	if err := k.keeper.read(control.Active&1, new(generationText)); errors.Is(err, os.ErrNotExist) {
		return k, errUnlike{"they were never finished"}
	}
	return k, nil
}

// pinAll pins the tables of a new data path. The fixture comes last: without it
// a later start does not use what is there.
func (p *pins) pinAll(all map[string]*ebpf.Map, k *keeper, f fixture) error {
	if err := p.dropMaps(); err != nil {
		return fmt.Errorf("clear pins: %w", err)
	}
	for name, m := range all {
		if strings.HasPrefix(name, ".") {
			continue
		}
		if err := m.Pin(p.mapAt(name)); err != nil {
			return fmt.Errorf("pin map %s: %w", name, err)
		}
	}
	if err := k.pin(p); err != nil {
		return err
	}
	return k.write(textFixture, f)
}

// text is what the journal keeps of a generation.
func textOf(services map[string]*maps.Service) generationText {
	var t generationText
	for _, name := range slices.Sorted(stdmaps.Keys(services)) {
		a := services[name]
		s := serviceText{
			Name: name, Number: a.Number, Mode: a.Spec.Mode, Size: len(a.Spec.Maglev),
			Maglev: [2]int{a.Maglev.Start, a.Maglev.Length},
		}
		for _, r := range a.Owners {
			s.Owners = append(s.Owners, [2]int{r.Start, r.Length})
		}
		for i, b := range a.Spec.Backends {
			s.Backends = append(s.Backends, backendText{
				Name: b.Name, Slot: a.Slots[i], Mark: b.Mark, Address4: b.Address4, Address6: b.Address6, Port: b.Port,
			})
		}
		t.Services = append(t.Services, s)
	}
	return t
}

// service rebuilds as much of a service as the next change and the counters look at.
func (s *serviceText) service() *lb.Service {
	service := &lb.Service{Name: s.Name, Mode: s.Mode}
	if s.Size > 0 && s.Size <= s.Maglev[1] {
		service.Maglev = make([]int32, s.Size) // its length counts: the cells hold the rest
	}
	for i, b := range s.Backends {
		service.Backends = append(service.Backends, &lb.Backend{
			Index: i, Name: b.Name, Mark: b.Mark, Address4: b.Address4, Address6: b.Address6, Port: b.Port, Service: service,
		})
	}
	return service
}

// restore rebuilds the state from the tables and their journal, and clears away
// what a process that died in the middle of Apply left half made or half removed.
func (d *Datapath) restore(text *generationText) error {
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

func (d *Datapath) restoreService(s *serviceText) error {
	st := &d.state
	a := &maps.Service{
		Spec: s.service(), Number: s.Number, Maglev: maps.Range{Start: s.Maglev[0], Length: s.Maglev[1]},
	}
	if s.Number == 0 || s.Number >= maps.MaxServices || st.names[s.Number] != "" || !st.services.Restore(s.Name, s.Number) {
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
	for slot := range maps.MaxSlots {
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
			if atomic.LoadUint64(&way.Print) <= 1 || meta>>maps.ExpiryShift == 0 {
				continue
			}
			slot, epoch := uint16(meta), uint8(meta>>16)
			if _, used := st.backends[slot]; !used || epoch != t.Backends[2*int(slot)].Epoch && epoch != t.Backends[2*int(slot)+1].Epoch {
				t.ForgetFlow(i*maps.Ways+w, meta)
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
