package engine

import (
	"net/netip"
	"time"

	"github.com/weir-lb/weir/internal/dtls/handshake"
)

// halfOpenLife is how long a handshake may take.
const halfOpenLife = 30 * time.Second

// halfOpen is a handshake under way; its address is proven by a cookie.
type halfOpen struct {
	addr    netip.AddrPort
	local   netip.Addr
	prefix  netip.Prefix
	pending *handshake.Pending
	expires time.Duration
	due     time.Duration // of its next timer
	at      int           // in the heap
}

// halfOpens is a worker's bounded table of them, with a heap by due time.
type halfOpens struct {
	byAddress map[netip.AddrPort]*halfOpen
	prefixes  map[netip.Prefix]int
	heap      []*halfOpen
	max, each int // in all, and per prefix
}

func newHalfOpens(most, each int) halfOpens {
	return halfOpens{byAddress: make(map[netip.AddrPort]*halfOpen), prefixes: make(map[netip.Prefix]int), max: most, each: each}
}

// prefixOf is the prefix that shares a limit: /24 of IPv4, /48 of IPv6.
func prefixOf(a netip.Addr) netip.Prefix {
	a = a.Unmap()
	bits := 48
	if a.Is4() {
		bits = 24
	}
	p, _ := a.Prefix(bits) // cannot fail: bits suit the family
	return p
}

// room reports whether one more from addr may be kept.
func (t *halfOpens) room(addr netip.AddrPort) bool {
	if _, ok := t.byAddress[addr]; ok {
		return true // it is replaced
	}
	return len(t.byAddress) < t.max && t.prefixes[prefixOf(addr.Addr())] < t.each
}

// put enters a handshake in place of an older one of that address.
func (t *halfOpens) put(addr netip.AddrPort, local netip.Addr, p *handshake.Pending, now time.Duration) {
	if old := t.byAddress[addr]; old != nil {
		t.remove(old)
	}
	h := &halfOpen{addr: addr, local: local, prefix: prefixOf(addr.Addr()), pending: p, expires: now + halfOpenLife, at: len(t.heap)}
	h.due = min(p.Deadline(), h.expires)
	t.byAddress[addr] = h
	t.prefixes[h.prefix]++
	t.heap = append(t.heap, h)
	t.up(h.at)
}

func (t *halfOpens) remove(h *halfOpen) {
	delete(t.byAddress, h.addr)
	if t.prefixes[h.prefix]--; t.prefixes[h.prefix] == 0 {
		delete(t.prefixes, h.prefix)
	}
	last := len(t.heap) - 1
	i := h.at
	t.swap(i, last)
	t.heap[last] = nil
	t.heap = t.heap[:last]
	if i < last {
		t.fix(i)
	}
}

// next returns the due time of the first one, or Never.
func (t *halfOpens) next() time.Duration {
	if len(t.heap) == 0 {
		return Never
	}
	return t.heap[0].due
}

// postpone sets when h is due.
func (t *halfOpens) postpone(h *halfOpen, due time.Duration) {
	h.due = min(due, h.expires)
	t.fix(h.at)
}

func (t *halfOpens) fix(i int) {
	if !t.down(i) {
		t.up(i)
	}
}

func (t *halfOpens) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if t.heap[parent].due <= t.heap[i].due {
			return
		}
		t.swap(i, parent)
		i = parent
	}
}

func (t *halfOpens) down(i int) (moved bool) {
	for {
		child := 2*i + 1
		if child >= len(t.heap) {
			return moved
		}
		if child+1 < len(t.heap) && t.heap[child+1].due < t.heap[child].due {
			child++
		}
		if t.heap[i].due <= t.heap[child].due {
			return moved
		}
		t.swap(i, child)
		i, moved = child, true
	}
}

func (t *halfOpens) swap(i, j int) {
	t.heap[i], t.heap[j] = t.heap[j], t.heap[i]
	t.heap[i].at, t.heap[j].at = i, j
}
