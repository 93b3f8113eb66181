package ebpf

import (
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/maps"
	"github.com/weir-lb/weir/internal/datapath/ebpf/pins"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// nextHopTimeout is how long the first Apply waits for neighbours to answer.
const nextHopTimeout = time.Second

// Apply puts a snapshot in force: all of it or, with an error, nothing. It makes before it breaks:
//
//	load     the first time: tables and programs
//	prepare  writes what no program reads yet: records and tables of new backends and services, then the generation that is
//	         not in force, then its text in the journal. What was taken or written is noted, to be undone if a step fails.
//	activate one word in the map controls names the new generation
//	retire   once no program run can still see it, what only the old generation used goes
//	attach   next hops are followed, and the first time the programs are put on the interfaces
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
	c := d.newChange(s)
	if err := c.prepare(); err != nil {
		c.undo()
		return fmt.Errorf("put generation %d into the maps: %w", s.Generation, err)
	}
	old := c.activate()
	c.retire(old)
	d.snapshot = s
	d.watchHops()
	if d.hops.Freed() {
		d.store.ReleaseNeighbours(d.links, d.hops.Uses)
	}
	if d.inPlace {
		return nil
	}
	d.log.Info("looking for next hops, then attaching the programs", "interfaces", len(d.attached))
	d.hops.WaitResolved(nextHopTimeout) // so that the first packets find a neighbour
	return d.attach()
}

// change is one Apply in progress.
type change struct {
	d        *Datapath
	t        *maps.Tables
	st       *state
	snapshot *lb.Snapshot
	number   uint32                   // of the generation that is made, 0 or 1
	services map[string]*maps.Service // of the snapshot, by name
	snat     []netip.Addr
	index    *maps.VIPs
	retired  []uint16 // slots of backends that are gone
	undos    []func()
}

func (d *Datapath) newChange(s *lb.Snapshot) *change {
	return &change{
		d: d, t: d.tables, st: &d.state, snapshot: s, number: 1 - d.state.active,
		services: map[string]*maps.Service{}, snat: d.state.snat,
	}
}

// onUndo notes how a step is taken back.
func (c *change) onUndo(f func()) { c.undos = append(c.undos, f) }

func (c *change) undo() {
	for _, f := range slices.Backward(c.undos) {
		f()
	}
}

// prepare writes everything that the generation in force does not look at.
func (c *change) prepare() error {
	for _, service := range c.snapshot.Services {
		s, err := c.makeService(service)
		if err != nil {
			return fmt.Errorf("service %q: %w", service.Name, err)
		}
		c.services[service.Name] = s
	}
	for _, step := range []func() error{
		c.indexVIPs, c.writeServices, c.writeVIPs, c.writeClients, c.writeTunnels, c.writePorts, c.writeNATBackends, c.writeOutbounds, c.writeJournal,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// makeService takes a service's number, its backends' slots and its tables.
func (c *change) makeService(service *lb.Service) (*maps.Service, error) {
	number, fresh, err := c.st.services.Take(service.Name)
	if err != nil {
		return nil, err
	}
	if fresh {
		c.onUndo(func() { c.st.services.Give(service.Name) })
		atomic.StoreUint64(&c.t.Rates[number], 0)
		atomic.StoreUint64(&c.t.Rates[bpf.RateEchoes+int(number)], 0)
		if err := c.t.Put(bpf.MapSnatNext, uint32(number), uint32(0)); err != nil {
			return nil, fmt.Errorf("search for source ports: %w", err)
		}
	}
	s := &maps.Service{Spec: service, Number: number}
	for _, b := range service.Backends {
		id := maps.IdentityOf(b)
		slot, fresh, err := c.st.slots.Take(id)
		if err != nil {
			return nil, err
		}
		if fresh {
			c.onUndo(func() { c.st.slots.Give(id) })
			c.t.WriteBackend(slot, b, number)
		}
		s.Slots = append(s.Slots, slot)
	}
	if err := c.makeMaglev(s); err != nil {
		return nil, err
	}
	c.makeEarlier(s)
	if err := c.makeOwners(s); err != nil {
		return nil, err
	}
	return s, c.addSNAT(service)
}

// makeMaglev writes the service's Maglev table, unless it has the same one already.
func (c *change) makeMaglev(s *maps.Service) (err error) {
	if maps.TableSize(s.Spec) == 0 {
		return nil
	}
	old := c.st.inForce[s.Spec.Name]
	if old != nil && sameMaglev(old, s) {
		s.Maglev = old.Maglev
		return nil
	}
	table := maps.MaglevTable(s.Spec, s.Slots)
	if old != nil && old.Maglev.Length >= len(table) && maps.TableSize(old.Spec) == len(table) && slices.Equal(c.st.maglev.Of(old.Maglev)[:len(table)], table) {
		s.Maglev = old.Maglev
		return nil
	}
	if s.Maglev, err = c.st.maglev.Take("Maglev table", len(table)); err != nil {
		return err
	}
	c.onUndo(func() { c.st.maglev.Give(s.Maglev) })
	copy(c.st.maglev.Of(s.Maglev), table)
	return nil
}

// makeEarlier writes the tables that the service had before. Without room for them the service has none: its flows do not depend
// on them as long as this balancer lives.
func (c *change) makeEarlier(s *maps.Service) {
	table := maps.EarlierTables(s.Spec, s.Slots)
	if len(table) == 0 {
		return
	}
	old := c.st.inForce[s.Spec.Name]
	if old != nil && old.Earlier.Length == len(table) && slices.Equal(c.st.maglev.Of(old.Earlier), table) {
		s.Earlier = old.Earlier
		return
	}
	taken, err := c.st.maglev.Take("earlier Maglev tables", len(table))
	if err != nil {
		c.d.log.Warn("flows of another balancer do not keep their backends after this change", "event", "earlier_tables_dropped", "service", s.Spec.Name, "error", err)
		return
	}
	s.Earlier = taken
	c.onUndo(func() { c.st.maglev.Give(taken) })
	copy(c.st.maglev.Of(taken), table)
}

// sameMaglev reports whether two services share their table, and what it stands for.
func sameMaglev(a, b *maps.Service) bool {
	return len(a.Spec.Maglev) == len(b.Spec.Maglev) && len(b.Spec.Maglev) > 0 && &a.Spec.Maglev[0] == &b.Spec.Maglev[0] && slices.Equal(a.Slots, b.Slots) &&
		slices.EqualFunc(a.Spec.Backends, b.Spec.Backends, func(a, b *lb.Backend) bool { return a.Action == b.Action })
}

// makeOwners writes the tables of owner ids, one for the layouts that have the same.
func (c *change) makeOwners(s *maps.Service) error {
	if s.Spec.CID == nil {
		return nil
	}
	for layout := range s.Spec.CID.Layouts {
		if s.Spec.OwnersLike(layout) != layout {
			s.Owners = append(s.Owners, maps.Range{})
			continue
		}
		table, large := maps.OwnerTable(s.Spec, s.Slots, layout)
		owners, err := c.st.owners.Take("owner ids", len(table))
		if err != nil {
			return err
		}
		c.onUndo(func() { c.st.owners.Give(owners) })
		s.Owners = append(s.Owners, owners)
		elements := c.st.owners.Of(owners)
		for i := copy(elements, table); i < len(elements); i++ {
			elements[i] = bpf.NoSlot // the range may be larger than the table
		}
		for id, slot := range large {
			key := bpf.OwnerKey{Owners: uint32(owners.Start), Owner: id}
			if err := c.t.Put(bpf.MapLargeOwners, key, uint32(slot)); err != nil {
				return fmt.Errorf("owner id %d: %w", id, err)
			}
			s.LargeOwners = append(s.LargeOwners, key)
			c.onUndo(func() { c.t.Maps[bpf.MapLargeOwners].Delete(key) })
		}
	}
	return nil
}

// addSNAT registers the service's source addresses. They are never moved, so that entries can name them by index.
func (c *change) addSNAT(service *lb.Service) error {
	if service.SNAT == nil || indexOfRun(c.snat, service.SNAT.Addresses) >= 0 {
		return nil
	}
	m := c.t.Maps[bpf.MapSnatAddresses]
	for _, a := range service.SNAT.Addresses {
		index := uint32(len(c.snat))
		if index >= m.MaxEntries() {
			return fmt.Errorf("more than %d SNAT addresses since the start; restart to forget the old ones", m.MaxEntries())
		}
		if err := c.t.Put(bpf.MapSnatAddresses, index, bpf.Addr{Word: maps.AddressWords(a)}); err != nil {
			return fmt.Errorf("SNAT address %s: %w", a, err)
		}
		c.snat = append(c.snat, a)
	}
	return nil
}

// indexVIPs computes the generation's index of destinations. Its sets of ports get numbers that no other generation has.
func (c *change) indexVIPs() (err error) {
	last := c.st.lastSet
	number := func(s *lb.Service) uint16 { return c.services[s.Name].Number }
	if c.index, err = maps.IndexVIPs(c.snapshot, number, c.t.Sizes.VIPs, c.number, &last, c.st.mult); err != nil {
		return err
	}
	c.st.lastSet, c.st.mult = last, c.index.Generation.Mult
	return nil
}

// writeServices fills the generation's half of the map of services.
func (c *change) writeServices() error {
	written := c.st.generations[c.number].services
	for _, s := range c.services {
		snat := 0
		if s.Spec.SNAT != nil {
			snat = indexOfRun(c.snat, s.Spec.SNAT.Addresses)
		}
		r := c.t.ServiceRecord(s, c.d.clock, c.d.source(s.Spec, false), c.d.source(s.Spec, true), snat)
		if written[s.Number] == r {
			continue
		}
		if err := c.t.Put(bpf.MapServices, c.number*bpf.MaxServices+uint32(s.Number), r); err != nil {
			return fmt.Errorf("service %q: %w", s.Spec.Name, err)
		}
		written[s.Number] = r
	}
	return nil
}

// writeVIPs fills the generation's half of the map of VIPs. It is not undone: no program reads it, and the next change knows
// what is there.
func (c *change) writeVIPs() error {
	g := &c.st.generations[c.number]
	first := c.number * uint32(c.t.Sizes.VIPs)
	for record := range g.vips {
		if _, ok := c.index.Records[record]; !ok {
			if err := c.t.Put(bpf.MapVips, first+record, bpf.Vip{}); err != nil {
				return fmt.Errorf("clear a VIP: %w", err)
			}
			delete(g.vips, record)
		}
	}
	for record, v := range c.index.Records {
		if g.vips[record] == v {
			continue
		}
		if err := c.t.Put(bpf.MapVips, first+record, v); err != nil {
			return fmt.Errorf("VIP: %w", err)
		}
		g.vips[record] = v
	}
	g.ports, g.ranges, g.outbounds = c.index.Ports, c.index.Ranges, nil
	return nil
}

// writeClients enters who serves the clients of shared VIPs, and the prefixes of tunnels. It is not undone: as with the VIPs, no program reads it yet.
func (c *change) writeClients() error {
	g := &c.st.generations[c.number]
	for prefix := range g.clients {
		if _, ok := c.index.Clients[prefix]; ok {
			continue
		}
		if err := c.t.Maps[bpf.MapClients].Delete(prefix); err != nil {
			return fmt.Errorf("clear sources: %w", err)
		}
		delete(g.clients, prefix)
	}
	for prefix, service := range c.index.Clients {
		if now, ok := g.clients[prefix]; ok && now == service {
			continue
		}
		if err := c.t.Put(bpf.MapClients, prefix, service); err != nil {
			return fmt.Errorf("sources of services: %w", err)
		}
		g.clients[prefix] = service
	}
	return nil
}

// writeTunnels says whether tunnels end here in the generation.
func (c *change) writeTunnels() error {
	bit := uint32(1) << c.number
	tunnels := atomic.LoadUint32(&c.t.Control.Tunnels) &^ bit
	if c.snapshot.Decap != nil {
		tunnels |= bit
	}
	atomic.StoreUint32(&c.t.Control.Tunnels, tunnels)
	return nil
}

// writePorts enters the ports of VIPs that have many.
func (c *change) writePorts() error {
	c.onUndo(func() {
		maps.DeleteAll(c.t.Maps[bpf.MapVports], c.index.Ports)
		maps.DeleteAll(c.t.Maps[bpf.MapVranges], c.index.Ranges)
	})
	if err := maps.PutAll(c.t, bpf.MapVports, c.index.Ports); err != nil {
		return fmt.Errorf("ports of VIPs: %w", err)
	}
	if err := maps.PutAll(c.t, bpf.MapVranges, c.index.Ranges); err != nil {
		return fmt.Errorf("port ranges of VIPs: %w", err)
	}
	return nil
}

// writeNATBackends enters the addresses whose packets may be replies: those of backends in mode NAT.
func (c *change) writeNATBackends() error {
	for a := range natBackends(c.snapshot) {
		c.index.AddNATBackend(a)
		key := bpf.Addr{Word: maps.AddressWords(a)}
		if c.st.natBackends[a] {
			continue
		}
		c.onUndo(func() { c.t.Maps[bpf.MapNatBackends].Delete(key) })
		if err := c.t.Put(bpf.MapNatBackends, key, uint32(1)); err != nil {
			return fmt.Errorf("backend address %s: %w", a, err)
		}
	}
	return nil
}

// writeOutbounds enters the endpoints whose own flows are translated, under a number of the generation's own (0: there is
// none), and with it the generation's record.
func (c *change) writeOutbounds() error {
	g := c.index.Generation
	outbounds := map[bpf.OutboundKey]bpf.Outbound{}
	set := c.st.lastSet + 1
	for from, o := range c.snapshot.Outbounds {
		s := c.services[o.Backend.Service.Name]
		key := bpf.OutboundKey{Addr: maps.AddressWords(from.Addr()), Set: set, Port: maps.Swap16(from.Port())}
		outbounds[key] = bpf.Outbound{
			Vip: maps.AddressWords(o.VIP.Addr()), Port: maps.Swap16(o.VIP.Port()), Service: s.Number, Slot: uint32(s.Slots[o.Backend.Index]),
		}
	}
	if len(outbounds) > 0 {
		c.st.lastSet, g.Outbound = set, set
		c.st.generations[c.number].outbounds = outbounds
		c.onUndo(func() { maps.DeleteAll(c.t.Maps[bpf.MapOutbounds], outbounds) })
		if err := maps.PutAll(c.t, bpf.MapOutbounds, outbounds); err != nil {
			return fmt.Errorf("endpoints of outbound flows: %w", err)
		}
	}
	g.Sip[0], g.Sip[1] = maps.Uint64s(maps.Words(c.snapshot.HashKey))
	if err := c.t.Put(bpf.MapGenerations, c.number, g); err != nil {
		return fmt.Errorf("generation: %w", err)
	}
	return nil
}

// writeJournal notes who has which number, for the process that comes after this one.
func (c *change) writeJournal() error {
	return c.d.store.Write(c.number, pins.GenerationOf(c.services))
}

// activate makes the programs read the new generation. It returns the services that were in force.
func (c *change) activate() (old map[string]*maps.Service) {
	old = c.st.inForce
	atomic.StoreUint32(&c.t.Control.Active, c.t.Control.Active+1) // its lowest bit is c.number
	c.st.active, c.st.inForce, c.st.snat = c.number, c.services, c.snat
	for _, s := range c.services {
		c.st.names[s.Number] = s.Spec.Name
		for i, b := range s.Spec.Backends {
			c.st.backends[s.Slots[i]] = maps.IdentityOf(b)
			c.t.UpdateBackend(s.Slots[i], b, s.Number)
		}
	}
	return old
}

// retire waits until no program reads the old generation, and removes what only that one used.
func (c *change) retire(old map[string]*maps.Service) {
	maps.Grace()
	g := &c.st.generations[1-c.number]
	maps.DeleteAll(c.t.Maps[bpf.MapVports], g.ports)
	maps.DeleteAll(c.t.Maps[bpf.MapVranges], g.ranges)
	maps.DeleteAll(c.t.Maps[bpf.MapOutbounds], g.outbounds)
	g.ports, g.ranges, g.outbounds = nil, nil, nil
	used := map[maps.Identity]bool{}
	for _, s := range c.services {
		for _, b := range s.Spec.Backends {
			used[maps.IdentityOf(b)] = true
		}
	}
	for name, s := range old {
		c.retireService(s, c.services[name], used)
	}
	c.t.ForgetSlots(c.retired)
	now := natBackends(c.snapshot)
	for a := range c.st.natBackends {
		if !now[a] {
			c.t.Maps[bpf.MapNatBackends].Delete(bpf.Addr{Word: maps.AddressWords(a)})
		}
	}
	c.st.natBackends = now
}

// retireService gives back what a service had and its successor, if it has one, does not use. Backends that no program uses any
// more are retired: their flows are stale from now on, and their counts go to their service's.
func (c *change) retireService(s, successor *maps.Service, used map[maps.Identity]bool) {
	if successor == nil || successor.Maglev != s.Maglev {
		c.st.maglev.Give(s.Maglev)
	}
	if successor == nil || successor.Earlier != s.Earlier {
		c.st.maglev.Give(s.Earlier)
	}
	for _, r := range s.Owners {
		c.st.owners.Give(r)
	}
	for _, key := range s.LargeOwners {
		c.t.Maps[bpf.MapLargeOwners].Delete(key)
	}
	for i, b := range s.Spec.Backends {
		if id := maps.IdentityOf(b); !used[id] {
			c.d.counts().foldBackend(s.Slots[i], s.Number)
			delete(c.st.backends, s.Slots[i])
			c.t.RetireBackend(s.Slots[i])
			c.st.slots.Give(id)
			c.retired = append(c.retired, s.Slots[i])
		}
	}
	if successor == nil {
		c.d.counts().foldService(s.Number)
		c.st.services.Give(s.Spec.Name)
	}
}
