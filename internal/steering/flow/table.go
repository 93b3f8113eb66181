package flow

import (
	"iter"
	"time"
)

// Table is a bounded map whose entries expire. A full table reclaims what has
// expired, oldest expiry first, before it refuses an entry: stale entries
// never keep live ones out. Entries are ordered by expiry in a heap inside the
// table; there is no timer. The zero Table holds nothing; use NewTable.
type Table[K comparable, V any] struct {
	max   int
	index map[K]int32
	slots []slot[K, V]
	free  []int32
	heap  []int32 // slot numbers, the next to expire first

	refused, expired uint64
}

type slot[K comparable, V any] struct {
	key    K
	value  V
	expiry time.Duration
	place  int32 // in heap
}

// reclaimPerPut is how many expired entries each insertion removes in passing,
// so that a table that is not full shrinks too, without a sweep.
const reclaimPerPut = 2

// NewTable returns a table of at most max entries. Memory grows with use.
func NewTable[K comparable, V any](max int) *Table[K, V] {
	return &Table[K, V]{max: max, index: make(map[K]int32)}
}

// Get returns the live value of k, or nil. The pointer is valid until the next
// call that is not Get, Find, Renew, RenewAt, Until or All.
func (t *Table[K, V]) Get(k K, now time.Duration) *V {
	v, _ := t.Find(k, now)
	return v
}

// Put sets the value of k for ttl from now. It returns false, and keeps
// nothing, when the table is full of live entries.
func (t *Table[K, V]) Put(k K, v V, now, ttl time.Duration) bool {
	if i, ok := t.index[k]; ok {
		t.slots[i].value = v
		t.reschedule(i, deadline(now, ttl))
		return true
	}
	t.Expire(now, reclaimPerPut)
	if len(t.index) >= t.max {
		t.refused++
		return false
	}
	i := t.take()
	s := &t.slots[i]
	s.key, s.value, s.expiry = k, v, deadline(now, ttl)
	s.place = int32(len(t.heap))
	t.heap = append(t.heap, i)
	t.up(int(s.place))
	t.index[k] = i
	return true
}

// Ref names the place of an entry, so that renewing needs no second look-up.
// Like Get's pointer it is valid until the next call that is not Get, Find,
// Renew, RenewAt, Until or All.
type Ref int32

// Find is Get that also returns the entry's place.
func (t *Table[K, V]) Find(k K, now time.Duration) (*V, Ref) {
	i, ok := t.index[k]
	if !ok || t.slots[i].expiry <= now {
		return nil, -1
	}
	return &t.slots[i].value, Ref(i)
}

// RenewAt moves the expiry of an entry to ttl from now if that changes it by at
// least step, and says whether it did. A step keeps busy flows from reordering
// the table with every packet.
func (t *Table[K, V]) RenewAt(at Ref, now, ttl, step time.Duration) bool {
	d := deadline(now, ttl) - t.slots[at].expiry
	if d < step && d > -step {
		return false
	}
	t.reschedule(int32(at), deadline(now, ttl))
	return true
}

// Renew is RenewAt by key; it says whether k is alive.
func (t *Table[K, V]) Renew(k K, now, ttl, step time.Duration) bool {
	v, at := t.Find(k, now)
	if v != nil {
		t.RenewAt(at, now, ttl, step)
	}
	return v != nil
}

// Until returns when k expires, and whether it is in the table.
func (t *Table[K, V]) Until(k K) (time.Duration, bool) {
	i, ok := t.index[k]
	if !ok {
		return 0, false
	}
	return t.slots[i].expiry, true
}

// deadline is now+ttl, at most the end of time.
func deadline(now, ttl time.Duration) time.Duration {
	if end := now + ttl; ttl < 0 || end >= now {
		return end
	}
	return 1<<63 - 1
}

// Clear removes every entry.
func (t *Table[K, V]) Clear() {
	clear(t.index)
	t.slots, t.free, t.heap = nil, nil, nil
}

// Delete removes k and says whether it was there.
func (t *Table[K, V]) Delete(k K) bool {
	i, ok := t.index[k]
	if ok {
		t.remove(i)
	}
	return ok
}

// Expire removes up to limit entries that have expired by now, the oldest
// first (limit < 0: all of them), and returns how many.
func (t *Table[K, V]) Expire(now time.Duration, limit int) int {
	n := 0
	for len(t.heap) > 0 && n != limit {
		i := t.heap[0]
		if t.slots[i].expiry > now {
			break
		}
		t.remove(i)
		n++
	}
	t.expired += uint64(n)
	return n
}

// oldest returns the value that Expire would remove next, or nil.
func (t *Table[K, V]) oldest(now time.Duration) *V {
	if len(t.heap) == 0 || t.slots[t.heap[0]].expiry > now {
		return nil
	}
	return &t.slots[t.heap[0]].value
}

// removeOldest removes the entry that expires next, before its time too.
func (t *Table[K, V]) removeOldest() { t.remove(t.heap[0]) }

// Len returns how many entries the table holds, expired ones that nobody has
// reclaimed yet included.
func (t *Table[K, V]) Len() int { return len(t.index) }

// Max returns the bound given to NewTable.
func (t *Table[K, V]) Max() int { return t.max }

// Refused counts insertions refused because the table was full of live entries.
func (t *Table[K, V]) Refused() uint64 { return t.refused }

// Expired counts entries reclaimed after their time.
func (t *Table[K, V]) Expired() uint64 { return t.expired }

// All yields every entry alive at now, in no particular order. The loop may
// delete the entry it was given, and nothing else.
func (t *Table[K, V]) All(now time.Duration) iter.Seq2[K, *V] {
	return func(yield func(K, *V) bool) {
		for k, i := range t.index {
			if t.slots[i].expiry > now && !yield(k, &t.slots[i].value) {
				return
			}
		}
	}
}

func (t *Table[K, V]) take() int32 {
	if n := len(t.free); n > 0 {
		i := t.free[n-1]
		t.free = t.free[:n-1]
		return i
	}
	t.slots = append(t.slots, slot[K, V]{})
	return int32(len(t.slots) - 1)
}

func (t *Table[K, V]) remove(i int32) {
	s := &t.slots[i]
	delete(t.index, s.key)
	place, last := int(s.place), len(t.heap)-1
	if place != last {
		t.move(place, t.heap[last])
	}
	t.heap = t.heap[:last]
	if place != last {
		t.fix(place)
	}
	var zero slot[K, V]
	*s = zero
	t.free = append(t.free, i)
}

func (t *Table[K, V]) reschedule(i int32, expiry time.Duration) {
	t.slots[i].expiry = expiry
	t.fix(int(t.slots[i].place))
}

func (t *Table[K, V]) fix(place int) {
	if !t.down(place) {
		t.up(place)
	}
}

// The heap has four children per node: a third fewer cache misses than two.
const fanout = 4

func (t *Table[K, V]) up(place int) {
	i := t.heap[place]
	for place > 0 {
		parent := (place - 1) / fanout
		if t.slots[t.heap[parent]].expiry <= t.slots[i].expiry {
			break
		}
		t.move(place, t.heap[parent])
		place = parent
	}
	t.move(place, i)
}

func (t *Table[K, V]) down(place int) bool {
	i, start := t.heap[place], place
	for {
		first := place*fanout + 1
		if first >= len(t.heap) {
			break
		}
		least := first
		for c := first + 1; c < first+fanout && c < len(t.heap); c++ {
			if t.slots[t.heap[c]].expiry < t.slots[t.heap[least]].expiry {
				least = c
			}
		}
		if t.slots[t.heap[least]].expiry >= t.slots[i].expiry {
			break
		}
		t.move(place, t.heap[least])
		place = least
	}
	t.move(place, i)
	return place != start
}

func (t *Table[K, V]) move(place int, i int32) {
	t.heap[place] = i
	t.slots[i].place = int32(place)
}
