package ebpf

import (
	"fmt"
	stdmaps "maps"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"

	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/maps"
	"github.com/weir-lb/weir/internal/datapath/ebpf/pins"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// settleTime is how long the first Apply waits for neighbours to answer.
const settleTime = time.Second

func newState(t *maps.Tables) state {
	return state{
		services: maps.NewNumbers[string]("services", 1, bpf.MaxServices),
		slots:    maps.NewNumbers[maps.Identity]("backends", 0, bpf.NoSlot),
		maglev:   maps.NewRanges(t.Maglev),
		owners:   maps.NewRanges(t.Owners),
		byName:   map[string]*maps.Service{},
		inside:   map[netip.Addr]bool{},
		backends: map[uint16]maps.Identity{},
	}
}

// Apply puts a snapshot in force: all of it or, with an error, nothing. It
// makes before it breaks: backends, tables and services of the new generation
// are complete before one word switches to it, and what only the old one used
// goes once no program run can still see it.
//
// Limits are those of the first snapshot; later ones need a restart.
func (d *Datapath) Apply(s *lb.Snapshot) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tables == nil {
		if err := d.load(s.Limits); err != nil {
			return err
		}
	} else if d.snapshot != nil && s.Limits != d.snapshot.Limits {
		d.log.Warn("limits of tables stay those of the start; restart to change them")
	}
	c := &change{d: d, t: d.tables, st: &d.state, next: s, byName: map[string]*maps.Service{}}
	err := c.prepare()
	if err == nil {
		err = d.store.Write(c.half, pins.GenerationOf(c.byName))
	}
	if err != nil {
		c.undo()
		return fmt.Errorf("put generation %d into the maps: %w", s.Generation, err)
	}
	c.commit()
	d.snapshot = s
	d.watchHops()
	d.store.ReleaseNeighbours(d.links, d.hops.Uses)
	if d.inPlace {
		return nil
	}
	d.log.Info("looking for next hops, then attaching the programs", "interfaces", len(d.attached))
	d.hops.Settle(settleTime) // so that the first packets find their way
	return d.attach()
}

// change is one Apply in progress.
type change struct {
	d      *Datapath
	t      *maps.Tables
	st     *state
	next   *lb.Snapshot
	byName map[string]*maps.Service
	vips   *maps.VIPs
	half   uint32
	undos  []func()
	snat   []netip.Addr
}

func (c *change) undo() {
	for i := len(c.undos); i > 0; i-- {
		c.undos[i-1]()
	}
}

// prepare writes everything that the active generation does not look at.
func (c *change) prepare() error {
	c.half = 1 - c.st.active
	c.snat = c.st.snat
	for _, service := range c.next.Services {
		a, err := c.service(service)
		if err != nil {
			return fmt.Errorf("service %q: %w", service.Name, err)
		}
		c.byName[service.Name] = a
	}
	more := c.st.more
	var err error
	if c.vips, err = maps.IndexVIPs(c.next, func(s *lb.Service) uint16 { return c.byName[s.Name].Number }, c.t.Sizes.VIPs, &more); err != nil {
		return err
	}
	c.st.more = more
	return c.writeHalf()
}

// service makes what a service needs.
func (c *change) service(service *lb.Service) (*maps.Service, error) {
	number, fresh, err := c.st.services.Take(service.Name)
	if err != nil {
		return nil, err
	}
	if fresh {
		c.undos = append(c.undos, func() { c.st.services.Give(service.Name) })
		atomic.StoreUint64(&c.t.Rates[number], 0)
		if err := c.t.Put(bpf.MapSnatNext, uint32(number), uint32(0)); err != nil {
			return nil, fmt.Errorf("search for source ports: %w", err)
		}
	}
	a := &maps.Service{Spec: service, Number: number}
	for _, b := range service.Backends {
		id := maps.IdentityOf(b)
		slot, fresh, err := c.st.slots.Take(id)
		if err != nil {
			return nil, err
		}
		if fresh {
			c.undos = append(c.undos, func() { c.st.slots.Give(id) })
			c.writeBackend(slot, b, number)
		}
		a.Slots = append(a.Slots, slot)
	}
	old := c.st.byName[service.Name]
	if err := c.maglev(a, old); err != nil {
		return nil, err
	}
	if err := c.ownersOf(a); err != nil {
		return nil, err
	}
	return a, c.snatOf(service)
}

// writeBackend fills both families' records of a slot; their next hops come later.
func (c *change) writeBackend(slot uint16, b *lb.Backend, service uint16) {
	for family := range 2 {
		r := &c.t.Backends[2*int(slot)+family]
		epoch, hops, cur := r.Epoch, r.Hop, r.Cur
		*r = maps.BackendRecord(b, family == 1)
		r.Service, r.Epoch = service, epoch
		if b.Service.Mode == lb.Mark {
			continue
		}
		r.Hop, r.Cur = hops, cur
		r.Hop[r.Cur&1].State = bpf.HopNone
	}
}

// maglev writes the service's table, unless it has the same one already.
func (c *change) maglev(a, old *maps.Service) error {
	if len(a.Spec.Maglev) == 0 {
		return nil
	}
	table := make([]uint16, len(a.Spec.Maglev))
	for i, backend := range a.Spec.Maglev {
		table[i] = a.Slots[backend]
	}
	if old != nil && len(old.Spec.Maglev) == len(table) && slices.Equal(c.st.maglev.Of(old.Maglev)[:len(table)], table) {
		a.Maglev = old.Maglev
		return nil
	}
	var err error
	if a.Maglev, err = c.st.maglev.Take("Maglev table", len(table)); err != nil {
		return err
	}
	c.undos = append(c.undos, func() { c.st.maglev.Give(a.Maglev) })
	copy(c.st.maglev.Of(a.Maglev), table)
	return nil
}

// maxDense is the greatest owner id that has a cell of its own.
const maxDense = 1<<16 - 1

// ownersOf writes the tables of owner ids, one for the layouts that have the same.
func (c *change) ownersOf(a *maps.Service) error {
	if a.Spec.CID == nil {
		return nil
	}
	for layout := range a.Spec.CID.Layouts {
		r := maps.Range{}
		if a.Spec.OwnersLike(layout) == layout {
			var err error
			if r, err = c.ownersIn(a, layout); err != nil {
				return err
			}
		}
		a.Owners = append(a.Owners, r)
	}
	return nil
}

// ownersIn writes the table of one layout. It is never empty, for its start also names it in far_owners.
func (c *change) ownersIn(a *maps.Service, layout int) (maps.Range, error) {
	top := 0
	for _, b := range a.Spec.Backends {
		for _, id := range b.Nodes[layout] {
			if id <= maxDense {
				top = max(top, int(id))
			}
		}
	}
	owners, err := c.st.owners.Take("owner ids", top+1)
	if err != nil {
		return maps.Range{}, err
	}
	c.undos = append(c.undos, func() { c.st.owners.Give(owners) })
	table := c.st.owners.Of(owners)
	for i := range table {
		table[i] = bpf.NoSlot
	}
	for i, b := range a.Spec.Backends {
		for _, id := range b.Nodes[layout] {
			if id <= maxDense {
				table[id] = a.Slots[i]
				continue
			}
			key := bpf.OwnerKey{Owners: uint32(owners.Start), Owner: id}
			if err := c.t.Put(bpf.MapFarOwners, key, uint32(a.Slots[i])); err != nil {
				return maps.Range{}, fmt.Errorf("owner id %d: %w", id, err)
			}
			a.LargeOwners = append(a.LargeOwners, key)
			c.undos = append(c.undos, func() { c.t.Maps[bpf.MapFarOwners].Delete(key) })
		}
	}
	return owners, nil
}

// snatOf registers the service's source addresses. They are never moved, so
// that entries can name them by place.
func (c *change) snatOf(service *lb.Service) error {
	if service.SNAT == nil || findRun(c.snat, service.SNAT.Addresses) >= 0 {
		return nil
	}
	m := c.t.Maps[bpf.MapSnatAddresses]
	for _, a := range service.SNAT.Addresses {
		at := uint32(len(c.snat))
		if at >= m.MaxEntries() {
			return fmt.Errorf("more than %d SNAT addresses since the start; restart to forget the old ones", m.MaxEntries())
		}
		if err := c.t.Put(bpf.MapSnatAddresses, at, bpf.Addr{Word: maps.AddressWords(a)}); err != nil {
			return fmt.Errorf("SNAT address %s: %w", a, err)
		}
		c.snat = append(c.snat, a)
	}
	return nil
}

// findRun returns where part stands in all, -1 if nowhere.
func findRun(all, part []netip.Addr) int {
	for i := 0; i+len(part) <= len(all); i++ {
		if slices.Equal(all[i:i+len(part)], part) {
			return i
		}
	}
	return -1
}

// writeHalf fills the inactive half of services, vips and generations.
func (c *change) writeHalf() error {
	for _, a := range c.byName {
		snat := 0
		if a.Spec.SNAT != nil {
			snat = findRun(c.snat, a.Spec.SNAT.Addresses)
		}
		r := c.t.ServiceRecord(a, c.d.clock, c.d.source(a.Spec, false), c.d.source(a.Spec, true), snat)
		if err := c.t.Put(bpf.MapServices, c.half*bpf.MaxServices+uint32(a.Number), r); err != nil {
			return fmt.Errorf("service %q: %w", a.Spec.Name, err)
		}
	}
	old := c.st.halves[c.half]
	base := c.half * uint32(c.t.Sizes.VIPs)
	for place := range old.places {
		if _, ok := c.vips.Records[place]; !ok {
			if err := c.t.Put(bpf.MapVips, base+place, bpf.Vip{}); err != nil {
				return fmt.Errorf("clear a VIP: %w", err)
			}
			delete(old.places, place)
		}
	}
	// Whatever is written from here on must be known to the next change, should this one fail.
	places := stdmaps.Clone(c.vips.Records)
	stdmaps.Copy(places, old.places)
	c.st.halves[c.half].places = places
	for place, v := range c.vips.Records {
		if err := c.t.Put(bpf.MapVips, base+place, v); err != nil {
			return fmt.Errorf("VIP: %w", err)
		}
	}
	c.st.halves[c.half] = half{places: c.vips.Records, ports: c.vips.Ports, ranges: c.vips.Ranges}
	c.undos = append(c.undos, func() {
		deleteAll(c.t.Maps[bpf.MapVports], c.vips.Ports)
		deleteAll(c.t.Maps[bpf.MapVranges], c.vips.Ranges)
	})
	if err := putAll(c.t, bpf.MapVports, c.vips.Ports); err != nil {
		return fmt.Errorf("ports of VIPs: %w", err)
	}
	if err := putAll(c.t, bpf.MapVranges, c.vips.Ranges); err != nil {
		return fmt.Errorf("port ranges of VIPs: %w", err)
	}
	for _, service := range c.next.Services {
		if service.Mode != lb.NAT {
			continue
		}
		for _, b := range service.Backends {
			for _, a := range []netip.Addr{b.Address4, b.Address6} {
				if a.IsValid() {
					c.vips.AddNATBackend(a)
					if !c.st.inside[a] {
						c.undos = append(c.undos, func() { c.t.Maps[bpf.MapInside].Delete(bpf.Addr{Word: maps.AddressWords(a)}) })
					}
					if err := c.t.Put(bpf.MapInside, bpf.Addr{Word: maps.AddressWords(a)}, uint32(1)); err != nil {
						return fmt.Errorf("backend address %s: %w", a, err)
					}
				}
			}
		}
	}
	set, err := c.outbounds()
	if err != nil {
		return err
	}
	g := c.vips.Generation
	g.Outbound = set
	a, b := maps.Uint64s(maps.Words(c.next.HashKey))
	g.Sip = [2]uint64{a, b}
	if err := c.t.Put(bpf.MapGenerations, c.half, g); err != nil {
		return fmt.Errorf("generation: %w", err)
	}
	return nil
}

func putAll[K comparable, V any](t *maps.Tables, name string, entries map[K]V) error {
	for k, v := range entries {
		if err := t.Put(name, k, v); err != nil {
			return err
		}
	}
	return nil
}

func deleteAll[K comparable, V any](m *ebpf.Map, entries map[K]V) {
	for k := range entries {
		m.Delete(k)
	}
}
