package evict

import "github.com/weir-lb/weir/internal/steering/slab"

// none ends a list.
const none = -1

// Order is the order in which the entries of one table are evicted. K is the type that names who is accountable for an
// entry. The zero Order is empty and ready to use. Not for concurrent use.
type Order[K comparable] struct {
	entries slab.Slab[entry] // by slot number
	groups  slab.Slab[group[K]]
	free    int32 // the first unused element of groups, plus 1; linked by after
	byKey   map[K]int32
	bySize  slab.Slab[list] // of groups, by how many entries they hold; the group that has had this size longest is first
	largest int
	byAge   list // of all entries, oldest first
	count   int
}

// entry is an element of two lists of slots: of its group, and of all entries.
type entry struct {
	group          int32 // plus 1; 0: the slot is not in the order
	older, newer   int32 // in its group
	before, behind int32 // in byAge
}

// group holds the entries of one key, oldest first, and is an element of the list of its size.
type group[K comparable] struct {
	key            K
	oldest, newest int32
	size           int
	before, after  int32
}

// list is a list of groups or of slots.
type list struct {
	first, last int32
}

// largeShare is the share of all entries, 1/largeShare, above which the key that holds most evicts its own first.
const largeShare = 16

// Add enters the entry in a slot (0 or more) as the newest of its key. A slot that is in the order already is moved.
func (o *Order[K]) Add(slot int32, key K) {
	if o.Has(slot) {
		o.Remove(slot)
	}
	if o.count == 0 {
		o.byAge = list{first: none, last: none}
	}
	for int(slot) >= o.entries.Len() {
		o.entries.Grow()
	}
	g, ok := o.byKey[key]
	if !ok {
		g = o.newGroup(key)
	}
	o.push(g, slot)
	o.resize(g, 1)
	o.count++
}

// Remove removes a slot from the order, because its entry ended or has proven itself. It reports whether the slot was there.
func (o *Order[K]) Remove(slot int32) bool {
	if !o.Has(slot) {
		return false
	}
	g := o.entries.At(slot).group - 1
	o.unlink(g, slot)
	o.entries.At(slot).group = 0
	o.resize(g, -1)
	o.count--
	return true
}

// Renew makes the entry in a slot the newest of its key and of all. A slot that is not in the order stays out.
func (o *Order[K]) Renew(slot int32) {
	if !o.Has(slot) {
		return
	}
	if o.byAge.last == slot {
		return
	}
	g := o.entries.At(slot).group - 1
	o.unlink(g, slot)
	o.push(g, slot)
}

// Has reports whether a slot is in the order.
func (o *Order[K]) Has(slot int32) bool {
	return slot >= 0 && int(slot) < o.entries.Len() && o.entries.At(slot).group != 0
}

// First returns the slot of the entry to evict first: the oldest of the key that holds most, if that is more than a sixteenth
// of all entries, else the oldest of all. So a flood from a few sources evicts itself, and in a flood from many sources that
// hold one entry each, the clients behind one NAT are not the first to go because together they hold more than one. It
// returns false if the order is empty.
func (o *Order[K]) First() (slot int32, ok bool) {
	if o.count == 0 {
		return 0, false
	}
	if o.largest*largeShare <= o.count {
		return o.byAge.first, true
	}
	return o.FirstOfLargest()
}

// FirstOfLargest returns the slot of the oldest entry of the key that holds most entries, for a table that shares its slots
// evenly among keys. Among keys that hold equally many, it chooses the one that has held so many for the longest time. It
// returns false if the order is empty.
func (o *Order[K]) FirstOfLargest() (slot int32, ok bool) {
	if o.count == 0 {
		return 0, false
	}
	return o.groups.At(o.bySize.At(int32(o.largest)).first).oldest, true
}

// FirstOf returns the slot of the oldest entry of one key, for a table that bounds what each key may hold.
func (o *Order[K]) FirstOf(key K) (slot int32, ok bool) {
	g, ok := o.byKey[key]
	if !ok {
		return 0, false
	}
	return o.groups.At(g).oldest, true
}

// Held returns how many entries a key holds.
func (o *Order[K]) Held(key K) int {
	g, ok := o.byKey[key]
	if !ok {
		return 0
	}
	return o.groups.At(g).size
}

// Len returns how many entries are in the order.
func (o *Order[K]) Len() int { return o.count }

// Keys returns how many keys hold entries.
func (o *Order[K]) Keys() int { return len(o.byKey) }

// Clear removes all entries.
func (o *Order[K]) Clear() { *o = Order[K]{} }

func (o *Order[K]) newGroup(key K) int32 {
	if o.byKey == nil {
		o.byKey = make(map[K]int32)
	}
	g := o.free - 1
	if g == none {
		g = o.groups.Grow()
	} else {
		o.free = o.groups.At(g).after
	}
	*o.groups.At(g) = group[K]{key: key, oldest: none, newest: none, before: none, after: none}
	o.byKey[key] = g
	return g
}

// push makes a slot the newest of a group and of all.
func (o *Order[K]) push(g, slot int32) {
	group := o.groups.At(g)
	*o.entries.At(slot) = entry{group: g + 1, older: group.newest, newer: none, before: o.byAge.last, behind: none}
	if group.newest == none {
		group.oldest = slot
	} else {
		o.entries.At(group.newest).newer = slot
	}
	group.newest = slot
	if o.byAge.last == none {
		o.byAge.first = slot
	} else {
		o.entries.At(o.byAge.last).behind = slot
	}
	o.byAge.last = slot
}

func (o *Order[K]) unlink(g, slot int32) {
	group, e := o.groups.At(g), *o.entries.At(slot)
	if e.older == none {
		group.oldest = e.newer
	} else {
		o.entries.At(e.older).newer = e.newer
	}
	if e.newer == none {
		group.newest = e.older
	} else {
		o.entries.At(e.newer).older = e.older
	}
	if e.before == none {
		o.byAge.first = e.behind
	} else {
		o.entries.At(e.before).behind = e.behind
	}
	if e.behind == none {
		o.byAge.last = e.before
	} else {
		o.entries.At(e.behind).before = e.before
	}
}

// resize moves a group to the list of its new size, and removes an empty one.
func (o *Order[K]) resize(g int32, by int) {
	group := o.groups.At(g)
	if group.size > 0 {
		o.leave(g)
	}
	group.size += by
	if group.size > 0 {
		o.join(g)
	} else {
		var zero K
		delete(o.byKey, group.key)
		group.key = zero // what it points to may be freed
		group.after, o.free = o.free, g+1
	}
	// This moves at most one step, because a resize changes one group by one entry.
	for o.largest > 0 && o.bySize.At(int32(o.largest)).first == none {
		o.largest--
	}
}

func (o *Order[K]) join(g int32) {
	group := o.groups.At(g)
	for group.size >= o.bySize.Len() {
		*o.bySize.At(o.bySize.Grow()) = list{first: none, last: none}
	}
	l := o.bySize.At(int32(group.size))
	group.before, group.after = l.last, none
	if l.last == none {
		l.first = g
	} else {
		o.groups.At(l.last).after = g
	}
	l.last = g
	o.largest = max(o.largest, group.size)
}

func (o *Order[K]) leave(g int32) {
	group := o.groups.At(g)
	l := o.bySize.At(int32(group.size))
	if group.before == none {
		l.first = group.after
	} else {
		o.groups.At(group.before).after = group.after
	}
	if group.after == none {
		l.last = group.before
	} else {
		o.groups.At(group.after).before = group.before
	}
}
