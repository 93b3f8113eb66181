package udpnat

import (
	"errors"
	"maps"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/steering/lb"
)

// BackendState is what the passive watch thinks of a backend.
type BackendState uint32

const (
	Active  BackendState = iota // answers, or has not been asked
	Stale                       // silent: gets nothing
	Probing                     // silent for long: the next new flow tries it
	Pending                     // a new flow is trying it
)

func (s BackendState) String() string {
	switch s {
	case Active:
		return "active"
	case Stale:
		return "stale"
	case Probing:
		return "probing"
	case Pending:
		return "pending"
	}
	return "unknown"
}

// MarshalText writes the name, for JSON.
func (s BackendState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// destination is one address of a backend, shared by all workers. The counters are atomic and may be a datagram off
// where workers meet; the watch needs no better.
type destination struct {
	addr   netip.AddrPort
	target lb.Target
	heard  *atomic.Bool // somebody of the service has answered something; shared by its destinations

	usage      atomic.Int64 // entries bound to it
	state      atomic.Uint32
	unanswered atomic.Int64 // datagrams since the last reply
	since      atomic.Int64 // when the first of them left
	missed     atomic.Int64 // of them, those of flows that had answers before
	missedFrom atomic.Int64 // when the first of those left
	refused    atomic.Int64 // ICMP refusals, and sends the kernel refused, since the last reply
	lastReply  atomic.Int64 // 0: none yet
	changed    atomic.Int64 // when state changed
}

func (d *destination) is(s BackendState) bool { return BackendState(d.state.Load()) == s }

// forwarded counts a datagram to it. known says that its flow had an answer before: only such a flow can miss one. A
// stranger's junk, which no server answers, proves nothing.
func (d *destination) forwarded(now time.Duration, known bool) {
	if d.unanswered.Add(1) == 1 {
		d.since.Store(int64(now))
	}
	if known && d.missed.Add(1) == 1 {
		d.missedFrom.Store(int64(now))
	}
}

// unreachable counts a datagram that the kernel would not send there: as good as a refusal from the network. What says
// more about this machine or the datagram (no port left, too long) does not count.
func (d *destination) unreachable(err error) {
	for _, errno := range []unix.Errno{
		unix.ENETUNREACH, unix.EHOSTUNREACH, unix.ENETDOWN, unix.EHOSTDOWN, unix.EACCES, unix.EPERM, unix.EINVAL,
	} {
		if errors.Is(err, errno) {
			d.refused.Add(1)
			return
		}
	}
}

// forgive forgets what was not answered.
func (d *destination) forgive() {
	for _, counter := range []*atomic.Int64{&d.unanswered, &d.missed, &d.refused} {
		if counter.Load() != 0 {
			counter.Store(0)
		}
	}
}

// replied reports whether the reply revives the destination.
func (d *destination) replied(now time.Duration) bool {
	d.lastReply.Store(int64(now))
	if !d.heard.Load() {
		d.heard.Store(true)
	}
	d.forgive()
	if d.is(Active) {
		return false
	}
	d.set(Active, now)
	return true
}

func (d *destination) set(s BackendState, now time.Duration) {
	d.state.Store(uint32(s))
	d.changed.Store(int64(now))
}

// claim makes the caller's new flow the one that tries a probing destination.
func (d *destination) claim(now time.Duration) bool {
	if !d.state.CompareAndSwap(uint32(Probing), uint32(Pending)) {
		return false
	}
	d.forgive()
	d.changed.Store(int64(now))
	return true
}

// watch holds the destinations of the snapshot in force and judges them.
type watch struct {
	timeout time.Duration // Config.BackendTimeout
	limit   int64
	after   time.Duration

	mu    sync.Mutex
	all   map[destinationKey]*destination
	heard map[string]*atomic.Bool        // by service
	list  atomic.Pointer[[]*destination] // the same, for reading without lock
	// probing says that some destination may be, so that new flows look.
	probing atomic.Bool
}

type destinationKey struct {
	target lb.Target
	addr   netip.AddrPort
}

// get returns the destination of a backend's address, making it on first use.
func (w *watch) get(target lb.Target, addr netip.AddrPort) *destination {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := destinationKey{target, addr}
	if w.all[k] == nil {
		w.addLocked(k)
		w.publishLocked()
	}
	return w.all[k]
}

func (w *watch) addLocked(k destinationKey) {
	if w.heard[k.target.Service] == nil {
		w.heard[k.target.Service] = &atomic.Bool{}
	}
	w.all[k] = &destination{addr: k.addr, target: k.target, heard: w.heard[k.target.Service]}
}

// know makes the destinations of a snapshot, asked or not: the watch must know who else could answer.
func (w *watch) know(v *view) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for at, b := range v.byAddr {
		k := destinationKey{lb.Target{Service: at.service, Backend: b.Name}, at.addr}
		if w.all[k] == nil {
			w.addLocked(k)
		}
	}
	w.publishLocked()
}

// retain forgets the destinations for which keep is false.
func (w *watch) retain(keep func(*destination) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for k, d := range w.all {
		if !keep(d) {
			delete(w.all, k)
		}
	}
	used := map[string]bool{}
	for k := range w.all {
		used[k.target.Service] = true
	}
	maps.DeleteFunc(w.heard, func(service string, _ *atomic.Bool) bool { return !used[service] })
	w.publishLocked()
}

func (w *watch) publishLocked() {
	list := make([]*destination, 0, len(w.all))
	for _, d := range w.all {
		list = append(list, d)
	}
	w.list.Store(&list)
}

func (w *watch) destinations() []*destination {
	if list := w.list.Load(); list != nil {
		return *list
	}
	return nil
}

// claimProbe returns a destination of the service that wants a new flow to try it, or nil.
func (w *watch) claimProbe(v *view, service string, now time.Duration) *destination {
	if !w.probing.Load() {
		return nil
	}
	for _, d := range w.destinations() {
		if d.target.Service == service && d.is(Probing) && v.serving(d) != nil && d.claim(now) {
			return d
		}
	}
	return nil
}

// silent is the judgement on one destination that should answer.
func (w *watch) silent(d *destination, now time.Duration) bool {
	if w.limit > 0 && d.refused.Load() >= w.limit {
		return true
	}
	if w.limit > 0 && d.missed.Load() >= w.limit && now-time.Duration(d.missedFrom.Load()) >= w.after {
		return true
	}
	// Of a service that never answers, silence says nothing.
	return d.heard.Load() && d.unanswered.Load() > 0 && now-time.Duration(d.since.Load()) >= w.timeout
}

// check moves every destination to the state that now asks for and returns those that became stale. use says what the
// snapshot makes of one: whether it gets datagrams at all, and whether it takes new flows.
func (w *watch) check(now time.Duration, use func(*destination) (live, takesNew bool)) []*destination {
	if w.timeout < 0 {
		return nil
	}
	// A backend of two addresses is active if both are: it is taken out as a whole.
	answering := map[lb.Target]bool{}
	for _, d := range w.destinations() {
		if _, takesNew := use(d); takesNew {
			before, known := answering[d.target]
			answering[d.target] = d.is(Active) && (before || !known)
		}
	}
	othersThan := func(t lb.Target) (n int) {
		for other, active := range answering {
			if active && other.Service == t.Service && other != t {
				n++
			}
		}
		return n
	}
	var fallen []*destination
	probing := false
	for _, d := range w.destinations() {
		age := now - time.Duration(d.changed.Load())
		switch BackendState(d.state.Load()) {
		case Active:
			if live, _ := use(d); live && w.silent(d, now) && othersThan(d.target) > 0 {
				answering[d.target] = false
				d.set(Stale, now)
				fallen = append(fallen, d)
			}
		case Stale:
			if age >= w.timeout {
				w.probing.Store(true) // first: whoever sees the state shall find that flows look for it
				d.set(Probing, now)
				probing = true
			}
		case Probing:
			probing = true
		case Pending:
			// One flow is trying it; that flow must not wait long.
			waited := d.unanswered.Load() > 0 && w.limit > 0 && now-time.Duration(d.since.Load()) >= w.after
			if waited || w.silent(d, now) || age >= w.timeout {
				d.set(Stale, now)
			}
		}
	}
	w.probing.Store(probing)
	return fallen
}
