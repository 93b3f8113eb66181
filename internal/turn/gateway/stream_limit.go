package gateway

import (
	"net/netip"
	"sync"
)

// sourceLimit bounds how many of one kind (handshakes, connections without an allocation, connections) are there at once, in all
// and per source prefix: /32 of IPv4, /64 of IPv6, what one subscriber commonly has. Where it is full, a newcomer takes the
// place of the oldest of the prefix with the most, if that one has at least two more than his own; so a flood from few
// prefixes keeps nobody else out. Sources are known to be true here: a TCP handshake or a cookie came back from them.
// Any goroutine may call it.
type sourceLimit struct {
	mu             sync.Mutex
	max, maxPrefix int
	count          int
	prefixes       map[netip.Prefix]*prefixEntries
}

// prefixEntries are the guests of one prefix, oldest first.
type prefixEntries struct {
	prefix      netip.Prefix
	first, last *limitEntry
	count       int
}

// limitEntry is one place of a sourceLimit. The zero value has none.
type limitEntry struct {
	group      *prefixEntries
	prev, next *limitEntry
	evict      func() // makes room: called once without the lock, on the goroutine of the newcomer; must not block
}

// newSourceLimit returns a sourceLimit for max guests, maxPrefix of one prefix.
func newSourceLimit(max, maxPrefix int) *sourceLimit {
	return &sourceLimit{max: max, maxPrefix: maxPrefix, prefixes: make(map[netip.Prefix]*prefixEntries)}
}

// resize sets other bounds. Who is there stays.
func (d *sourceLimit) resize(max, maxPrefix int) {
	d.mu.Lock()
	d.max, d.maxPrefix = max, maxPrefix
	d.mu.Unlock()
}

// sourcePrefix is what a sourceLimit counts an address under.
func sourcePrefix(addr netip.Addr) netip.Prefix {
	addr = addr.Unmap().WithZone("")
	bits := 32
	if addr.Is6() {
		bits = 64
	}
	prefix, err := addr.Prefix(bits)
	if err != nil { // no address: all such share one place
		return netip.Prefix{}
	}
	return prefix
}

// enter gives g a place, or says that there is none. evict is called if a newcomer takes the place later; nil: nobody may.
// The guest leaves by leave, also after evict.
func (ls *sourceLimit) enter(g *limitEntry, source netip.Addr, evict func()) bool {
	prefix := sourcePrefix(source)
	ls.mu.Lock()
	c := ls.prefixes[prefix]
	if c != nil && c.count >= ls.maxPrefix {
		ls.mu.Unlock()
		return false
	}
	var out *limitEntry
	if ls.count >= ls.max {
		own := 0
		if c != nil {
			own = c.count
		}
		if out = ls.largestPrefixLocked(own + 2); out == nil {
			ls.mu.Unlock()
			return false
		}
		ls.removeLocked(out)
	}
	if c == nil {
		c = &prefixEntries{prefix: prefix}
		ls.prefixes[prefix] = c
	}
	ls.addLocked(c, g, evict)
	ls.mu.Unlock()
	if out != nil {
		out.evict()
	}
	return true
}

// reassign changes whom evict calls from now on; false: g has no place, or was made to leave.
func (d *sourceLimit) reassign(g *limitEntry, evict func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if g.group == nil {
		return false
	}
	g.evict = evict
	return true
}

// leave gives the place back. A guest that has none, or was made to leave, is ignored.
func (d *sourceLimit) leave(g *limitEntry) {
	d.mu.Lock()
	if g.group != nil {
		d.removeLocked(g)
	}
	d.mu.Unlock()
}

// size counts the guests.
func (d *sourceLimit) size() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.count
}

// largestPrefixLocked returns the oldest guest that may be evicted of the prefix with the most guests, least or more of them.
// It looks at every prefix: at most max of them, and only while the limit is reached.
func (d *sourceLimit) largestPrefixLocked(atLeast int) *limitEntry {
	var largest *prefixEntries
	for _, c := range d.prefixes {
		if c.count >= atLeast && (largest == nil || c.count > largest.count) {
			largest = c
		}
	}
	if largest == nil {
		return nil
	}
	for g := largest.first; g != nil; g = g.next {
		if g.evict != nil {
			return g
		}
	}
	return nil
}

func (d *sourceLimit) addLocked(c *prefixEntries, g *limitEntry, evict func()) {
	*g = limitEntry{group: c, prev: c.last, evict: evict}
	if c.last != nil {
		c.last.next = g
	} else {
		c.first = g
	}
	c.last = g
	c.count++
	d.count++
}

func (d *sourceLimit) removeLocked(g *limitEntry) {
	c := g.group
	if g.prev != nil {
		g.prev.next = g.next
	} else {
		c.first = g.next
	}
	if g.next != nil {
		g.next.prev = g.prev
	} else {
		c.last = g.prev
	}
	g.group, g.prev, g.next = nil, nil, nil
	c.count--
	d.count--
	if c.count == 0 {
		delete(d.prefixes, c.prefix)
	}
}
