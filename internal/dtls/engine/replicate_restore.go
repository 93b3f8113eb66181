package engine

import (
	"github.com/weir-lb/weir/internal/dtls/record"
)

// restoredAtOnce is how many sessions a worker takes before it serves again.
const restoredAtOnce = 256

// Restore is a session of a process that has ended, which goes on here.
type Restore struct {
	Copy             *Copy
	Static, Changing []byte // those of Copy, which others may wipe meanwhile; Restore wipes Static
	Start            uint64 // next sequence number
}

// Restore makes sessions of copies, each on the worker of its connection id, and calls done there for each one. They have Copies that the Replicator
// knows already; if it cannot, it calls done here. Start is above every sequence number that was used, and they begin with requests that need a proof of freshness (Peer.NeedsFreshness).
func (w *Worker) Restore(all []Restore, done func(w *Worker, c *Copy, owner uint32, ok bool)) {
	parts := make([][]Restore, max(1, len(w.workers)))
	for _, r := range all {
		to := w.id
		if state, _, err := parseCopy(r.Static, r.Changing, w.now); err == nil {
			if i, ok := w.cfg.CIDs.worker(state.ReadCID, len(w.workers)); ok {
				to = i
			}
		}
		parts[to] = append(parts[to], r)
	}
	for i, part := range parts {
		for len(part) > 0 {
			n := min(len(part), restoredAtOnce)
			to, now := w.workers[i], part[:n]
			part = part[n:]
			take := func() {
				to.beginRound()
				for _, r := range now {
					owner, ok := to.restoreCopy(r)
					done(to, r.Copy, owner, ok)
				}
			}
			if !to.Post(take) { // never at once: the caller may be in the middle of a datagram, or hold locks of the cluster
				for _, r := range now {
					clear(r.Static)
					done(w, r.Copy, 0, false)
				}
			}
		}
	}
}

// restoreCopy enters a session. owner is that of its connection id.
func (w *Worker) restoreCopy(r Restore) (owner uint32, ok bool) {
	defer clear(r.Static)
	if r.Copy.Life != w.copying.life {
		return 0, false
	}
	state, rest, err := parseCopy(r.Static, r.Changing, w.now)
	if err != nil || len(state.ReadCID) == 0 {
		return 0, false
	}
	defer clear(state.Keys.ServerKey[:])
	defer clear(state.Keys.ClientKey[:])
	owner, _, ok = w.cfg.CIDs.owner(state.ReadCID)
	state.Sent = r.Start
	association, err := record.NewResting(state.Suite, &state.Keys, record.Server, state.ReadCID, state.WriteCID)
	if err != nil || !ok || !w.fits(&state) {
		return owner, false
	}
	p := w.resume(&state, association)
	p.copy, p.unfresh = r.Copy, true
	w.keep(p, &state.Keys, p.noteOf(r.Copy.limit.Load())) // at once: the session is among those that this process has copied already
	w.stats.TakenOver++
	if w.moving != nil {
		w.moving.Import(p, rest, w.now)
	}
	return owner, true
}

// NeedsFreshness reports whether the peer's session was taken over from a process that has ended, and its client has not proven since that its
// requests are new ones: an attacker may repeat records that the other process has received (RFC 9175 section 2.3).
func (p *Peer) NeedsFreshness() bool { return p.unfresh }

// Fresh says that the client has proven it.
func (p *Peer) Fresh() {
	if !p.unfresh {
		return
	}
	p.unfresh = false
	if p.copy != nil {
		p.note(p.copy.limit.Load())
	} else {
		p.note(0)
	}
}

// Returning has sessions stay that were to leave for another engine, as soon as they may. It returns how many still wait.
func (w *Worker) Returning() int {
	waiting := w.copying.leaving[:0]
	for _, p := range w.copying.leaving {
		switch {
		case p.closed || !p.leaving:
		case !p.copy.removed.Load():
			waiting = append(waiting, p)
		default:
			c := p.copy
			p.copy, p.leaving = nil, false
			w.copying.to.Stay(c, p.association.ReadCID())
			w.enter(p)
		}
	}
	clear(w.copying.leaving[len(waiting):])
	w.copying.leaving = waiting
	return len(waiting)
}

// mayLeave reports whether a session may leave for another engine: no copy of it can be restored. It begins to remove the copy.
func (w *Worker) mayLeave(p *Peer) bool {
	switch {
	case p.copy == nil:
		return true
	case !p.leaving:
		p.leaving, p.watermark = true, 0
		w.copying.leaving = append(w.copying.leaving, p)
		w.copying.to.Leave(w, p.copy, p.association.ReadCID())
	}
	return p.copy.removed.Load()
}
