package flow

import "time"

// FragmentKey names the fragments of one datagram (RFC 791 section 3.2,
// RFC 8200 section 4.5). RFC 8200 leaves the protocol out; it is part of the
// key so that a TCP and a UDP datagram of one id never meet.
type FragmentKey struct {
	Src, Dst [16]byte
	ID       uint32
	Proto    uint8
	Left     bool // as it left after NAT, which is another name than one that came
}

// Held is what a fragment look-up tells the caller to do.
type Held uint8

const (
	// FragmentKnown: the first fragment was seen, its value is returned.
	FragmentKnown Held = iota
	// FragmentWait: the first fragment was not seen; hold this one.
	FragmentWait
	// FragmentLost: one of this datagram's fragments could not be held, so the
	// datagram cannot be whole: drop this one too.
	FragmentLost
	// FragmentRefused: the table is full, nothing was remembered.
	FragmentRefused
)

// Fragments remembers for each datagram the value (a decision) that its first
// fragment got, and how many early fragments wait for it. It bounds the
// datagrams known and the fragments that wait; the fragments themselves stay
// with the caller.
type Fragments[V comparable] struct {
	table     *Table[FragmentKey, fragment[V]]
	ttl       time.Duration
	maxHeld   int
	maxPerKey int
	held      int
	totals    FragmentCounters
}

type fragment[V comparable] struct {
	value V
	known bool
	lost  bool
	held  int32
}

// FragmentCounters are running totals, except Entries and Held.
type FragmentCounters struct {
	Entries, Held     int    // datagrams known; fragments that wait
	Inserts           uint64 // datagrams entered
	Lookups           uint64 // fragments asked about
	Waited            uint64 // fragments that were told to wait
	Refused, Poisoned uint64 // datagrams not entered, the table was full; hold budget spent
	Collisions        uint64 // first fragments of a known datagram with another value
	Expired           uint64 // datagrams forgotten
	Unanswered        uint64 // fragments whose first one never came
	Early             uint64 // reclaimed in the second half of their ttl, to make room
}

// NewFragments returns a table of at most maxEntries datagrams, each forgotten
// ttl after its last fragment, or after half of that if the table is full and
// its first fragment was seen: bursts need no room of their own. At most maxHeld
// fragments wait in all and maxPerDatagram of one datagram.
func NewFragments[V comparable](maxEntries, maxHeld, maxPerDatagram int, ttl time.Duration) *Fragments[V] {
	return &Fragments[V]{
		table: NewTable[FragmentKey, fragment[V]](maxEntries), ttl: ttl,
		maxHeld: maxHeld, maxPerKey: maxPerDatagram,
	}
}

// First records the value of the datagram k. It returns how many fragments
// wait for it, which the caller now releases, and FragmentKnown; or
// FragmentLost if some of them were lost, or FragmentRefused. A second first
// fragment, of a retransmission or because the id came round, decides anew; one
// with another value counts as a collision.
func (f *Fragments[V]) First(k FragmentKey, v V, now time.Duration) (released int, h Held) {
	f.Expire(now)
	f.totals.Lookups++
	if e := f.table.Get(k, now); e != nil {
		if e.lost {
			return 0, FragmentLost
		}
		if e.known && e.value != v {
			f.totals.Collisions++
		}
		released = int(e.held)
		f.held -= released
		e.held, e.value, e.known = 0, v, true
		f.table.Renew(k, now, f.ttl, 0)
		return released, FragmentKnown
	}
	if !f.put(k, fragment[V]{value: v, known: true}, now) {
		return 0, FragmentRefused
	}
	return 0, FragmentKnown
}

// Later looks up a fragment that is not the first of its datagram.
func (f *Fragments[V]) Later(k FragmentKey, now time.Duration) (v V, h Held) {
	f.Expire(now)
	f.totals.Lookups++
	e := f.table.Get(k, now)
	if e == nil {
		if f.held >= f.maxHeld || f.maxPerKey < 1 {
			// Remember the loss if there is room, so that no half datagram travels on.
			f.totals.Poisoned++
			f.put(k, fragment[V]{lost: true}, now)
			return v, FragmentLost
		}
		if !f.put(k, fragment[V]{held: 1}, now) {
			f.totals.Poisoned++
			return v, FragmentLost
		}
		f.totals.Waited++
		f.held++
		return v, FragmentWait
	}
	f.table.Renew(k, now, f.ttl, 0)
	switch {
	case e.known:
		return e.value, FragmentKnown
	case e.lost:
		return v, FragmentLost
	case f.held >= f.maxHeld || int(e.held) >= f.maxPerKey:
		f.totals.Poisoned++
		f.held -= int(e.held)
		e.held, e.lost = 0, true
		return v, FragmentLost
	}
	e.held++
	f.held++
	f.totals.Waited++
	return v, FragmentWait
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
	c.Refused, c.Expired = f.table.Refused(), f.table.Expired()
	return c
}

// makeRoom reclaims the datagram that is silent for longest if the table is
// full and more than half of its ttl is over.
func (f *Fragments[V]) makeRoom(now time.Duration) {
	if f.table.Len() < f.table.Max() {
		return
	}
	if e := f.table.oldest(deadline(now, f.ttl/2)); e != nil && e.known {
		f.table.removeOldest()
		f.totals.Early++
	}
}

// put enters a datagram that is not in the table.
func (f *Fragments[V]) put(k FragmentKey, v fragment[V], now time.Duration) bool {
	f.makeRoom(now)
	if !f.table.Put(k, v, now, f.ttl) {
		return false
	}
	f.totals.Inserts++
	return true
}

// Expire forgets datagrams whose time is over; First and Later do so too. The
// caller drops what it still holds for them.
func (f *Fragments[V]) Expire(now time.Duration) {
	for {
		e := f.table.oldest(now)
		if e == nil {
			return
		}
		f.held -= int(e.held)
		f.totals.Unanswered += uint64(e.held)
		f.table.Expire(now, 1)
	}
}
