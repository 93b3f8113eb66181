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

// BackendState is the state of a backend according to the passive watch.
type BackendState uint32

const (
	Active  BackendState = iota // it answers, or nothing was sent to it
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

// destination is one address of a backend, shared by all workers. The counters are atomic, but workers that update them at
// the same time may be off by one datagram; this is exact enough for the watch.
type destination struct {
	addr         netip.AddrPort
	target       lb.Target
	everAnswered *atomic.Bool // a destination of the service has answered once; shared by its destinations

	usage      atomic.Int64 // entries bound to it
	state      atomic.Uint32
	unanswered atomic.Int64 // datagrams since the last reply
	since      atomic.Int64 // when the first of them was sent
	missed     atomic.Int64 // those of them whose flows had answers before
	missedFrom atomic.Int64 // when the first of those was sent
	refused    atomic.Int64 // ICMP refusals, and sends the kernel refused, since the last reply
	lastReply  atomic.Int64 // 0: none yet
	changed    atomic.Int64 // when state changed

	offloaded offloaded // guarded by offload.mu
}

func (d *destination) is(s BackendState) bool { return BackendState(d.state.Load()) == s }

// forwarded counts a datagram that was sent to the destination. known reports that its flow had an answer before; only such
// a flow can miss one. A missing answer to a stranger's invalid datagrams proves nothing, since no server answers these.
func (d *destination) forwarded(now time.Duration, known bool) {
	if d.unanswered.Add(1) == 1 {
		d.since.Store(int64(now))
	}
	if known && d.missed.Add(1) == 1 {
		d.missedFrom.Store(int64(now))
	}
}

// unansweredInKernel counts datagrams of known flows that the kernel sent to the destination since the last time, without an
// answer.
func (d *destination) unansweredInKernel(now time.Duration, n int64) {
	if d.unanswered.Add(n) == n {
		d.since.Store(int64(now))
	}
	if d.missed.Add(n) == n {
		d.missedFrom.Store(int64(now))
	}
}

// unreachable counts a datagram that the kernel refused to send there, as if the network had refused it. Errors that are
// about this machine or the datagram (no free port, too long) do not count.
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

// forgive resets the counters of unanswered datagrams.
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
	if !d.everAnswered.Load() {
		d.everAnswered.Store(true)
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

// claim makes the caller's new flow the one that tries a probing destination. It returns false if another flow tries it
// already.
func (d *destination) claim(now time.Duration) bool {
	if !d.state.CompareAndSwap(uint32(Probing), uint32(Pending)) {
		return false
	}
	d.forgive()
	d.changed.Store(int64(now))
	return true
}

// watch holds the destinations of the snapshot in force and decides their states.
type watch struct {
	timeout time.Duration // Config.BackendTimeout
	limit   int64
	after   time.Duration

	mu           sync.Mutex
	all          map[destinationKey]*destination
	everAnswered map[string]*atomic.Bool        // by service
	list         atomic.Pointer[[]*destination] // the destinations again, for reading without the lock
	// probing reports that a destination may be in state Probing, so that new flows look for it.
	probing atomic.Bool
	mute    map[string]time.Duration // services of which no destination answers, or did at that time; for check alone
}

type destinationKey struct {
	target lb.Target
	addr   netip.AddrPort
}

// get returns the destination of a backend's address, and makes it on first use.
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
	if w.everAnswered[k.target.Service] == nil {
		w.everAnswered[k.target.Service] = &atomic.Bool{}
	}
	w.all[k] = &destination{addr: k.addr, target: k.target, everAnswered: w.everAnswered[k.target.Service]}
}

// know makes the destinations of a snapshot, also those without traffic, because the watch must know which others could
// answer.
func (w *watch) know(v *view) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for at, backends := range v.byAddr {
		for _, b := range backends {
			k := destinationKey{lb.Target{Service: at.service, Backend: b.Name}, at.addr}
			if w.all[k] == nil {
				w.addLocked(k)
			}
		}
	}
	w.publishLocked()
}

// retain removes the destinations for which keep returns false.
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
	maps.DeleteFunc(w.everAnswered, func(service string, _ *atomic.Bool) bool { return !used[service] })
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

// claimProbe returns a destination of the service that the caller's new flow must try, or nil.
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

// refuses reports whether the network or the destination's host says that it is not there.
func (w *watch) refuses(d *destination) bool { return w.limit > 0 && d.refused.Load() >= w.limit }

// silent reports whether a destination that should answer does not.
func (w *watch) silent(d *destination, now time.Duration) bool {
	if w.refuses(d) {
		return true
	}
	if w.limit > 0 && d.missed.Load() >= w.limit && now-time.Duration(d.missedFrom.Load()) >= w.after {
		return true
	}
	// For a service that never answers, silence proves nothing.
	return d.everAnswered.Load() && d.unanswered.Load() > 0 && now-time.Duration(d.since.Load()) >= w.timeout
}

// check updates the state of every destination for now and returns those that became stale. use reports how the snapshot
// uses a destination: whether it receives datagrams at all, and whether it takes new flows.
//
// Silence counts only while another destination of the service answers: if all of them are silent (the network is cut, or clients
// send what no server can answer), moving every flow to one of them would only break sessions and overload it. The first one that
// answers again gives the others Config.UnansweredAfter to answer as well.
func (w *watch) check(now time.Duration, use func(*destination) (live, takesNew bool)) []*destination {
	if w.timeout < 0 {
		return nil
	}
	others := w.others(now, use)
	var fallen []*destination
	probing := false
	for _, d := range w.destinations() {
		age := now - time.Duration(d.changed.Load())
		switch BackendState(d.state.Load()) {
		case Active:
			if live, _ := use(d); live && w.silent(d, now) && others.replace(d, w.refuses(d)) {
				others.fall(d.target)
				d.set(Stale, now)
				fallen = append(fallen, d)
			}
		case Stale:
			if age >= w.timeout {
				w.probing.Store(true) // before the state, so that a flow that sees the state also looks for it
				d.set(Probing, now)
				probing = true
			}
		case Probing:
			probing = true
		case Pending:
			// One flow tries the destination, and must not wait long.
			waited := d.unanswered.Load() > 0 && w.limit > 0 && now-time.Duration(d.since.Load()) >= w.after
			if waited || w.silent(d, now) || age >= w.timeout {
				d.set(Stale, now)
			}
		}
	}
	w.probing.Store(probing)
	return fallen
}

// replacements are the backends that take new flows, for check.
type replacements struct {
	active map[lb.Target]bool // all its addresses are: a backend is taken out as a whole
	mute   map[string]bool    // services of which no active backend answers, or none did until a moment ago
}

// others returns who could replace a silent destination at now.
func (w *watch) others(now time.Duration, use func(*destination) (live, takesNew bool)) replacements {
	r := replacements{active: map[lb.Target]bool{}, mute: map[string]bool{}}
	answers := map[string]bool{} // by service
	for _, d := range w.destinations() {
		if _, takesNew := use(d); !takesNew {
			continue
		}
		before, known := r.active[d.target]
		r.active[d.target] = d.is(Active) && (before || !known)
		service := d.target.Service
		// What will be silent in a moment is silent: the first datagrams of a common silence are not sent at the same time.
		answers[service] = answers[service] || d.is(Active) && !w.silent(d, now+w.after)
	}
	mute := map[string]time.Duration{}
	for service, some := range answers {
		since, was := w.mute[service]
		if !some {
			since, was = now, true
		}
		if r.mute[service] = was && now-since < w.after || !some; r.mute[service] {
			mute[service] = since
		}
	}
	w.mute = mute
	return r
}

// replace reports whether another backend could take the flows of d. refuses: d is not only silent.
func (r replacements) replace(d *destination, refuses bool) bool {
	if r.mute[d.target.Service] && !refuses {
		return false
	}
	for other, active := range r.active {
		if active && other.Service == d.target.Service && other != d.target {
			return true
		}
	}
	return false
}

func (r replacements) fall(t lb.Target) {
	if _, takesNew := r.active[t]; takesNew {
		r.active[t] = false
	}
}
