package ebpf

import (
	"github.com/weir-lb/weir/internal/steering/lb"
)

// Count is packets and bytes of IP packets.
type Count struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// BackendCounts are running totals of one backend.
type BackendCounts struct {
	In, Out Count  // to the backend; from it, where the data path sees that
	Opened  uint64 // flows
}

// Counters are running totals since the tables were made.
type Counters struct {
	// Reasons of packets of no service, or of services that are gone.
	Other    [lb.NumReasons]Count
	Services map[string][lb.NumReasons]Count
	Backends map[lb.Target]BackendCounts
	Gone     map[string]BackendCounts // of backends that a service had before
	// Live entries of the flow table that made room for others: unproven ones for new flows; proven ones for packets
	// whose connection id names a live owner, where nothing else was left.
	FlowsEvicted, FlowsDisplaced uint64

	FragmentEvictions FragmentEvictions `metric:"weir_fragment_events_total,datapath=ebpf" help:"What happened in the fragment table, by event."`
}

// FragmentEvictions counts entries of the fragment table that made room for others, before their time was over.
type FragmentEvictions struct {
	Known   uint64 `json:"known" metric:"_,event=evicted_known"`     // the first fragment was seen
	Left    uint64 `json:"left" metric:"_,event=evicted_left"`       // the name under which a known datagram left, for ICMP errors
	Waiting uint64 `json:"waiting" metric:"_,event=evicted_waiting"` // early fragments were held or queued
	Lost    uint64 `json:"lost" metric:"_,event=evicted_lost"`       // fragments were lost already
	Held    uint64 `json:"held" metric:"_,event=held_evicted"`       // fragments, not entries: dropped while they waited, so that others may
}

// readFragmentEvictions sums the evictions over the CPUs, by enum fragment_rank of frag.h.
func (d *Datapath) readFragmentEvictions() (e FragmentEvictions) {
	for rank, n := range []*uint64{&e.Known, &e.Left, &e.Waiting, &e.Lost} {
		var perCPU []uint64
		if err := d.tables.maps[bpfMapFragmentEvictions].Lookup(uint32(rank), &perCPU); err != nil {
			continue
		}
		for _, c := range perCPU {
			*n += c
		}
	}
	e.Held = d.heldEvicted.Load()
	return e
}

// readEvictions sums them over the CPUs.
func (d *Datapath) readEvictions() (evicted, displaced uint64) {
	var perCPU []bpfEvictionCount
	if err := d.tables.maps[bpfMapEvictionCounts].Lookup(uint32(0), &perCPU); err != nil {
		return 0, 0
	}
	for _, c := range perCPU {
		evicted += c.Evicted
		displaced += c.Displaced
	}
	return evicted, displaced
}

// reasonsPerService mirrors enum limits in types.h.
const reasonsPerService = 32

// readService sums a service's counters over the CPUs.
func (d *Datapath) readService(number uint16) (out [lb.NumReasons]Count) {
	var perCPU []bpfCount
	for reason := range min(lb.NumReasons, reasonsPerService) {
		key := uint32(number)*reasonsPerService + uint32(reason)
		if err := d.tables.maps[bpfMapServiceCounts].Lookup(key, &perCPU); err != nil {
			continue
		}
		for _, c := range perCPU {
			out[reason].Packets += c.Packets
			out[reason].Bytes += c.Bytes
		}
	}
	return out
}

func (d *Datapath) readBackend(slot uint16) (out BackendCounts) {
	var perCPU []bpfBackendCount
	if err := d.tables.maps[bpfMapBackendCounts].Lookup(uint32(slot), &perCPU); err != nil {
		return out
	}
	for _, c := range perCPU {
		out.In.Packets += c.In.Packets
		out.In.Bytes += c.In.Bytes
		out.Out.Packets += c.Out.Packets
		out.Out.Bytes += c.Out.Bytes
		out.Opened += c.Opened
	}
	return out
}

// foldService adds the reasons of a service that goes to those of the services
// that went before, and clears its counters for the next one with its number.
func (d *Datapath) foldService(number uint16) {
	for i, c := range d.readService(number) {
		if c == (Count{}) {
			continue
		}
		gone := d.goneReason(i)
		d.keeper.goneReason.Put(uint32(i), Count{gone.Packets + c.Packets, gone.Bytes + c.Bytes})
	}
	zero := make([]bpfCount, d.cpus())
	for reason := range uint32(reasonsPerService) {
		d.tables.maps[bpfMapServiceCounts].Put(uint32(number)*reasonsPerService+reason, zero)
	}
	d.keeper.gone.Put(uint32(number), BackendCounts{})
}

// foldBackend adds the counts of a backend that goes to those that its service
// lost before, and clears its slot's for the next one.
func (d *Datapath) foldBackend(slot, service uint16) {
	gone := d.goneBackends(service)
	gone.add(d.readBackend(slot))
	d.keeper.gone.Put(uint32(service), gone)
	d.tables.maps[bpfMapBackendCounts].Put(uint32(slot), make([]bpfBackendCount, d.cpus()))
}

func (d *Datapath) goneReason(reason int) (c Count) {
	d.keeper.goneReason.Lookup(uint32(reason), &c)
	return c
}

func (d *Datapath) goneBackends(service uint16) (c BackendCounts) {
	d.keeper.gone.Lookup(uint32(service), &c)
	return c
}

func (c *Count) add(o Count) {
	c.Packets += o.Packets
	c.Bytes += o.Bytes
}

func (c *BackendCounts) add(o BackendCounts) {
	c.In.add(o.In)
	c.Out.add(o.Out)
	c.Opened += o.Opened
}

func (d *Datapath) cpus() int {
	var perCPU []bpfCount
	if err := d.tables.maps[bpfMapServiceCounts].Lookup(uint32(0), &perCPU); err != nil {
		return 1
	}
	return len(perCPU)
}

// Counters reads all totals.
func (d *Datapath) Counters() Counters {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := Counters{Services: map[string][lb.NumReasons]Count{}, Backends: map[lb.Target]BackendCounts{}, Gone: map[string]BackendCounts{}}
	if d.tables == nil {
		return c
	}
	c.FragmentEvictions = d.readFragmentEvictions()
	c.FlowsEvicted, c.FlowsDisplaced = d.readEvictions()
	c.Other = d.readService(0)
	for i := range c.Other {
		c.Other[i].add(d.goneReason(i))
	}
	for name, a := range d.state.byName {
		c.Services[name] = d.readService(a.number)
		c.Gone[name] = d.goneBackends(a.number)
		for i, b := range a.service.Backends {
			c.Backends[lb.Target{Service: name, Backend: b.Name}] = d.readBackend(a.slots[i])
		}
	}
	return c
}
