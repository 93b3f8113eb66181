package engine

import (
	"net/netip"
	"time"

	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/steering/evict"
)

// halfOpenLife is how long a handshake may take.
const halfOpenLife = 30 * time.Second

// halfOpen is a handshake under way; its address is proven by a cookie.
type halfOpen struct {
	addr    netip.AddrPort
	local   netip.Addr
	pending *handshake.Pending
	expires time.Duration
	due     time.Duration // of its next timer
	at      int           // in the heap
	slot    int32         // in the orders of eviction
}

// halfOpens is a worker's table of handshakes under way, with a heap by due time.
//
// An entry is made once the cookie has come back, and lives until the client's second flight has come, for halfOpenLife at
// the longest. The table holds Config.MaxHalfOpen entries. When it is full, a new handshake evicts one, as package
// evict says. No handshake is refused. A flood from few sources evicts its own handshakes. In a
// flood from many sources, or from the same NAT address as the client, an entry lives for as long as the flood needs to
// renew the table: 8192 entries at 3000/s are 2.7 s, which is far longer than a round trip. Stats.HalfOpenEvicted counts
// evictions.
//
// An entry takes 1.2 kB, and up to 3.5 kB once its keys are derived, with an identity of 1024 bytes (TestHalfOpenMemory): 29 MB
// for a full table at the most. What clients send ahead of their keys is held beside it, 4 MiB for all handshakes of a worker
// (handshake.MaxHeld).
type halfOpens struct {
	byAddress map[netip.AddrPort]*halfOpen
	heap      []*halfOpen
	slots     slots[halfOpen]
	bySource  evict.Order[evict.Source]
	max       int
}

func newHalfOpens(most int) halfOpens {
	return halfOpens{byAddress: make(map[netip.AddrPort]*halfOpen), max: most}
}

// put enters a handshake in place of an older one of that address. It reports whether another one was evicted for it.
func (t *halfOpens) put(addr netip.AddrPort, local netip.Addr, p *handshake.Pending, now time.Duration) (evicted bool) {
	if old := t.byAddress[addr]; old != nil {
		t.remove(old)
	} else if len(t.heap) >= t.max {
		t.remove(t.first())
		evicted = true
	}
	h := &halfOpen{addr: addr, local: local, pending: p, expires: now + halfOpenLife, at: len(t.heap)}
	h.due = min(p.Deadline(), h.expires)
	h.slot = t.slots.put(h)
	t.bySource.Add(h.slot, evict.SourceOf(addr.Addr()))
	t.byAddress[addr] = h
	t.heap = append(t.heap, h)
	t.up(h.at)
	return evicted
}

// first is the entry to evict. The table is not empty.
func (t *halfOpens) first() *halfOpen {
	slot, _ := t.bySource.First()
	return t.slots.entries[slot]
}

func (t *halfOpens) remove(h *halfOpen) {
	h.pending.Release()
	delete(t.byAddress, h.addr)
	t.bySource.Remove(h.slot)
	t.slots.remove(h.slot)
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
