package gateway

import (
	"net/netip"
	"sync"
)

// sourceLimit limits how many of one kind (handshakes, connections without an allocation, connections) exist at once, in total
// and per source prefix: /32 of IPv4, /64 of IPv6, which is what one subscriber commonly has. If it is full, a new entry replaces
// the oldest entry of the prefix with the most entries, if that prefix has at least two more than its own. So a flood from few
// prefixes does not exclude other sources. Sources are verified here: each completed a TCP handshake or returned a cookie.
// Any goroutine may call it.
type sourceLimit struct {
	mu             sync.Mutex
	max, maxPrefix int
	count          int
	prefixes       map[netip.Prefix]*prefixEntries
}

// prefixEntries are the entries of one prefix, oldest first.
type prefixEntries struct {
	prefix      netip.Prefix
	first, last *limitEntry
	count       int
}

// limitEntry is one entry of a sourceLimit. The zero value is in none.
type limitEntry struct {
	group      *prefixEntries
	prev, next *limitEntry
	evict      func() // called once when the entry is replaced, without the lock, on the goroutine of the new entry; must not block
}

// newSourceLimit returns a sourceLimit for max entries, and maxPrefix entries of one prefix.
func newSourceLimit(max, maxPrefix int) *sourceLimit {
	return &sourceLimit{max: max, maxPrefix: maxPrefix, prefixes: make(map[netip.Prefix]*prefixEntries)}
}

// resize sets other limits. Existing entries stay.
func (d *sourceLimit) resize(max, maxPrefix int) {
	d.mu.Lock()
	d.max, d.maxPrefix = max, maxPrefix
	d.mu.Unlock()
}

// sourcePrefix returns the prefix under which a sourceLimit counts an address.
func sourcePrefix(addr netip.Addr) netip.Prefix {
	addr = addr.Unmap().WithZone("")
	bits := 32
	if addr.Is6() {
		bits = 64
	}
	prefix, err := addr.Prefix(bits)
	if err != nil { // invalid addresses share one prefix
		return netip.Prefix{}
	}
	return prefix
}

// enter adds g, or returns false if the limit is reached. evict is called if a new entry replaces g later; with nil,
// g is never replaced. The caller removes g by leave, also after evict.
func (d *sourceLimit) enter(g *limitEntry, source netip.Addr, evict func()) bool {
	prefix := sourcePrefix(source)
	d.mu.Lock()
	c := d.prefixes[prefix]
	if c != nil && c.count >= d.maxPrefix {
		d.mu.Unlock()
		return false
	}
	var out *limitEntry
	if d.count >= d.max {
		own := 0
		if c != nil {
			own = c.count
		}
		if out = d.largestPrefixLocked(own + 2); out == nil {
			d.mu.Unlock()
			return false
		}
		d.removeLocked(out)
	}
	if c == nil {
		c = &prefixEntries{prefix: prefix}
		d.prefixes[prefix] = c
	}
	d.addLocked(c, g, evict)
	d.mu.Unlock()
	if out != nil {
		out.evict()
	}
	return true
}

// reassign replaces the evict function of g. It returns false if g is in no limit or was evicted.
func (d *sourceLimit) reassign(g *limitEntry, evict func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if g.group == nil {
		return false
	}
	g.evict = evict
	return true
}

// leave removes the entry. An entry that is in no limit, or was evicted, is ignored.
func (d *sourceLimit) leave(g *limitEntry) {
	d.mu.Lock()
	if g.group != nil {
		d.removeLocked(g)
	}
	d.mu.Unlock()
}

// largestPrefixLocked returns the oldest entry that may be evicted of the prefix with the most entries, if that
// prefix has at least atLeast of them. It looks at every prefix: at most max of them, and only while the limit is
// reached.
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
