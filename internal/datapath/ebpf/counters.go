package ebpf

import (
	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/maps"
	"github.com/weir-lb/weir/internal/datapath/ebpf/pins"
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

	// Decapsulated are packets whose tunnel ended here (decap), with bytes of frames, tunnel included.
	Decapsulated Decapsulated `metric:"weir_decap,datapath=ebpf" help:"on the tunnel, by what became of them; bytes are those of frames, tunnel included."`

	FragmentEvictions FragmentEvictions `metric:"weir_fragment_events_total,datapath=ebpf" help:"What happened in the fragment table, by event."`
}

// Decapsulated counts by kind of tunnel.
type Decapsulated struct {
	IPIP v1.Count `metric:"_,outcome=ipip"`
	GUE  v1.Count `metric:"_,outcome=gue"`
}

// FragmentEvictions counts entries of the fragment table that made room for others, before their time was over.
type FragmentEvictions struct {
	Known   uint64 `json:"known" metric:"_,event=evicted_known"`     // the first fragment was seen
	Left    uint64 `json:"left" metric:"_,event=evicted_left"`       // the name under which a known datagram left, for ICMP errors
	Waiting uint64 `json:"waiting" metric:"_,event=evicted_waiting"` // early fragments were held or queued
	Lost    uint64 `json:"lost" metric:"_,event=evicted_lost"`       // fragments were lost already
	Held    uint64 `json:"held" metric:"_,event=held_evicted"`       // fragments, not entries: dropped while they waited, so that others may
}

// counts reads the counters of what is in force, and keeps those of what is gone.
type counts struct {
	tables *maps.Tables
	store  *pins.Store
}

func (d *Datapath) counts() counts { return counts{d.tables, d.store} }

// service are a service's counters, by reason.
func (c counts) service(number uint16) (out [lb.NumReasons]Count) {
	sums := c.tables.ServiceCounts(number)
	for reason := range min(len(out), len(sums)) {
		out[reason] = Count{sums[reason].Packets, sums[reason].Bytes}
	}
	return out
}

func (c counts) backend(slot uint16) BackendCounts {
	sums := c.tables.BackendCount(slot)
	return BackendCounts{In: Count{sums.In.Packets, sums.In.Bytes}, Out: Count{sums.Out.Packets, sums.Out.Bytes}, Opened: sums.Opened}
}

// foldService adds the reasons of a service that goes to those of the services
// that went before, and clears its counters for the next one with its number.
func (c counts) foldService(number uint16) {
	for reason, n := range c.service(number) {
		if n == (Count{}) {
			continue
		}
		gone := c.goneReason(reason)
		gone.add(n)
		c.store.GoneReasons.Put(uint32(reason), gone)
	}
	c.tables.ClearService(number)
	c.store.Gone.Put(uint32(number), BackendCounts{})
}

// foldBackend adds the counts of a backend that goes to those that its service
// lost before, and clears its slot's for the next one.
func (c counts) foldBackend(slot, service uint16) {
	gone := c.goneBackends(service)
	gone.add(c.backend(slot))
	c.store.Gone.Put(uint32(service), gone)
	c.tables.ClearBackend(slot)
}

func (c counts) goneReason(reason int) (gone Count) {
	c.store.GoneReasons.Lookup(uint32(reason), &gone)
	return gone
}

func (c counts) goneBackends(service uint16) (gone BackendCounts) {
	c.store.Gone.Lookup(uint32(service), &gone)
	return gone
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
	read := d.counts()
	fragments := d.tables.FragmentEvictions()
	c.FragmentEvictions = FragmentEvictions{
		Known: fragments[bpf.RankKnown], Left: fragments[bpf.RankLeft], Waiting: fragments[bpf.RankWaiting], Lost: fragments[bpf.RankLost], Held: d.heldEvicted.Load(),
	}
	ipip, gue := d.tables.Opened()
	c.Decapsulated = Decapsulated{v1.Count{Packets: ipip.Packets, Bytes: ipip.Bytes}, v1.Count{Packets: gue.Packets, Bytes: gue.Bytes}}
	c.FlowsEvicted, c.FlowsDisplaced = d.tables.Evictions()
	c.Other = read.service(0)
	for i := range c.Other {
		c.Other[i].add(read.goneReason(i))
	}
	for name, a := range d.state.inForce {
		c.Services[name] = read.service(a.Number)
		c.Gone[name] = read.goneBackends(a.Number)
		for i, b := range a.Spec.Backends {
			c.Backends[lb.Target{Service: name, Backend: b.Name}] = read.backend(a.Slots[i])
		}
	}
	return c
}
