package nfqueue

import (
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/steer"
)

// ErrTraced is what Datapath.Trace wraps while another trace is open.
var ErrTraced = errors.New("one trace at a time: another has the queues of this weir")

const (
	// TraceBytes is how much of a packet's head a trace keeps.
	TraceBytes = 192
	// traceRoom is how many packets may wait for the reader of a trace; more are missed, and counted.
	traceRoom = 4096
)

// TraceFilter says which packets a trace wants.
type TraceFilter struct {
	Service string       // "": any, and none
	Reasons []lb.Reason  // none: every reason
	Prefix  netip.Prefix // of the source; invalid: any
	Both    bool         // Prefix may be the destination's too
}

// Traced is one packet and what became of it. A held fragment comes twice: when it is held, and when it is decided; not
// when it is given up.
type Traced struct {
	Time             time.Time
	Queue            uint16
	Interface        uint32 // index of the one it came in on, in the queue's namespace; 0: none
	Reason           lb.Reason
	Service, Backend string   // "": none
	Mark             uint32   // 0: none is set
	Flow             flow.Key // Proto 0: no flow could be read; ICMP errors: the flow they quote
	New              bool     // made an entry
	Length           int      // from the IP header on
	Captured         int
	Head             [TraceBytes]byte // Captured bytes from the IP header on
}

// Trace is an open trace. It must be closed.
type Trace struct {
	datapath *Datapath
	service  string
	reasons  uint64 // bits by lb.Reason
	prefix   netip.Prefix
	both     bool
	epoch    time.Time // when Config.Now was 0
	events   chan Traced
	missed   atomic.Uint64
}

// Trace begins a trace: packets that workers read from now on. Errors: ErrTraced, a service that there is not.
func (d *Datapath) Trace(filter TraceFilter) (*Trace, error) {
	t := &Trace{
		datapath: d, service: filter.Service, prefix: filter.Prefix.Masked(), both: filter.Both,
		epoch: time.Now().Add(-d.config.Now()), events: make(chan Traced, traceRoom),
	}
	for _, reason := range filter.Reasons {
		t.reasons |= 1 << reason
	}
	if len(filter.Reasons) == 0 {
		t.reasons = ^uint64(0)
	}
	d.mu.Lock()
	snapshot := d.snapshot
	d.mu.Unlock()
	if filter.Service != "" && (snapshot == nil || snapshot.Service(filter.Service) == nil) {
		return nil, fmt.Errorf("no service %q; weir lb show lists them", filter.Service)
	}
	if !d.trace.CompareAndSwap(nil, t) {
		return nil, ErrTraced
	}
	return t, nil
}

// Events are the packets, in the order of each worker. The channel is never closed.
func (t *Trace) Events() <-chan Traced { return t.events }

// Missed counts packets that found no room because Events were taken too slowly.
func (t *Trace) Missed() uint64 { return t.missed.Load() }

// Close ends the trace: another may begin. Called twice it does nothing.
func (t *Trace) Close() { t.datapath.trace.CompareAndSwap(t, nil) }

// show offers a decision to the trace, if there is one and it wants it. It never waits.
func (w *worker) show(p *Packet, key *flow.Key, d *steer.Decision) {
	t := w.trace
	if t == nil || !t.wants(key, d) {
		return
	}
	if len(t.events) == cap(t.events) { // spares the copy
		t.missed.Add(1)
		return
	}
	e := Traced{
		Time: t.epoch.Add(w.now()), Queue: w.number, Interface: p.Interface, Reason: d.Reason, Mark: d.Mark, Flow: *key,
		New: d.New, Length: p.Length,
	}
	if d.Service != nil {
		e.Service = d.Service.Name
	}
	if d.Backend != nil {
		e.Backend = d.Backend.Name
	}
	e.Captured = copy(e.Head[:], p.Data)
	select {
	case t.events <- e:
	default:
		t.missed.Add(1)
	}
}

func (t *Trace) wants(key *flow.Key, d *steer.Decision) bool {
	switch {
	case t.reasons&(1<<d.Reason) == 0:
		return false
	case t.service != "" && (d.Service == nil || d.Service.Name != t.service):
		return false
	case !t.prefix.IsValid():
		return true
	case key.Proto == 0:
		return false
	}
	return t.prefix.Contains(key.Source().Addr()) || t.both && t.prefix.Contains(key.Destination().Addr())
}
