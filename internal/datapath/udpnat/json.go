package udpnat

import (
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// JSON returns the state in the form that status and commands show. Times are numbers with their unit in the key, as everywhere
// in Weir.
func (s *Stats) JSON() v1.NATStats {
	form := v1.NATStats{
		Generation: s.Generation, Entries: s.Entries, Proven: s.Proven, MaxEntries: s.MaxEntries, Reverse: s.Reverse,
		Counters: v1.NATCounters(s.Counters), Reasons: s.Reasons, Faults: s.Faults.json(), Listeners: s.Listeners,
	}
	if s.Offload != nil {
		offload := v1.NATOffload(*s.Offload)
		form.Offload = &offload
	}
	if s.Backends != nil {
		form.Backends = make([]v1.NATBackend, len(s.Backends))
	}
	for i := range s.Backends {
		form.Backends[i] = s.Backends[i].json()
	}
	return form
}

func (b *Backend) json() v1.NATBackend {
	form := v1.NATBackend{
		Service: b.Service, Name: b.Name, Addr: b.Addr, State: b.State.String(), Override: b.Override.String(), Entries: b.Entries,
		Silent: b.Silent.Seconds(),
	}
	if b.LastReply >= 0 {
		ago := b.LastReply.Seconds()
		form.LastReply = &ago
	}
	return form
}

func (f *Faults) json() v1.NATFaults {
	return v1.NATFaults{
		Seed: f.Seed, LossForward: f.LossForward, LossBackward: f.LossBackward, SizeLimit: f.SizeLimit, SizePercent: f.SizePercent,
		TruncateLimit: f.TruncateLimit, TruncatePercent: f.TruncatePercent,
		ReorderPercent: f.ReorderPercent, ReorderDelay: millis(f.ReorderDelay), ReorderJitter: millis(f.ReorderJitter),
	}
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Flows calls yield with up to [v1.MaxFlows] NAT entries in their public form, until it returns false. When they expire is in
// the snapshot.
func (d *Datapath) Flows(snapshot *lb.Snapshot, yield func(v1.Flow) bool) {
	for _, e := range d.Entries(v1.MaxFlows) {
		flow := v1.Flow{
			Protocol: "udp", Client: e.Client.String(), VIP: e.VIP.String(),
			Service: e.Backend.Service, Backend: e.Backend.Backend, Expires: -1,
		}
		if service := snapshot.Service(flow.Service); service != nil && service.Timeouts.UDP != lb.Never {
			flow.Expires = max(0, service.Timeouts.UDP-e.Idle).Seconds()
		}
		if !yield(flow) {
			return
		}
	}
}
