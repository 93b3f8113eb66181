package engine

import (
	"net/netip"
	"time"

	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/steering/evict"
	"github.com/weir-lb/weir/internal/steering/heap"
	"github.com/weir-lb/weir/internal/steering/slab"
)

// halfOpen is an unfinished handshake whose address a cookie has proven.
type halfOpen struct {
	addr    netip.AddrPort
	local   netip.Addr
	pending *handshake.Pending
	state   any // of Admission
	expires time.Duration
	slot    int32 // in the orders of eviction and of due times
}

// halfOpens is a worker's table of handshakes under way, with a heap by due time.
//
// An entry is made when the client has returned the cookie. It ends when the client's second flight arrives, or after
// Config.HandshakeLife. The table holds Config.MaxHalfOpen entries. When it is full, a new handshake evicts another one as package
// evict says, so no handshake is refused. A flood from few sources evicts its own handshakes. In a flood from many sources,
// or from the client's own NAT address, an entry lives for as long as the flood needs to renew the table. With 8192 entries
// at 3000/s this is 2.7 s, far longer than a round trip. Stats.HalfOpenEvicted counts evictions.
//
// An entry takes 1.2 kB, and up to 3.5 kB once its keys are derived, with an identity of 1024 bytes (TestHalfOpenMemory). A
// full table takes at most 29 MB. What varies comes in addition: our flights with certificates, clients' messages, and records
// that came before their keys. All handshakes of a worker hold at most 8 MiB of that (handshake.MaxHeld); beyond it handshakes
// are evicted in the same order (Worker.boundHalfOpens).
type halfOpens struct {
	byAddress map[netip.AddrPort]*halfOpen
	due       heap.Heap[time.Duration] // slots
	slots     slab.Numbers[halfOpen]
	bySource  evict.Order[evict.Source]
	max       int
	life      time.Duration
}

func newHalfOpens(limit int, life time.Duration) halfOpens {
	return halfOpens{byAddress: make(map[netip.AddrPort]*halfOpen), max: limit, life: life}
}

// put enters a handshake and returns the one that it has removed for it: an older one of that address, or, if the table is full,
// the one to evict.
func (t *halfOpens) put(addr netip.AddrPort, local netip.Addr, p *handshake.Pending, state any, now time.Duration) (removed *halfOpen) {
	if removed = t.byAddress[addr]; removed == nil && t.due.Len() >= t.max {
		removed = t.first()
	}
	if removed != nil {
		t.remove(removed)
	}
	h := &halfOpen{addr: addr, local: local, pending: p, state: state, expires: now + t.life}
	h.slot = t.slots.Put(h)
	t.bySource.Add(h.slot, evict.SourceOf(addr.Addr()))
	t.byAddress[addr] = h
	t.due.Set(h.slot, min(p.Deadline(), h.expires))
	return removed
}

// first returns the entry to evict. The table must not be empty.
func (t *halfOpens) first() *halfOpen {
	slot, _ := t.bySource.First()
	return t.slots.At(slot)
}

func (t *halfOpens) remove(h *halfOpen) {
	h.pending.Release()
	delete(t.byAddress, h.addr)
	t.bySource.Remove(h.slot)
	t.due.Remove(h.slot)
	t.slots.Remove(h.slot)
}

// next returns the due time of the first one, or Never.
func (t *halfOpens) next() time.Duration {
	if _, due, ok := t.due.First(); ok {
		return due
	}
	return Never
}

// dueBy returns the first one if it is due at now, or nil.
func (t *halfOpens) dueBy(now time.Duration) *halfOpen {
	if slot, due, ok := t.due.First(); ok && due <= now {
		return t.slots.At(slot)
	}
	return nil
}

// postpone sets when h is due.
func (t *halfOpens) postpone(h *halfOpen, due time.Duration) {
	t.due.Set(h.slot, min(due, h.expires))
}
