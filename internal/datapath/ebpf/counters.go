package ebpf

import (
	"github.com/weir-lb/weir/internal/steering/lb"
)

// Count is packets and bytes of IP packets.
type Count struct{ Packets, Bytes uint64 }

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
}

// goneCounts are the last totals of a service that is gone.
type goneCounts [lb.NumReasons]Count

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

// foldService adds the counters of a service that goes to the others' and
// clears them for the next one with its number.
func (d *Datapath) foldService(number uint16, name string) {
	gone := d.state.gone[""]
	for i, c := range d.readService(number) {
		gone[i].Packets += c.Packets
		gone[i].Bytes += c.Bytes
	}
	d.state.gone[""] = gone
	zero := make([]bpfCount, d.cpus())
	for reason := range uint32(reasonsPerService) {
		d.tables.maps[bpfMapServiceCounts].Put(uint32(number)*reasonsPerService+reason, zero)
	}
}

// foldBackend clears the counters of a slot for the next backend that gets it.
func (d *Datapath) foldBackend(slot uint16, _ identity) {
	d.tables.maps[bpfMapBackendCounts].Put(uint32(slot), make([]bpfBackendCount, d.cpus()))
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
	c := Counters{Services: map[string][lb.NumReasons]Count{}, Backends: map[lb.Target]BackendCounts{}}
	if d.tables == nil {
		return c
	}
	c.Other = d.readService(0)
	for i, n := range d.state.gone[""] {
		c.Other[i].Packets += n.Packets
		c.Other[i].Bytes += n.Bytes
	}
	for name, a := range d.state.byName {
		c.Services[name] = d.readService(a.number)
		for i, b := range a.service.Backends {
			c.Backends[lb.Target{Service: name, Backend: b.Name}] = d.readBackend(a.slots[i])
		}
	}
	return c
}
