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

// readService are a service's counters, by reason.
func (d *Datapath) readService(number uint16) (out [lb.NumReasons]Count) {
	sums := d.tables.ServiceCounts(number)
	for reason := range min(len(out), len(sums)) {
		out[reason] = Count{sums[reason].Packets, sums[reason].Bytes}
	}
	return out
}

func (d *Datapath) readBackend(slot uint16) BackendCounts {
	c := d.tables.BackendCount(slot)
	return BackendCounts{In: Count{c.In.Packets, c.In.Bytes}, Out: Count{c.Out.Packets, c.Out.Bytes}, Opened: c.Opened}
}

// foldService adds the reasons of a service that goes to those of the services
// that went before, and clears its counters for the next one with its number.
func (d *Datapath) foldService(number uint16) {
	for i, c := range d.readService(number) {
		if c == (Count{}) {
			continue
		}
		gone := d.goneReason(i)
		d.store.GoneReasons.Put(uint32(i), Count{gone.Packets + c.Packets, gone.Bytes + c.Bytes})
	}
	d.tables.ClearService(number)
	d.store.Gone.Put(uint32(number), BackendCounts{})
}

// foldBackend adds the counts of a backend that goes to those that its service
// lost before, and clears its slot's for the next one.
func (d *Datapath) foldBackend(slot, service uint16) {
	gone := d.goneBackends(service)
	gone.add(d.readBackend(slot))
	d.store.Gone.Put(uint32(service), gone)
	d.tables.ClearBackend(slot)
}

func (d *Datapath) goneReason(reason int) (c Count) {
	d.store.GoneReasons.Lookup(uint32(reason), &c)
	return c
}

func (d *Datapath) goneBackends(service uint16) (c BackendCounts) {
	d.store.Gone.Lookup(uint32(service), &c)
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

// Counters reads all totals.
func (d *Datapath) Counters() Counters {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := Counters{Services: map[string][lb.NumReasons]Count{}, Backends: map[lb.Target]BackendCounts{}, Gone: map[string]BackendCounts{}}
	if d.tables == nil {
		return c
	}
	fragments := d.tables.FragmentEvictions()
	c.FragmentEvictions = FragmentEvictions{
		Known: fragments[0], Left: fragments[1], Waiting: fragments[2], Lost: fragments[3], Held: d.heldEvicted.Load(),
	}
	c.FlowsEvicted, c.FlowsDisplaced = d.tables.Evictions()
	c.Other = d.readService(0)
	for i := range c.Other {
		c.Other[i].add(d.goneReason(i))
	}
	for name, a := range d.state.inForce {
		c.Services[name] = d.readService(a.Number)
		c.Gone[name] = d.goneBackends(a.Number)
		for i, b := range a.Spec.Backends {
			c.Backends[lb.Target{Service: name, Backend: b.Name}] = d.readBackend(a.Slots[i])
		}
	}
	return c
}
