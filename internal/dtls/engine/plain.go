package engine

import (
	"net/netip"

	"github.com/weir-lb/weir/internal/steering/evict"
)

// plainPeers says which plain peer makes room in a full table. The bound is Config.MaxSessions. A peer whose proof has
// expired goes first, then an unproven one: of the source that holds most of them the one silent longest. Of the places
// one in reserve is never given to proven peers for good: a peer that proves itself beyond them may be answered in full,
// but stays evictable. Counted by Stats.UnprovenEvicted, Stats.Evicted and Stats.UnprovenPeers.
type plainPeers struct {
	order   evict.Order[evict.Source]
	peers   []*Peer // by slot
	free    []int32
	settled int // peers that are proven and not in the order
	most    int // of settled
}

// reserve is the share of the table's places that unproven peers can always have: one in 16.
const reserve = 16

func newPlainPeers(places int) plainPeers { return plainPeers{most: places - max(1, places/reserve)} }

// unproven makes p evictable.
func (t *plainPeers) unproven(p *Peer) {
	if p.slot > 0 {
		return
	}
	if p.settled {
		p.settled = false
		t.settled--
	}
	if n := len(t.free); n > 0 {
		p.slot, t.free = t.free[n-1], t.free[:n-1]
	} else {
		t.peers = append(t.peers, nil)
		p.slot = int32(len(t.peers)) // 0 is none
	}
	t.peers[p.slot-1] = p
	t.order.Add(p.slot-1, evict.SourceOf(p.addr.Addr()))
}

// proven keeps p from being evicted, if the share of proven peers is not full.
func (t *plainPeers) proven(p *Peer) {
	if p.settled {
		return
	}
	if t.settled >= t.most {
		t.unproven(p)
		return
	}
	t.leave(p)
	p.settled = true
	t.settled++
}

func (t *plainPeers) leave(p *Peer) {
	if p.slot == 0 {
		return
	}
	t.order.Remove(p.slot - 1)
	t.peers[p.slot-1] = nil
	t.free = append(t.free, p.slot)
	p.slot = 0
}

// remove forgets a peer that has ended.
func (t *plainPeers) remove(p *Peer) {
	t.leave(p)
	if p.settled {
		p.settled = false
		t.settled--
	}
}

// touch notes that p has been heard of.
func (t *plainPeers) touch(p *Peer) {
	if p.slot > 0 {
		t.order.Renew(p.slot - 1)
	}
}

// plain handles a datagram without DTLS.
func (w *Worker) plain(d []byte, from source) {
	p := w.peers.byAddress[from.addr]
	if p == nil {
		w.makePlainRoom()
		p = &Peer{addr: from.addr, established: w.now, provenUntil: w.now, unproven: true}
		w.peers.add(p, w.now)
		if w.cfg.Trusted(from.addr.Addr().Unmap()) {
			p.unproven, p.provenUntil = false, Never
			w.plainPeers.proven(p)
		} else {
			w.plainPeers.unproven(p)
		}
	}
	p.local = from.local
	w.peers.touch(p, w.now)
	if !p.unproven && w.now >= p.provenUntil {
		p.unproven, p.budget = true, 0
		w.plainPeers.unproven(p)
	}
	if p.unproven {
		w.plainPeers.touch(p)
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
		slot, _ := w.plainPeers.order.First() // there is one: fewer are settled than the table has places
		p = w.plainPeers.peers[slot]
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
