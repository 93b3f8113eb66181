package udpnat

import (
	"cmp"
	"container/heap"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weir-lb/weir/internal/metrics"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/steer"
	"github.com/weir-lb/weir/internal/udpio"
)

// Clear drops the n oldest NAT entries, or with n < 0 all of them, and returns how many. The backends see a new address of
// each client from its next datagram on. After a full clear, steering also makes a new random choice for flows without CID.
func (d *Datapath) Clear(n int) int {
	cleared := 0
	d.do(func(w *worker) {
		w.flush()
		left := n - cleared
		cleared += w.closeWhere(func(*entry) bool { left--; return n < 0 || left >= 0 })
		if n < 0 {
			w.engine.Rebalance()
		}
	})
	return cleared
}

// Reassign gives every entry a new outgoing socket and chooses its backend again at random. It returns how many entries got
// both.
func (d *Datapath) Reassign() int {
	done := 0
	d.do(func(w *worker) {
		w.flush()
		now := d.config.Now()
		w.eachEntry(func(e *entry) {
			w.roll(e, now)
			if w.redial(e, e.dest.addr) == nil {
				done++
			}
		})
	})
	return done
}

// Rebalance makes stale backends active again and chooses the backend of every entry again at random. It returns how many
// entries moved, and how many there are. Call it after a snapshot without the overrides of the watch was applied.
func (d *Datapath) Rebalance() (moved, of int) {
	d.do(func(w *worker) {
		now := d.config.Now()
		w.eachEntry(func(e *entry) {
			of++
			if w.roll(e, now) {
				moved++
			}
		})
	})
	return moved, of
}

// Revive makes every stale backend active again in the watch. It changes no override.
func (d *Datapath) Revive() {
	now := d.config.Now()
	for _, dest := range d.watch.destinations() {
		dest.forgive()
		if !dest.is(Active) {
			dest.set(Active, now)
		}
	}
	d.revive(nil)
}

func (w *worker) eachEntry(f func(*entry)) {
	for e := w.table.head.next; e != &w.table.head; {
		next := e.next
		f(e)
		e = next
	}
}

// roll chooses an entry's backend at random, by weight, and reports whether it is another one.
func (w *worker) roll(e *entry, now time.Duration) bool {
	service := w.engine.Snapshot().Service(e.service)
	if service == nil {
		return false
	}
	b := service.Select(rand.Uint64())
	return b != nil && !b.Refuses() && w.bind(e, b, now)
}

// bind moves an entry and its flow to a backend and reports whether it is another one.
func (w *worker) bind(e *entry, b *lb.Backend, now time.Duration) bool {
	if !w.engine.Reassign(e.key, b, now) {
		return false
	}
	addr := w.addressOf(b, e)
	dest := w.dp.watch.get(lb.Target{Service: e.service, Backend: b.Name}, addr)
	e.pinned = false
	if dest == e.dest {
		return false
	}
	return w.retarget(e, dest) == nil
}

// addressOf returns the address of a backend for an entry's datagrams: one of the entry's address family if the backend has
// it.
func (w *worker) addressOf(b *lb.Backend, e *entry) netip.AddrPort {
	port := cmp.Or(b.Port, e.key.DstPort)
	is6 := e.local.Is6() && !e.local.Is4In6()
	a, ok := b.Address(is6)
	if !ok {
		a, _ = b.Address(!is6)
	}
	return netip.AddrPortFrom(a, port)
}

// SetReverse switches reverse address update. Existing entries follow at once.
func (d *Datapath) SetReverse(on bool) {
	d.do(func(w *worker) {
		d.reverse = on
		w.reverse = on
		w.connected = !on && !d.config.Unconnected
		w.eachEntry(func(e *entry) {
			w.withdraw(e, d.config.Now())
			if e.socket.Connected() != w.connected && e.socket.Retarget(e.dest.addr, w.connected) != nil {
				w.close(e)
			}
		})
	})
}

// SetFaults changes the faults and restarts the random generators from the seed.
func (d *Datapath) SetFaults(f Faults) error {
	if err := f.validate(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.offload.suspend(d.faults, f)
	defer d.offload.suspend(f)
	d.faults = f
	d.doLocked(func(w *worker) {
		before := w.faults
		w.faults = newFaultState(f, w.id)
		w.faults.held, w.faults.heldBytes, w.faults.heldCount = before.held, before.heldBytes, before.heldCount
	})
	return nil
}

// dropHeld drops the datagrams held for a listener that closes.
func (s *faultState) dropHeld(l *listener) {
	kept := s.held[:0]
	s.heldBytes = 0
	for _, d := range s.held {
		if d.listener != l {
			kept = append(kept, d)
			s.heldBytes += len(d.payload)
		}
	}
	clear(s.held[len(kept):])
	s.held = kept
	heap.Init(&s.held)
}

// Stats collects the state of all workers.
func (d *Datapath) Stats() Stats {
	s := Stats{
		MaxEntries: int(d.limit.Load()), Reasons: map[string]uint64{},
		Services: map[string]lb.ReasonCounts{}, Targets: map[lb.Target]steer.BackendCounters{},
	}
	d.mu.Lock()
	s.Reverse, s.Faults = d.reverse, d.faults
	d.countOffload(d.config.Now())
	d.doLocked(func(w *worker) {
		metrics.Add(&s.Counters, &w.counters)
		s.addSteering(w.engine)
	})
	d.offload.addTo(&s)
	s.pause = d.pause
	s.Counters.BackendTimeouts = d.fallen
	for at, group := range d.groups {
		s.Listeners = append(s.Listeners, boundTo(at, group))
		s.Counters.ReceiveOverflows += group.Overflowed()
	}
	d.mu.Unlock()
	v := d.view.Load()
	s.Generation = v.snapshot.Generation
	s.Entries, s.Proven = int(d.entries.Load()), int(d.proven.Load())
	for i, n := range s.total {
		if n > 0 {
			s.Reasons[lb.Reason(i).String()] = n
		}
	}
	s.Backends = d.backends(v)
	slices.SortFunc(s.Listeners, netip.AddrPort.Compare)
	return s
}

func boundTo(at netip.AddrPort, group *udpio.Group) netip.AddrPort {
	return netip.AddrPortFrom(at.Addr(), group.LocalAddr().Port())
}

// backends lists the backends of the snapshot, also those without traffic, and those that entries still use.
func (d *Datapath) backends(v *view) []Backend {
	now := d.config.Now()
	var all []Backend
	seen := map[destinationKey]bool{}
	for _, dest := range d.watch.destinations() {
		b := Backend{
			Target: dest.target, Service: dest.target.Service, Name: dest.target.Backend, Addr: dest.addr,
			State: BackendState(dest.state.Load()), Entries: dest.usage.Load(), LastReply: -1, Override: lb.Down,
		}
		if in := v.serving(dest); in != nil {
			b.Override = in.State
		} else if b.Entries == 0 {
			continue
		}
		if dest.unanswered.Load() > 0 {
			b.Silent = now - time.Duration(dest.since.Load())
		}
		if at := dest.lastReply.Load(); at != 0 {
			b.LastReply = now - time.Duration(at)
		}
		seen[destinationKey{dest.target, dest.addr}] = true
		all = append(all, b)
	}
	for k, backends := range v.byAddr {
		for _, in := range backends {
			t := lb.Target{Service: k.service, Backend: in.Name}
			if !seen[destinationKey{t, k.addr}] {
				all = append(all, Backend{Target: t, Service: k.service, Name: in.Name, Addr: k.addr, Override: in.State, LastReply: -1})
			}
		}
	}
	slices.SortFunc(all, func(a, b Backend) int {
		return cmp.Or(strings.Compare(a.Service, b.Service), strings.Compare(a.Name, b.Name), a.Addr.Compare(b.Addr))
	})
	return all
}

// entriesPerStep is how many slots of its table a worker visits between two batches for Entries; each entry costs a system
// call.
const entriesPerStep = 256

// Entries lists at most limit NAT entries, those longest idle first. Workers visit entriesPerStep slots of their tables at a
// time and serve their sockets in between. An entry that lives during the whole call is listed once, any other at most once.
func (d *Datapath) Entries(limit int) []Entry {
	var all []Entry
	step := make([]Entry, 0, entriesPerStep) // a worker must not wait while a large list grows
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.group.Steps(func(w *worker, from int) int {
		now := d.config.Now()
		defer func() { d.pause.Observe(d.config.Now() - now) }()
		end := min(from+entriesPerStep, w.table.tokens.Size())
		for i := from; i < end; i++ {
			e := w.table.tokens.Value(int32(i))
			if e == nil {
				continue
			}
			outgoing, _ := e.socket.LocalAddr()
			idle := now - e.last
			if e.kernel != 0 {
				idle = min(idle, d.offload.table.Idle(e.kernel))
			}
			step = append(step, Entry{
				Client: e.client, VIP: e.key.Destination(), Outgoing: outgoing, Backend: e.dest.target,
				Addr: e.dest.addr, Idle: idle, InKernel: e.kernel != 0,
			})
		}
		if end == w.table.tokens.Size() {
			return 0
		}
		return end
	}, func() {
		d.mu.Unlock() // so that Apply need not wait for the last step
		defer d.mu.Lock()
		all = append(all, step...)
		step = step[:0]
	})
	slices.SortStableFunc(all, func(a, b Entry) int { return cmp.Compare(b.Idle, a.Idle) })
	return all[:min(limit, len(all))]
}
