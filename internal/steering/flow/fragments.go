package flow

import "time"

// FragmentKey names the fragments of one datagram (RFC 791 section 3.2,
// RFC 8200 section 4.5). RFC 8200 leaves the protocol out; it is part of the
// key so that a TCP and a UDP datagram of one id never meet.
type FragmentKey struct {
	Src, Dst [16]byte
	ID       uint32
	Proto    uint8
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
type Fragments[V any] struct {
	table      *Table[FragmentKey, fragment[V]]
	ttl        time.Duration
	maxHeld    int
	maxPerKey  int
	held       int
	poisoned   uint64
	unanswered uint64
}

type fragment[V any] struct {
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
}

// NewFragments returns a table of at most maxEntries datagrams, each forgotten
// ttl after its last fragment. At most maxHeld fragments wait in all and
// maxPerDatagram of one datagram.
func NewFragments[V any](maxEntries, maxHeld, maxPerDatagram int, ttl time.Duration) *Fragments[V] {
	return &Fragments[V]{
		table: NewTable[FragmentKey, fragment[V]](maxEntries), ttl: ttl,
		maxHeld: maxHeld, maxPerKey: maxPerDatagram,
	}
}

// First records the value of the datagram k. It returns how many fragments
// wait for it, which the caller now releases, and FragmentKnown; or
// FragmentLost if some of them were lost, or FragmentRefused.
func (f *Fragments[V]) First(k FragmentKey, v V, now time.Duration) (released int, h Held) {
	f.Expire(now)
	if e := f.table.Get(k, now); e != nil {
		if e.lost {
			return 0, FragmentLost
		}
		released = int(e.held)
		f.held -= released
		e.held, e.value, e.known = 0, v, true
		f.table.Renew(k, now, f.ttl, 0)
		return released, FragmentKnown
	}
	if !f.table.Put(k, fragment[V]{value: v, known: true}, now, f.ttl) {
		return 0, FragmentRefused
	}
	return 0, FragmentKnown
}

// Later looks up a fragment that is not the first of its datagram.
func (f *Fragments[V]) Later(k FragmentKey, now time.Duration) (v V, h Held) {
	f.Expire(now)
	e := f.table.Get(k, now)
	if e == nil {
		if f.held >= f.maxHeld || f.maxPerKey < 1 || !f.table.Put(k, fragment[V]{held: 1}, now, f.ttl) {
			// Remember the loss if there is room, so that no half datagram travels on.
			f.poisoned++
			f.table.Put(k, fragment[V]{lost: true}, now, f.ttl)
			return v, FragmentLost
		}
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
		f.poisoned++
		f.held -= int(e.held)
		e.held, e.lost = 0, true
		return v, FragmentLost
	}
	e.held++
	f.held++
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
	return FragmentCounters{
		Entries: f.table.Len(), Held: f.held, Refused: f.table.Refused(),
		Poisoned: f.poisoned, Expired: f.table.Expired(), Unanswered: f.unanswered,
	}
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
		f.unanswered += uint64(e.held)
		f.table.Expire(now, 1)
	}
}
