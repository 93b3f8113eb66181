package engine

import (
	"hash/maphash"
	"net/netip"
	"time"

	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/steering/evict"
	"github.com/weir-lb/weir/internal/steering/slab"
)

// sessions is the order in which a worker's sessions are evicted: see makeRoom. The table itself is peers.
type sessions struct {
	slots      slab.Numbers[Peer]
	byIdentity evict.Order[holder]   // of an identity the longest silent first
	superseded evict.Order[struct{}] // the longest superseded first
	addresses  addresses
}

// newSessions makes an order that knows where to find this many sessions with connection ids.
func newSessions(withCID int) sessions { return sessions{addresses: newAddresses(withCID)} }

func (t *sessions) add(p *Peer) {
	p.slot = t.slots.Put(p)
	t.byIdentity.Add(p.slot, p.holder)
	t.at(p)
}

func (t *sessions) remove(p *Peer) {
	t.byIdentity.Remove(p.slot)
	t.superseded.Remove(p.slot)
	t.slots.Remove(p.slot)
}

// touch records that a message of p has arrived. renewed: its position in the list of peers has changed.
func (t *sessions) touch(p *Peer, renewed bool) {
	if renewed {
		t.byIdentity.Renew(p.slot)
	}
	if t.superseded.Len() > 0 {
		t.superseded.Remove(p.slot)
	}
}

// holder is who has a share of the table: an identity, or, as clients without one would all have the same share, the source of a
// client that is anonymous. Different proofs make different identities, even where their names are equal.
type holder struct {
	auth handshake.Auth
	name string
}

func holderOf(auth handshake.Auth, identity string, addr netip.AddrPort) holder {
	if auth == handshake.AuthNone {
		identity = addr.Addr().String()
	}
	return holder{auth, identity}
}

// fewSessions is the maximum number of sessions that one device is assumed to have left behind. If an identity holds more in
// a full table, many devices are assumed to share it.
const fewSessions = 4

// makeRoom reports whether there is room for one more session of an identity; it may evict another session for it. The table
// holds Config.MaxSessions sessions. A full table evicts in this order:
//
//  1. Sessions that a newer one of the same identity, from the same address and port, has superseded.
//  2. Sessions of the identity that holds most, if it holds at least two more than the new one's: the one that has been
//     silent longest. So each identity has a share, which no other one can take.
//  3. If the new one's identity holds 1 to 4 sessions, the one of them that has been silent longest: it is the same device, as
//     likely as not.
//  4. The session of the new one's identity that has been silent longest, or, if the identity holds none, of the whole table,
//     if it has been silent for Config.StaleAfter. That protects sleeping devices that share an identity, and a table in which
//     each device holds its own one session.
//
// Otherwise the new session is refused and its client receives an alert. The refusal comes only after the client has proven
// its key: a refusal at the ClientKeyExchange would reveal to anybody which identities have sessions. Only completed
// handshakes evict sessions. An evicted session receives close_notify, unless a newer session has its address. Stats has a
// counter for each case, and SessionsFull for refusals.
func (w *Worker) makeRoom(identity holder) bool {
	if w.peers.count < w.cfg.MaxSessions {
		return true
	}
	p, evicted := w.victim(identity)
	if p == nil {
		w.stats.SessionsFull++
		return false
	}
	w.stats.Evicted++
	*evicted++
	if evicted == &w.stats.EvictedSuperseded {
		w.drop(p) // its address has a newer session
	} else {
		w.Close(p)
	}
	return true
}

// victim returns the session to evict for a new session of an identity, and the counter of the case. The table must not be
// empty.
func (w *Worker) victim(identity holder) (p *Peer, counter *uint64) {
	t := &w.sessions
	if slot, ok := t.superseded.First(); ok {
		return t.slots.At(slot), &w.stats.EvictedSuperseded
	}
	slot, _ := t.byIdentity.FirstOfLargest()
	p = t.slots.At(slot)
	held := t.byIdentity.Held(identity)
	if t.byIdentity.Held(p.holder) >= held+2 {
		return p, &w.stats.EvictedOverShare
	}
	p = w.peers.oldest
	if held > 0 {
		slot, _ := t.byIdentity.FirstOf(identity)
		p = t.slots.At(slot)
		if held <= fewSessions {
			return p, &w.stats.EvictedOwnIdentity
		}
	}
	if w.now-p.last >= w.cfg.StaleAfter {
		return p, &w.stats.EvictedStale
	}
	return nil, nil
}

// expire ends sessions that have been silent for Config.SessionIdle, a batch at a time.
func (w *Worker) expire() {
	for range w.cfg.Batch {
		if w.idleDue() > w.now {
			return
		}
		w.stats.Expired++
		w.Close(w.peers.oldest)
	}
}

// idleDue returns when the next session expires; the result may be late by up to touchGrain.
func (w *Worker) idleDue() time.Duration {
	if w.cfg.SessionIdle == 0 || w.server == nil || w.peers.oldest == nil {
		return Never
	}
	return w.peers.oldest.last + w.cfg.SessionIdle
}

// rest frees what peers do not need that have been silent for RestAfter: their expanded keys, and what the Handler has for them. A
// batch at a time.
func (w *Worker) rest() {
	for range w.cfg.Batch {
		if w.restDue() > w.now {
			return
		}
		p := w.peers.awake
		w.peers.awake = p.newer
		if p.association != nil {
			p.association.Rest()
		}
		if w.resting != nil {
			w.resting.Rest(p, w.now)
		}
	}
}

// restDue returns when the next peer rests; the result may be late by up to touchGrain.
func (w *Worker) restDue() time.Duration {
	if w.peers.awake == nil {
		return Never
	}
	return w.peers.awake.last + RestAfter
}

// addresses finds the session that has most recently moved to an address. The result is a hint that the caller must check,
// because the newer of two addresses that share an element replaces the older.
type addresses struct {
	seed     maphash.Seed
	elements []int32 // slot of the peer, plus 1
}

// maxAddresses bounds the elements of addresses.
const maxAddresses = 1 << 17

func newAddresses(sessions int) addresses {
	n := 1
	for n < 2*sessions && n < maxAddresses {
		n *= 2
	}
	return addresses{seed: maphash.MakeSeed(), elements: make([]int32, n)}
}

func (a *addresses) element(addr netip.AddrPort) *int32 {
	return &a.elements[maphash.Comparable(a.seed, addr)&uint64(len(a.elements)-1)]
}

// at records that p is at its address now.
func (t *sessions) at(p *Peer) {
	if !p.byAddress {
		*t.addresses.element(p.addr) = p.slot + 1
	}
}

// supersede marks the session that p, which is not in the table yet, most likely replaces: the one of the same identity at
// the same address. The session is not ended, because another device of a shared identity may have had the address before. A
// record of the session removes the mark.
func (t *sessions) supersede(p *Peer) {
	slot := *t.addresses.element(p.addr) - 1
	if slot < 0 {
		return
	}
	if old := t.slots.At(slot); old != nil && !old.byAddress && old.addr == p.addr && old.holder == p.holder {
		t.superseded.Add(slot, struct{}{})
	}
}
