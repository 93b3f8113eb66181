package engine

import (
	"net/netip"

	"github.com/weir-lb/weir/internal/steering/evict"
	"github.com/weir-lb/weir/internal/steering/slab"
)

// plainPeers is the order in which plain peers are evicted. The table itself is peers, whose bound is Config.MaxSessions. A
// full table first evicts a peer whose proof has expired. Otherwise it evicts an unproven peer: of the source that holds
// most of them, the one that has been silent longest. A part of the slots is in reserve and never belongs to proven peers
// permanently: a peer that proves itself when all other slots are taken gets full answers, but can still be evicted. Counted
// by Stats.UnprovenEvicted, Stats.Evicted and Stats.UnprovenPeers.
type plainPeers struct {
	slots slab.Numbers[Peer]
	order evict.Order[evict.Source] // peers that can be evicted
	count int                       // of all peers
	limit int                       // maximum of peers that cannot be evicted
}

// reserve is the share of the slots that unproven peers can always have: 1/reserve of the table.
const reserve = 16

func newPlainPeers(size int) plainPeers { return plainPeers{limit: size - max(1, size/reserve)} }

// add enters p as a peer that can be evicted.
func (t *plainPeers) add(p *Peer) {
	p.slot = t.slots.Put(p)
	t.count++
	t.unproven(p)
}

func (t *plainPeers) unproven(p *Peer) {
	if !t.order.Has(p.slot) {
		t.order.Add(p.slot, evict.SourceOf(p.addr.Addr()))
	}
}

// proven protects p from eviction, if slots for such peers are left.
func (t *plainPeers) proven(p *Peer) {
	if t.count-t.order.Len() < t.limit {
		t.order.Remove(p.slot)
	}
}

// touch records that a datagram of p has arrived.
func (t *plainPeers) touch(p *Peer) { t.order.Renew(p.slot) }

func (t *plainPeers) remove(p *Peer) {
	t.order.Remove(p.slot)
	t.slots.Remove(p.slot)
	t.count--
}

// plain handles a datagram without DTLS.
func (w *Worker) plain(d []byte, from source) {
	p := w.plainPeer(from, len(d))
	p.local = from.local
	w.serve(p, d)
}

// Credit returns the plain peer at an address from which received bytes have come on another socket, such as that of a multicast
// group. They count for what may be sent there. It is for workers without DTLS.
func (w *Worker) Credit(from netip.AddrPort, received int) *Peer {
	w.stats.Datagrams++
	w.stats.BytesIn += uint64(received)
	return w.plainPeer(source{addr: from}, received)
}

// plainPeer returns the peer at the source of a datagram of received bytes.
func (w *Worker) plainPeer(from source, received int) *Peer {
	p := w.peers.byAddress[from.addr]
	if p == nil {
		w.makePlainRoom()
		p = &Peer{addr: from.addr, established: w.now, provenUntil: w.now, unproven: true}
		w.peers.add(p, w.now)
		w.plainPeers.add(p)
		if w.cfg.Trusted(from.addr.Addr().Unmap()) {
			p.unproven, p.provenUntil = false, Never
			w.plainPeers.proven(p)
		}
	}
	w.peers.touch(p, w.now)
	w.plainPeers.touch(p)
	if !p.unproven && w.now >= p.provenUntil {
		p.unproven, p.budget = true, 0
		w.plainPeers.unproven(p)
	}
	if p.unproven {
		w.credit(p, received)
	}
	return p
}

// makePlainRoom ensures that there is room for one more plain peer.
func (w *Worker) makePlainRoom() {
	if w.peers.count < w.cfg.MaxSessions {
		return
	}
	p := w.peers.oldest
	if p.unproven || w.now < p.provenUntil {
		slot, _ := w.plainPeers.order.First() // never empty: some slots always belong to peers that can be evicted
		p = w.plainPeers.slots.At(slot)
	}
	if p.unproven {
		w.stats.UnprovenEvicted++
	} else {
		w.stats.Evicted++
	}
	w.drop(p)
}

// loopback reports whether a is a loopback address. These sources cannot be forged from outside of the machine.
func loopback(a netip.Addr) bool { return a.IsLoopback() }
