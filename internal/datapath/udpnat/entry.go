package udpnat

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/steering/evict"
	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/udpio"
	"github.com/weir-lb/weir/internal/workers"
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
	token    uint64        // of entries.tokens
	// pinned: the entry tries a probing destination, although steering chooses another one.
	pinned bool
	// answered: a backend has answered this flow once. missed datagrams, the first at missedFrom, have had no answer since
	// then.
	answered bool
	// proven: it was answered while at most 15/16 of all entries were proven; otherwise it is in order.
	proven     bool
	missed     int32
	moves      int32 // moves in search of a backend that answers
	missedFrom time.Duration

	// steered is offload.decisions by which steering decided about the entry's last datagram; 0: none.
	steered uint32
	// kernel is the entry's id in Config.Offload, 0: it is not there; entered the decisions by which it was entered or renewed, place the entry's index in
	// worker.inKernel. repliesOnly: user space forwards what the client sends.
	kernel      uint32
	entered     uint32
	place       int32
	repliesOnly bool
	offeredAt   time.Duration // when it was offered to the kernel last
	offerAfter  time.Duration // the kernel refused the entry, or its path fails

	prev, next *entry // by last, oldest first
}

// touchStep is the precision of an entry's idle time, so that busy entries rarely move in the list.
const touchStep = 100 * time.Millisecond

// entries is the table of one worker.
//
// Bound: Config.MaxEntries for all workers together. An entry is unproven until its backend answers. A worker without a free
// entry evicts one of its own unproven entries, as package evict says: the oldest of the client address (IPv6: /48) that
// holds most of them. Proven entries are never evicted for a new flow, and at most 15/16 of all entries are proven: an entry
// that is answered beyond that stays evictable, and each reply makes it the newest of its source. A worker that has nothing
// to evict while others have may exceed the bound by one entry, if no more entries exceed it than there are workers; the
// others evict for it in their next iteration. Counters: Evicted; EntriesFull if there was nothing to evict.
type entries struct {
	byKey  map[flow.Key]*entry
	tokens workers.Tokens[*entry]
	head   entry // head of the ring: head.next is the oldest entry
	order  evict.Order[evict.Source]
}

func (t *entries) init() {
	t.byKey = map[flow.Key]*entry{}
	t.head.prev, t.head.next = &t.head, &t.head
}

func (t *entries) insert(e *entry) {
	e.token = t.tokens.Add(e)
	t.byKey[e.key] = e
	t.order.Add(e.number(), evict.SourceOf16(e.key.Src))
	t.append(e)
}

func (t *entries) remove(e *entry) {
	t.tokens.Remove(e.token)
	t.order.Remove(e.number())
	delete(t.byKey, e.key)
	t.unlink(e)
}

func (e *entry) number() int32 { return workers.Number(e.token) }

func (t *entries) append(e *entry) {
	last := t.head.prev
	e.prev, e.next = last, &t.head
	last.next, t.head.prev = e, e
}

func (t *entries) unlink(e *entry) {
	e.prev.next, e.next.prev = e.next, e.prev
	e.prev, e.next = nil, nil
}

// touch records that a datagram passed, and reports whether the last one was at least touchStep ago.
func (t *entries) touch(e *entry, now time.Duration) bool {
	if now-e.last < touchStep {
		return false
	}
	e.last = now
	t.unlink(e)
	t.append(e)
	return true
}

// open makes the entry of a new flow towards dest. It returns nil if there was no room or no socket, and counts that.
func (w *worker) open(l *listener, client netip.AddrPort, local netip.Addr, key flow.Key, service *lb.Service, dest *destination, byCID bool, now time.Duration) *entry {
	if !w.admit(now) && !(byCID && w.displace(service.Name)) {
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

// drop removes the state that steering has of a flow that gets no entry.
func (w *worker) drop(key flow.Key) { w.engine.Forget(key) }

// admit reserves room for a new entry, if necessary by evicting an unproven one.
func (w *worker) admit(now time.Duration) bool {
	d := w.dp
	// Count first, then compare: two workers that both see room must not both take the last entry.
	beyond := d.entries.Add(1) - d.limit.Load()
	if beyond <= 0 {
		return true
	}
	w.expireForRoom(now)
	if d.entries.Load() <= d.limit.Load() || w.evict() {
		return true
	}
	if beyond <= int64(len(d.workers)) && d.entries.Load()-1 > d.proven.Load() {
		w.beyond = true
		for _, other := range d.workers {
			if other != w {
				other.poller.Wake()
			}
		}
		return true
	}
	d.entries.Add(-1)
	return false
}

// mayAdmit reports whether admit would find room.
func (w *worker) mayAdmit(now time.Duration) bool {
	if !w.dp.full() || w.table.order.Len() > 0 {
		return true
	}
	w.expireForRoom(now)
	return !w.dp.full() || w.dp.entries.Load() > w.dp.proven.Load()
}

// expireForRoom calls expire at a limited rate, so that a flood of new flows does not cause a walk for each of them.
func (w *worker) expireForRoom(now time.Duration) {
	if now >= w.nextRoom {
		w.nextRoom = now + 10*time.Millisecond
		w.expire(now)
	}
}

// evict closes the unproven entry that is first in the order of eviction, and reports whether there is one.
func (w *worker) evict() bool {
	number, ok := w.table.order.First()
	if ok {
		w.counters.Evicted++
		w.close(w.table.tokens.Value(number))
	}
	return ok
}

// displace closes the service's entry that was idle longest. It makes room for a datagram whose CID names a live owner when
// all entries are proven. Because of the reserve for unproven entries this happens only in tiny tables. It is the only
// exception to the rule that proven entries stay.
func (w *worker) displace(service string) bool {
	for e := w.table.head.next; e != &w.table.head; e = e.next {
		if e.service == service {
			w.counters.Displaced++
			w.close(e)
			w.dp.entries.Add(1)
			return true
		}
	}
	return false
}

// prove records that the backend answered.
func (w *worker) prove(e *entry) {
	d := w.dp
	places := d.limit.Load()
	if scarce := d.scarce.Load(); scarce > 0 {
		places = min(places, scarce)
	}
	if d.proven.Add(1) > maxProven(places) {
		d.proven.Add(-1)
		w.table.order.Renew(e.number())
		return
	}
	e.proven = true
	w.table.order.Remove(e.number())
}

// maxProven is the maximum number of proven entries among limit entries, so that there is room for a new one.
func maxProven(limit int64) int64 {
	if limit == 1 {
		return 1
	}
	return limit * 15 / 16
}

// dial opens an outgoing socket. When descriptors or ports run out, it closes an expired or an unproven entry and tries
// again. The number of entries that were possible then counts as the size of the table, of which 15/16 may be proven.
func (w *worker) dial(to netip.AddrPort, now time.Duration) (udpio.Socket, error) {
	d := w.dp
	scarce := d.scarce.Load()
	socket, err := udpio.Dial(to, w.connected)
	if err == nil && scarce > 0 && d.entries.Load() > scarce {
		d.scarce.Store(0) // descriptors or ports are available again
	}
	if err == nil || !isExhaustion(err) {
		return socket, err
	}
	w.counters.Exhausted++
	d.scarce.Store(max(d.entries.Load()-1, 1))
	before := w.counters.Expired
	w.expireForRoom(now)
	if w.counters.Expired == before && !w.evict() {
		return socket, err
	}
	return udpio.Dial(to, w.connected)
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
	w.withdraw(e, w.dp.config.Now())
	w.drop(e.key)
	w.table.remove(e)
	e.socket.Close()
	e.dest.usage.Add(-1)
	w.dp.entries.Add(-1)
	if e.proven {
		w.dp.proven.Add(-1)
	}
}

// retarget binds an entry to another destination. The outgoing port stays if the address family allows it.
func (w *worker) retarget(e *entry, dest *destination) error {
	w.withdraw(e, w.dp.config.Now())
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

// moveUnanswered moves a flow that was never answered to another backend when it has missed enough answers. There is no
// session to lose, and its backend may be dead although other flows do not show it yet.
func (w *worker) moveUnanswered(e *entry, now time.Duration) {
	watch := &w.dp.watch
	if watch.timeout < 0 || watch.limit <= 0 || int64(e.missed) < watch.limit || now-e.missedFrom < watch.after {
		return
	}
	e.missed = 0
	service := w.engine.Snapshot().Service(e.service)
	if service == nil || int(e.moves) >= 2*len(service.Backends) {
		return // no backend answers this flow: it may be one-way
	}
	e.moves++
	const tries = 64 // a random choice may return the same backend again
	for range tries {
		if b := service.Select(rand.Uint64()); b != nil && !b.Refuses() && w.addressOf(b, e) != e.dest.addr {
			w.bind(e, b, now)
			return
		}
	}
}

// redial gives an entry a new socket, so that the backends see a new address.
func (w *worker) redial(e *entry, to netip.AddrPort) error {
	w.withdraw(e, w.dp.config.Now())
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
			w.noteUse(e, now) // the last look may be a second ago
		}
		if now-e.last >= e.idle {
			w.counters.Expired++
			w.close(e)
		}
		e = next
	}
}
