package engine

import (
	"net/netip"

	"github.com/weir-lb/weir/internal/steering/evict"
	"github.com/weir-lb/weir/internal/steering/slab"
)

// plainPeers is the order in which plain peers are evicted. The table itself is peers, whose bound is Config.MaxSessions. In
// a full one a peer whose proof has expired makes room, then an unproven one: of the source that holds most of them the one
// silent longest. One place in reserve is never given to proven peers for good: a peer that proves itself beyond the others may
// be answered in full, but can still be evicted. Counted by Stats.UnprovenEvicted, Stats.Evicted and Stats.UnprovenPeers.
type plainPeers struct {
	slots slab.Numbers[Peer]
	order evict.Order[evict.Source] // peers that can be evicted
	count int                       // of all peers
	most  int                       // of those that cannot
}

// reserve is the share of the table's places that unproven peers can always have: one in 16.
const reserve = 16

func newPlainPeers(places int) plainPeers { return plainPeers{most: places - max(1, places/reserve)} }

// add enters p as one that can be evicted.
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

// proven keeps p from being evicted, if there are places left for such peers.
func (t *plainPeers) proven(p *Peer) {
	if t.count-t.order.Len() < t.most {
		t.order.Remove(p.slot)
	}
}

// touch notes that p has been heard of.
func (t *plainPeers) touch(p *Peer) { t.order.Renew(p.slot) }

func (t *plainPeers) remove(p *Peer) {
	t.order.Remove(p.slot)
	t.slots.Remove(p.slot)
	t.count--
}

// plain handles a datagram without DTLS.
func (w *Worker) plain(d []byte, from source) {
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
	p.local = from.local
	w.peers.touch(p, w.now)
	w.plainPeers.touch(p)
	if !p.unproven && w.now >= p.provenUntil {
		p.unproven, p.budget = true, 0
		w.plainPeers.unproven(p)
	}
	if p.unproven {
		w.credit(p, len(d))
	}
	w.serve(p, d)
}

// makePlainRoom makes sure that one more plain peer may be kept.
func (w *Worker) makePlainRoom() {
	if w.peers.count < w.cfg.MaxSessions {
		return
	}
	p := w.peers.oldest
	if p.unproven || w.now < p.provenUntil {
		slot, _ := w.plainPeers.order.First() // there is one: some places are never given to peers that cannot be evicted
		p = w.plainPeers.slots.At(slot)
	}
	if p.unproven {
		w.stats.UnprovenEvicted++
	} else {
		w.stats.Evicted++
	}
	w.drop(p)
}

// loopback sources cannot be forged from outside of the machine.
func loopback(a netip.Addr) bool { return a.IsLoopback() }
