package flow

import (
	"time"

	"github.com/weir-lb/weir/internal/steering/evict"
)

// FragmentKey names the fragments of one datagram: by addresses, protocol and
// id in IPv4 (RFC 791 section 3.2), by addresses and id in IPv6, whose fragments
// may have different next headers (RFC 8200 section 4.5).
type FragmentKey struct {
	Src, Dst [16]byte
	ID       uint32
	Proto    uint8 // 0 in IPv6
	Left     bool  // the datagram after NAT; its name differs from that of an arriving one
}

// Held is the result of a fragment look-up: what the caller must do.
type Held uint8

const (
	// FragmentKnown: the first fragment was seen, its value is returned.
	FragmentKnown Held = iota
	// FragmentWait: the first fragment was not seen; hold this one.
	FragmentWait
	// FragmentLost: one fragment of this datagram could not be held, so the datagram cannot become complete. Drop this one
	// too.
	FragmentLost
	// FragmentRefused: the table is full and nothing was recorded.
	FragmentRefused
)

// Fragments remembers for each datagram the value (a decision) that its first
// fragment got, and how many early fragments wait for it. It bounds the
// datagrams known and the fragments that wait; the fragments themselves stay
// with the caller.
//
// Bounds: maxEntries datagrams, maxHeld fragments that wait, maxPerDatagram of one datagram. A datagram cannot prove itself,
// so the most useful entries stay longest:
//
//   - A full table evicts for a new datagram lost ones first, the oldest of them,
//     then waiting ones, then, for a first fragment, known ones. Waiting ones have
//     a share of 1/16 of the table: within it they stay, and take the place of
//     known ones. Of waiting and known ones goes the oldest of the source that
//     holds most of its kind.
//   - Where no more fragments may wait, the source that holds most waiting
//     datagrams loses what it holds of its oldest one. That one is lost: it keeps
//     its entry, but evicts nothing.
//
// Counters: EvictedLost, EvictedWaiting, EvictedKnown, HeldEvicted.
type Fragments[V comparable] struct {
	table     *Table[FragmentKey, fragment[V]]
	ttl       time.Duration
	maxHeld   int
	maxPerKey int
	held      int
	dropHeld  func(FragmentKey)
	totals    FragmentCounters

	// Every entry is in one of these.
	lost           evict.Order[struct{}]
	waiting, known evict.Order[evict.Source]
}

type fragment[V comparable] struct {
	value V
	known bool
	lost  bool
	held  int32
}

// FragmentCounters are running totals, except Entries and Held.
type FragmentCounters struct {
	Entries, Held  int    // datagrams known; fragments that wait
	Inserts        uint64 `metric:"_,event=insert"`          // datagrams entered
	Lookups        uint64 `metric:"_,event=lookup"`          // look-ups of fragments
	Waited         uint64 `metric:"_,event=wait"`            // fragments for which the result was FragmentWait
	Refused        uint64 `metric:"_,event=refuse"`          // datagrams refused because the table was full
	Poisoned       uint64 `metric:"_,event=poison"`          // fragments that could not be held
	Collisions     uint64 `metric:"_,event=collide"`         // first fragments of a known datagram with another value
	Expired        uint64 `metric:"_,event=expire"`          // datagrams forgotten
	Unanswered     uint64 `metric:"_,event=unanswered"`      // fragments whose first one never came
	HeldEvicted    uint64 `metric:"_,event=held_evicted"`    // waiting fragments that were dropped to make room for others
	EvictedLost    uint64 `metric:"_,event=evicted_lost"`    // datagrams forgotten before their time, to make room: lost ones,
	EvictedWaiting uint64 `metric:"_,event=evicted_waiting"` // such that waited for their first fragment,
	EvictedKnown   uint64 `metric:"_,event=evicted_known"`   // and such whose first fragment was seen
	EvictedYoung   uint64 `metric:"_,event=evicted_young"`   // of EvictedKnown, in the first half of their ttl: fragments of theirs may have been lost
}

// NewFragments returns a table of at most maxEntries datagrams, each forgotten
// ttl after its last fragment. At most maxHeld fragments wait in all and
// maxPerDatagram of one datagram. dropHeld, if not nil, is called when a
// datagram loses its fragments that wait so that others find room; the caller
// drops them. It must not use the Fragments.
func NewFragments[V comparable](maxEntries, maxHeld, maxPerDatagram int, ttl time.Duration, dropHeld func(FragmentKey)) *Fragments[V] {
	f := &Fragments[V]{
		table: NewTable[FragmentKey, fragment[V]](maxEntries), ttl: ttl,
		maxHeld: maxHeld, maxPerKey: maxPerDatagram, dropHeld: dropHeld,
	}
	f.table.removed = f.removed
	return f
}

// removed is called for each entry that leaves the table.
func (f *Fragments[V]) removed(at Ref, _ FragmentKey, e *fragment[V]) {
	f.held -= int(e.held)
	_ = f.known.Remove(int32(at)) || f.waiting.Remove(int32(at)) || f.lost.Remove(int32(at))
}

// First records the value of the datagram k. It returns how many fragments
// wait for it, which the caller now releases, and FragmentKnown; or
// FragmentLost if some of them were lost, or FragmentRefused. A second first
// fragment, of a retransmission or because the id came round, decides again; one
// with another value counts as a collision. The name that a datagram leaves with
// (k.Left) evicts no known datagram.
func (f *Fragments[V]) First(k FragmentKey, v V, now time.Duration) (released int, h Held) {
	f.Expire(now)
	f.totals.Lookups++
	e, at := f.table.Find(k, now)
	if e == nil {
		if !f.put(k, fragment[V]{value: v, known: true}, now) {
			return 0, FragmentRefused
		}
		return 0, FragmentKnown
	}
	if e.lost {
		return 0, FragmentLost
	}
	if e.known && e.value != v {
		f.totals.Collisions++
	}
	released = int(e.held)
	f.held -= released
	e.held, e.value, e.known = 0, v, true
	f.waiting.Remove(int32(at))
	f.known.Add(int32(at), evict.SourceOf16(k.Src))
	f.table.RenewAt(at, now, f.ttl, 0)
	return released, FragmentKnown
}

// Later looks up a fragment that is not the first of its datagram.
func (f *Fragments[V]) Later(k FragmentKey, now time.Duration) (v V, h Held) {
	f.Expire(now)
	f.totals.Lookups++
	e, at := f.table.Find(k, now)
	if e == nil {
		return v, f.early(k, now)
	}
	f.table.RenewAt(at, now, f.ttl, 0)
	if e.known {
		return e.value, FragmentKnown
	}
	switch {
	case e.lost:
	case int(e.held) >= f.maxPerKey:
		f.lose(at, e) // the caller drops the held fragments, as for every FragmentLost
	case f.held >= f.maxHeld:
		f.evictHeld() // this may evict the fragments of this datagram
	}
	if e.lost {
		f.totals.Poisoned++
		return v, FragmentLost
	}
	e.held++
	f.held++
	f.totals.Waited++
	return v, FragmentWait
}

// early is Later for a datagram of which no fragment was seen.
func (f *Fragments[V]) early(k FragmentKey, now time.Duration) Held {
	wait := f.maxHeld > 0 && f.maxPerKey > 0
	if wait && f.held >= f.maxHeld {
		f.evictHeld()
	}
	e := fragment[V]{held: 1}
	if !wait {
		// Record the loss if there is room, so that no incomplete datagram is forwarded.
		e = fragment[V]{lost: true}
	}
	if !f.put(k, e, now) || !wait {
		f.totals.Poisoned++
		return FragmentLost
	}
	f.totals.Waited++
	return FragmentWait
}

// evictHeld makes room for waiting fragments: the source that holds most waiting datagrams loses its oldest one.
func (f *Fragments[V]) evictHeld() {
	slot, ok := f.waiting.First()
	if !ok {
		return
	}
	s := f.table.slots.At(slot)
	f.drop(s.key, &s.value)
	f.lose(Ref(slot), &s.value)
}

// drop makes the caller drop the waiting fragments of a datagram.
func (f *Fragments[V]) drop(k FragmentKey, e *fragment[V]) {
	f.totals.HeldEvicted += uint64(e.held)
	if f.dropHeld != nil {
		f.dropHeld(k)
	}
}

// lose makes a waiting datagram a lost one.
func (f *Fragments[V]) lose(at Ref, e *fragment[V]) {
	f.held -= int(e.held)
	e.held, e.lost = 0, true
	f.waiting.Remove(int32(at))
	f.lost.Add(int32(at), struct{}{})
}

// Peek returns the value of a datagram whose first fragment was seen.
func (f *Fragments[V]) Peek(k FragmentKey, now time.Duration) (v V, ok bool) {
	if e := f.table.Get(k, now); e != nil && e.known {
		return e.value, true
	}
	return v, false
}

// Counters returns the totals.
func (f *Fragments[V]) Counters() FragmentCounters {
	c := f.totals
	c.Entries, c.Held = f.table.Len(), f.held
	c.Expired = f.table.Expired()
	return c
}

// makeRoom evicts a datagram for the new one k if the table is full, and reports whether there is room.
func (f *Fragments[V]) makeRoom(k *FragmentKey, v *fragment[V], now time.Duration) bool {
	if f.table.Len() < f.table.Max() {
		return true
	}
	share := f.table.Max() / 16
	evictKnown := v.known && !k.Left
	evictWaiting := f.waiting.Len() > share || evictKnown && f.known.Len() == 0
	if !v.known && !v.lost { // a waiting one
		evictKnown = f.waiting.Len() < share
		evictWaiting = !evictKnown || f.known.Len() == 0
	}
	if slot, ok := f.lost.First(); ok {
		f.totals.EvictedLost++
		f.table.remove(slot)
		return true
	}
	if slot, ok := f.waiting.First(); ok && evictWaiting {
		s := f.table.slots.At(slot)
		f.drop(s.key, &s.value)
		f.totals.EvictedWaiting++
		f.table.remove(slot)
		return true
	}
	if slot, ok := f.known.First(); ok && evictKnown {
		f.totals.EvictedKnown++
		if f.table.slots.At(slot).expiry > deadline(now, f.ttl/2) {
			f.totals.EvictedYoung++
		}
		f.table.remove(slot)
		return true
	}
	return false
}

// put enters a datagram that is not in the table.
func (f *Fragments[V]) put(k FragmentKey, v fragment[V], now time.Duration) bool {
	if !f.makeRoom(&k, &v, now) {
		f.totals.Refused++
		return false
	}
	at, _ := f.table.put(k, v, now, f.ttl) // there is room
	f.totals.Inserts++
	f.held += int(v.held)
	switch {
	case v.known:
		f.known.Add(at, evict.SourceOf16(k.Src))
	case v.lost:
		f.lost.Add(at, struct{}{})
	default:
		f.waiting.Add(at, evict.SourceOf16(k.Src))
	}
	return true
}

// Expire removes datagrams whose time is over; First and Later do so too. The caller drops the fragments that it still holds
// for them.
func (f *Fragments[V]) Expire(now time.Duration) {
	for {
		e := f.table.oldest(now)
		if e == nil {
			return
		}
		f.totals.Unanswered += uint64(e.held)
		f.table.Expire(now, 1)
	}
}
