package maps

import (
	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
)

// ServiceCounts sums a service's counters over the CPUs, by reason.
func (t *Tables) ServiceCounts(number uint16) (sums [bpf.Reasons]bpf.Count) {
	var perCPU []bpf.ReasonCounts
	if err := t.Maps[bpf.MapServiceCounts].Lookup(uint32(number), &perCPU); err != nil {
		return sums
	}
	for cpu := range perCPU {
		for reason, c := range perCPU[cpu].ByReason {
			sums[reason].Packets += c.Packets
			sums[reason].Bytes += c.Bytes
		}
	}
	return sums
}

// ClearService clears the counters of a service for the next one with its number.
func (t *Tables) ClearService(number uint16) {
	t.Maps[bpf.MapServiceCounts].Put(uint32(number), make([]bpf.ReasonCounts, t.CPUs()))
}

// BackendCount sums the counters of a slot over the CPUs.
func (t *Tables) BackendCount(slot uint16) (out bpf.BackendCount) {
	for i := int(slot); i < len(t.BackendCounts); i += bpf.MaxBackends {
		c := &t.BackendCounts[i]
		out.In.Packets += c.In.Packets
		out.In.Bytes += c.In.Bytes
		out.Out.Packets += c.Out.Packets
		out.Out.Bytes += c.Out.Bytes
		out.Opened += c.Opened
	}
	return out
}

// ClearBackend clears the counters of a slot for the next backend.
func (t *Tables) ClearBackend(slot uint16) {
	for i := int(slot); i < len(t.BackendCounts); i += bpf.MaxBackends {
		t.BackendCounts[i] = bpf.BackendCount{}
	}
}

// Opened sums the packets whose tunnel was taken off, by kind of tunnel. Bytes are those of frames, tunnel included.
func (t *Tables) Opened() (ipip, gue bpf.Count) {
	for kind, sum := range map[uint32]*bpf.Count{bpf.DecapIpip: &ipip, bpf.DecapGue: &gue} {
		var perCPU []bpf.Count
		if err := t.Maps[bpf.MapTunnelCounts].Lookup(kind, &perCPU); err != nil {
			continue
		}
		for _, c := range perCPU {
			sum.Packets += c.Packets
			sum.Bytes += c.Bytes
		}
	}
	return ipip, gue
}

// Evictions sums them over the CPUs.
func (t *Tables) Evictions() (evicted, displaced uint64) {
	var perCPU []bpf.EvictionCount
	if err := t.Maps[bpf.MapEvictionCounts].Lookup(uint32(0), &perCPU); err != nil {
		return 0, 0
	}
	for _, c := range perCPU {
		evicted += c.Evicted
		displaced += c.Displaced
	}
	return evicted, displaced
}

// FragmentEvictions sums the evictions of fragment entries over the CPUs, by enum fragment_rank of frag.h.
func (t *Tables) FragmentEvictions() (sums [bpf.Ranks]uint64) {
	for rank := range sums {
		var perCPU []uint64
		if err := t.Maps[bpf.MapFragmentEvictions].Lookup(uint32(rank), &perCPU); err != nil {
			continue
		}
		for _, c := range perCPU {
			sums[rank] += c
		}
	}
	return sums
}

// CPUs are those that the machine may have: the kernel's possible ones.
func (t *Tables) CPUs() int {
	return len(t.BackendCounts) / bpf.MaxBackends
}
