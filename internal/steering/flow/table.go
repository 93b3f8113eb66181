package flow

import (
	"iter"
	"time"

	"github.com/weir-lb/weir/internal/steering/evict"
	"github.com/weir-lb/weir/internal/steering/heap"
	"github.com/weir-lb/weir/internal/steering/slab"
)

// Table is a bounded map whose entries expire. A full table reclaims what has
// expired, oldest expiry first, before it refuses an entry: stale entries
// never keep live ones out. A heap orders the entries by expiry; there is no
// timer. The zero Table holds nothing; use NewTable.
//
// In a table of NewProvingTable an entry is unproven until Prove. Bound: max
// entries. Full of live entries, it evicts for a new one an unproven entry as
// package evict says: of the source that holds most unproven entries the
// oldest. Proven entries are never evicted. At most 15/16 of max are proven: an
// entry that proves itself beyond that stays unproven, and is renewed in the
// order of eviction by each Prove. So there is room for a new entry, except in
// a table of one. Counter: Evicted.
type Table[K comparable, V any] struct {
	max   int
	index map[K]int32
	slots slab.Slab[slot[K, V]]
	free  int32                    // the first unused slot, plus 1; linked by next
	due   heap.Heap[time.Duration] // slots by expiry

	source    func(*K) evict.Source // nil: entries do not prove themselves
	removed   func(Ref, K, *V)      // nil: no callback
	order     evict.Order[evict.Source]
	proven    int
	maxProven int

	refused, expired, evicted uint64
}

type slot[K comparable, V any] struct {
	key    K
	value  V
	expiry time.Duration
	next   int32 // in the list of unused slots
	used   bool
	proven bool
}

// reclaimPerPut is how many expired entries each insertion also removes, so that a table that is not full shrinks as well,
// without a sweep.
const reclaimPerPut = 2

// maxPresized bounds the entries for which a table allocates memory in advance, 16 bytes each for its heap. All other memory
// grows in small blocks.
const maxPresized = 1 << 18

// NewTable returns a table of at most max entries. Memory grows with use.
func NewTable[K comparable, V any](max int) *Table[K, V] {
	return &Table[K, V]{max: max, index: make(map[K]int32), due: heap.New[time.Duration](min(max, maxPresized))}
}

// NewProvingTable returns a table whose entries are unproven until Prove.
// source says who is accountable for a key. removed, if not nil, is called for
// each entry that leaves, for whatever reason but Clear; it must not use the table.
func NewProvingTable[K comparable, V any](max int, source func(*K) evict.Source, removed func(Ref, K, *V)) *Table[K, V] {
	t := NewTable[K, V](max)
	t.source, t.removed = source, removed
	t.maxProven = maxProven(max)
	return t
}

// maxProven is the maximum number of proven entries among max entries, so that a new one finds room.
func maxProven(max int) int {
	if max == 1 {
		return 1
	}
	return max * 15 / 16
}

// Get returns the live value of k, or nil. The pointer is valid until the next
// call that is not Get, Find, Renew, RenewAt, Prove, Proven, Expiry, Until, Scan or All.
func (t *Table[K, V]) Get(k K, now time.Duration) *V {
	v, _ := t.Find(k, now)
	return v
}

// Put sets the value of k for ttl from now. An existing entry stays proven or unproven. Put returns false and stores nothing
// when the table is full of live entries none of which may be evicted.
func (t *Table[K, V]) Put(k K, v V, now, ttl time.Duration) bool {
	_, ok := t.put(k, v, now, ttl)
	return ok
}

// put is Put that also returns the slot.
func (t *Table[K, V]) put(k K, v V, now, ttl time.Duration) (int32, bool) {
	if i, ok := t.index[k]; ok {
		t.slots.At(i).value = v
		t.reschedule(i, deadline(now, ttl))
		return i, true
	}
	t.Expire(now, reclaimPerPut)
	if len(t.index) >= t.max && !t.evict() {
		t.refused++
		return -1, false
	}
	i := t.take()
	s := t.slots.At(i)
	s.key, s.value, s.expiry, s.used = k, v, deadline(now, ttl), true
	t.due.Set(i, s.expiry)
	t.index[k] = i
	if t.source != nil {
		t.order.Add(i, t.source(&s.key))
	}
	return i, true
}

// Evict removes an entry in favour of a new one that needs a resource which the entry holds outside of the table. The caller
// knows that the entry is unproven, or starts again. Pointers to other entries stay valid.
func (t *Table[K, V]) Evict(at Ref) {
	t.remove(int32(at))
	t.evicted++
}

// evict removes the unproven entry that is first in the order of eviction, and reports whether there is one.
func (t *Table[K, V]) evict() bool {
	i, ok := t.order.First()
	if ok {
		t.remove(i)
		t.evicted++
	}
	return ok
}

// Ref is the slot of an entry, so that renewing needs no second look-up. Like the pointer of Get it is valid until the next
// call that is not Get, Find, Renew, RenewAt, Prove, Proven, Expiry, Until, Scan or All.
type Ref int32

// Proven reports whether an entry has proven itself.
func (t *Table[K, V]) Proven(at Ref) bool { return t.slots.At(int32(at)).proven }

// Prove records that an entry has proven itself. If the maximum of proven entries is reached, it makes the entry the newest
// unproven one of its source instead.
func (t *Table[K, V]) Prove(at Ref) {
	s := t.slots.At(int32(at))
	switch {
	case s.proven:
	case t.proven < t.maxProven:
		s.proven = true
		t.proven++
		t.order.Remove(int32(at))
	default:
		t.order.Renew(int32(at))
	}
}

// Next returns the key and value of the entry that expires next, nil if there is none.
func (t *Table[K, V]) Next() (k K, v *V) {
	i, _, ok := t.due.First()
	if !ok {
		return k, nil
	}
	s := t.slots.At(i)
	return s.key, &s.value
}

// Find is Get that also returns the entry's slot.
func (t *Table[K, V]) Find(k K, now time.Duration) (*V, Ref) {
	i, ok := t.index[k]
	if !ok {
		return nil, -1
	}
	s := t.slots.At(i)
	if s.expiry <= now {
		return nil, -1
	}
	return &s.value, Ref(i)
}

// RenewAt moves the expiry of an entry to ttl from now if that changes it by at least step, and reports whether it did. The
// step prevents busy flows from reordering the table with every packet.
func (t *Table[K, V]) RenewAt(at Ref, now, ttl, step time.Duration) bool {
	d := deadline(now, ttl) - t.slots.At(int32(at)).expiry
	if d < step && d > -step {
		return false
	}
	t.reschedule(int32(at), deadline(now, ttl))
	return true
}

// Renew is RenewAt by key; it reports whether k is alive.
func (t *Table[K, V]) Renew(k K, now, ttl, step time.Duration) bool {
	v, at := t.Find(k, now)
	if v != nil {
		t.RenewAt(at, now, ttl, step)
	}
	return v != nil
}

// Key returns the key of an entry.
func (t *Table[K, V]) Key(at Ref) K { return t.slots.At(int32(at)).key }

// Expiry returns when an entry expires.
func (t *Table[K, V]) Expiry(at Ref) time.Duration { return t.slots.At(int32(at)).expiry }

// Until returns when k expires, and whether it is in the table.
func (t *Table[K, V]) Until(k K) (time.Duration, bool) {
	i, ok := t.index[k]
	if !ok {
		return 0, false
	}
	return t.slots.At(i).expiry, true
}

// deadline returns now+ttl, limited to the maximum time.
func deadline(now, ttl time.Duration) time.Duration {
	if end := now + ttl; ttl < 0 || end >= now {
		return end
	}
	return 1<<63 - 1
}

// Clear removes every entry.
func (t *Table[K, V]) Clear() {
	clear(t.index)
	t.slots.Clear()
	t.order.Clear()
	t.due.Clear()
	t.free, t.proven = 0, 0
}

// Delete removes k and reports whether it was there.
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
	for n != limit {
		i, expiry, ok := t.due.First()
		if !ok || expiry > now {
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
	i, expiry, ok := t.due.First()
	if !ok || expiry > now {
		return nil
	}
	return &t.slots.At(i).value
}

// Len returns how many entries the table holds, including expired ones that are not reclaimed yet.
func (t *Table[K, V]) Len() int { return len(t.index) }

// Max returns the bound given to NewTable.
func (t *Table[K, V]) Max() int { return t.max }

// Refused counts insertions refused because the table was full of live entries.
func (t *Table[K, V]) Refused() uint64 { return t.refused }

// Expired counts entries reclaimed after their time.
func (t *Table[K, V]) Expired() uint64 { return t.expired }

// Evicted counts unproven entries removed before their time, each for a new one.
func (t *Table[K, V]) Evicted() uint64 { return t.evicted }

// ProvenLen returns how many entries are proven, expired ones included.
func (t *Table[K, V]) ProvenLen() int { return t.proven }

// All yields every entry alive at now, in no particular order. The loop may
// delete the entry it was given, and nothing else.
func (t *Table[K, V]) All(now time.Duration) iter.Seq2[K, *V] {
	return func(yield func(K, *V) bool) {
		t.Scan(0, t.slots.Len(), now, func(k K, v *V, _ time.Duration) bool { return yield(k, v) })
	}
}

// Scan is All in steps, between which the table may change in any way. It visits n slots, starting with number from, and
// yields those in use with their expiry. It returns where the next step begins; 0: that was the last step, or yield returned
// false. An entry that exists during all steps is yielded once.
func (t *Table[K, V]) Scan(from, n int, now time.Duration, yield func(K, *V, time.Duration) bool) (next int) {
	end := min(from+n, t.slots.Len())
	for i := from; i < end; i++ {
		if s := t.slots.At(int32(i)); s.used && s.expiry > now && !yield(s.key, &s.value, s.expiry) {
			return 0
		}
	}
	if end >= t.slots.Len() {
		return 0
	}
	return end
}

func (t *Table[K, V]) take() int32 {
	if t.free == 0 {
		return t.slots.Grow()
	}
	i := t.free - 1
	t.free = t.slots.At(i).next
	return i
}

func (t *Table[K, V]) remove(i int32) {
	s := t.slots.At(i)
	if t.removed != nil {
		t.removed(Ref(i), s.key, &s.value)
	}
	if s.proven {
		t.proven--
	}
	t.order.Remove(i)
	delete(t.index, s.key)
	t.due.Remove(i)
	var zero slot[K, V]
	*s = zero
	s.next, t.free = t.free, i+1
}

func (t *Table[K, V]) reschedule(i int32, expiry time.Duration) {
	t.slots.At(i).expiry = expiry
	t.due.Set(i, expiry)
}
