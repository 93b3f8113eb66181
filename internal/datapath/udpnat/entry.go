package udpnat

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/udpio"
)

// entry is one NAT entry: a flow and its outgoing socket.
type entry struct {
	key      flow.Key
	client   netip.AddrPort
	local    netip.Addr // what the client addressed; replies leave from it
	listener *listener
	socket   udpio.Socket
	dest     *destination
	service  string
	idle     time.Duration // time-out of the service
	last     time.Duration // last datagram either way, touchStep coarse
	token    uint64        // index in slots, generation << 32
	// pinned: the entry tries a probing destination, against what steering says.
	pinned bool
	// answered: a backend answered this flow once. missed datagrams, the first at missedFrom, had no answer since.
	answered   bool
	missed     int32
	moves      int32 // in search of a backend that answers
	missedFrom time.Duration
	prev, next *entry // by last, oldest first
}

const (
	// touchStep is how coarse an entry's idle time is kept, so that busy entries seldom move in the list.
	touchStep = 100 * time.Millisecond
	// reclaimIdle is how long an entry must be silent before it gives way to a new one.
	reclaimIdle = time.Second
)

// entries is the table of one worker.
type entries struct {
	byKey map[flow.Key]*entry
	slots []*entry
	gens  []uint32
	free  []uint32
	head  entry // of the ring: head.next is the oldest
}

func (t *entries) init() {
	t.byKey = map[flow.Key]*entry{}
	t.head.prev, t.head.next = &t.head, &t.head
}

// byToken returns the entry of an epoll event; nil if it is gone by now.
func (t *entries) byToken(token uint64) *entry {
	slot := uint32(token)
	if int(slot) >= len(t.slots) || t.gens[slot] != uint32(token>>32) {
		return nil
	}
	return t.slots[slot]
}

func (t *entries) insert(e *entry) {
	var slot uint32
	if n := len(t.free); n > 0 {
		slot, t.free = t.free[n-1], t.free[:n-1]
	} else {
		slot = uint32(len(t.slots))
		t.slots = append(t.slots, nil)
		t.gens = append(t.gens, 0)
	}
	e.token = uint64(slot) | uint64(t.gens[slot])<<32
	t.slots[slot] = e
	t.byKey[e.key] = e
	t.append(e)
}

func (t *entries) remove(e *entry) {
	slot := uint32(e.token)
	t.slots[slot] = nil
	t.gens[slot] = (t.gens[slot] + 1) % (1 << 30) // stays below listenerToken
	t.free = append(t.free, slot)
	delete(t.byKey, e.key)
	t.unlink(e)
}

func (t *entries) append(e *entry) {
	last := t.head.prev
	e.prev, e.next = last, &t.head
	last.next, t.head.prev = e, e
}

func (t *entries) unlink(e *entry) {
	e.prev.next, e.next.prev = e.next, e.prev
	e.prev, e.next = nil, nil
}

// touch notes that a datagram passed, and says whether it is a while since the last one.
func (t *entries) touch(e *entry, now time.Duration) bool {
	if now-e.last < touchStep {
		return false
	}
	e.last = now
	t.unlink(e)
	t.append(e)
	return true
}

// oldest returns the entry that was idle longest, nil if there is none.
func (t *entries) oldest() *entry {
	if t.head.next == &t.head {
		return nil
	}
	return t.head.next
}

// open makes the entry of a new flow towards dest. Nil: there was no room, or no socket, and it was counted.
func (w *worker) open(l *listener, client netip.AddrPort, local netip.Addr, key flow.Key, service *lb.Service, dest *destination, now time.Duration) *entry {
	// Taken before it is used: two workers that both saw room must not both take the last place.
	if w.dp.entries.Add(1) > w.dp.limit.Load() {
		w.dp.entries.Add(-1)
		w.counters.EntriesFull++
		w.engine.Count(lb.ReasonFlowTableFull, service)
		w.drop(key)
		return nil
	}
	socket, err := w.dial(dest.addr, now)
	if err != nil {
		w.dp.entries.Add(-1)
		w.counters.SendErrors++
		dest.unreachable(err)
		w.engine.Count(lb.ReasonSendFailed, service)
		w.drop(key)
		return nil
	}
	e := &entry{
		key: key, client: client, local: local, listener: l, socket: socket, dest: dest,
		service: service.Name, idle: service.Timeouts.UDP, last: now,
	}
	w.table.insert(e)
	dest.usage.Add(1)
	w.counters.Opened++
	if err := w.poller.Add(&e.socket, e.token); err != nil {
		w.counters.Exhausted++
		w.close(e)
		return nil
	}
	return e
}

// drop forgets what steering knows of a flow that has no entry after all.
func (w *worker) drop(key flow.Key) { w.engine.Forget(key) }

// dial opens an outgoing socket; out of descriptors or ports it tries again in the place of the oldest idle entry.
func (w *worker) dial(to netip.AddrPort, now time.Duration) (udpio.Socket, error) {
	socket, err := udpio.Dial(to, w.connected)
	if err == nil || !isExhaustion(err) {
		return socket, err
	}
	w.counters.Exhausted++
	if !w.reclaim(now) {
		return socket, err
	}
	return udpio.Dial(to, w.connected)
}

// reclaim closes the oldest entry if it was idle for a while.
func (w *worker) reclaim(now time.Duration) bool {
	e := w.table.oldest()
	if e == nil || now-e.last < reclaimIdle {
		return false
	}
	w.counters.Reclaimed++
	w.close(e)
	return true
}

func isExhaustion(err error) bool {
	for _, errno := range []unix.Errno{unix.EMFILE, unix.ENFILE, unix.EAGAIN, unix.EADDRINUSE, unix.EADDRNOTAVAIL, unix.ENOBUFS, unix.ENOMEM} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// close removes an entry with its socket and its flow.
func (w *worker) close(e *entry) {
	w.drop(e.key)
	w.table.remove(e)
	e.socket.Close()
	e.dest.usage.Add(-1)
	w.dp.entries.Add(-1)
}

// retarget binds an entry to another destination; its outgoing port stays where the family allows.
func (w *worker) retarget(e *entry, dest *destination) error {
	if !e.socket.Reaches(dest.addr) {
		if err := w.redial(e, dest.addr); err != nil {
			return err
		}
	} else if e.socket.Connected() {
		if err := e.socket.Retarget(dest.addr, true); err != nil {
			return err
		}
	}
	e.dest.usage.Add(-1)
	dest.usage.Add(1)
	e.dest = dest
	return nil
}

// moveUnheard takes a flow that nobody ever answered to another backend, once it missed enough: there is no session to
// lose, and its backend may be dead though others say nothing about it yet.
func (w *worker) moveUnheard(e *entry, now time.Duration) {
	watch := &w.dp.watch
	if watch.timeout < 0 || watch.limit <= 0 || int64(e.missed) < watch.limit || now-e.missedFrom < watch.after {
		return
	}
	e.missed = 0
	service := w.engine.Snapshot().Service(e.service)
	if service == nil || int(e.moves) >= 2*len(service.Backends) {
		return // nobody answers this one: it may be all one-way
	}
	e.moves++
	const tries = 64 // by chance, it may fall on the same one again
	for range tries {
		if b := service.Select(rand.Uint64()); b != nil && w.addressOf(b, e) != e.dest.addr {
			w.bind(e, b, now)
			return
		}
	}
}

// redial gives an entry a new socket, and so a new address in the eyes of the backends.
func (w *worker) redial(e *entry, to netip.AddrPort) error {
	socket, err := udpio.Dial(to, w.connected)
	if err != nil {
		w.counters.Exhausted++
		return err
	}
	if err := w.poller.Add(&socket, e.token); err != nil {
		socket.Close()
		return err
	}
	e.socket.Close()
	e.socket = socket
	return nil
}

// expire closes the entries whose idle time is over.
func (w *worker) expire(now time.Duration) {
	for e := w.table.head.next; e != &w.table.head; {
		next := e.next
		if now-e.last < w.shortestIdle {
			return
		}
		if now-e.last >= e.idle {
			w.counters.Expired++
			w.close(e)
		}
		e = next
	}
}
