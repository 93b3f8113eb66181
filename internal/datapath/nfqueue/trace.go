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
	// traceRoom is how many packets may wait for the reader of a trace. Further packets are not recorded, only counted as
	// missed.
	traceRoom = 4096
)

// TraceFilter selects the packets of a trace.
type TraceFilter struct {
	Service string       // "": every service, and packets of no service
	Reasons []lb.Reason  // none: every reason
	Prefix  netip.Prefix // of the source; invalid: any
	Both    bool         // Prefix may also match the destination
}

// Traced is one packet and its decision. A held fragment appears twice: when it is held, and when it is decided. It does not
// appear a second time if it expires.
type Traced struct {
	Time             time.Time
	Queue            uint16
	Interface        uint32 // index of the one it came in on, in the queue's namespace; 0: none
	Reason           lb.Reason
	Service, Backend string   // "": none
	Mark             uint32   // 0: none is set
	Flow             flow.Key // Proto 0: no flow could be read; ICMP errors: the flow they quote
	New              bool     // the packet created a flow entry
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
	epoch    time.Time // the wall time at which Config.Now was 0
	events   chan Traced
	missed   atomic.Uint64
}

// Trace begins a trace of the packets that workers read from now on. Errors: ErrTraced, or a service that does not exist.
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

// Events returns the channel of packets, in the order of each worker. The channel is never closed.
func (t *Trace) Events() <-chan Traced { return t.events }

// Missed returns how many packets were not recorded because Events was read too slowly.
func (t *Trace) Missed() uint64 { return t.missed.Load() }

// Close ends the trace, so that another may begin. A second call has no effect.
func (t *Trace) Close() { t.datapath.trace.CompareAndSwap(t, nil) }

// show passes a decision to the open trace if the filter selects it. It never blocks.
func (w *worker) show(p *Packet, key *flow.Key, d *steer.Decision) {
	t := w.trace
	if t == nil || !t.wants(key, d) {
		return
	}
	if len(t.events) == cap(t.events) { // avoids the copy
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
