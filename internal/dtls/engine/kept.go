package engine

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/dtls/arena"
	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/record"
	"github.com/weir-lb/weir/internal/udpio"
)

// A session with a slot in Config.Arena goes on in the next process. The order of the stores decides what a crash can do:
//
//	the send sequence is stored, then the record is sealed, then sent      a sequence number is never used twice
//	a record opens, the window is stored, then the Handler is called       a record is never handled twice
//
// Datagrams under way are left to the next process, too: inflight.go.
//
// What is lost with a process: handshakes under way, the final flight of a session whose client has sent nothing yet, and the byte
// budget of an unproven address, which begins at 0 again.

// Kept returns the bytes of the session's slot that belong to the Handler, zero at first; nil: the session ends with the process.
func (p *Peer) Kept() []byte {
	if p.kept == nil {
		return nil
	}
	b := p.kept.Application()
	if p.noted {
		b = b[:len(b)-arena.NoteSize]
	}
	return b
}

// keep gives a new session its slot.
func (w *Worker) keep(p *Peer, keys *record.Keys, note uint64) {
	if w.cfg.Arena == nil {
		return
	}
	a := p.association
	state := arena.State{
		Suite: a.Suite(), Keys: *keys, ReadCID: a.ReadCID(), WriteCID: a.WriteCID(), Limit: a.PlaintextLimit(),
		Auth: uint8(p.holder.auth), Identity: p.Identity(), Flags: p.flags(), Established: p.established,
		Worker: w.id, Active: w.now, Sent: a.Sent(), Forged: a.Forged(), Window: a.Window(), Path: p.pathNow(), Note: note,
	}
	if p.kept = w.cfg.Arena.Put(&state); p.kept == nil {
		w.stats.NotKept++
		return
	}
	p.noted = w.copying.to != nil
	w.stats.Kept++
}

// release frees the slot, and the copy, of a session that has ended.
func (w *Worker) release(p *Peer) {
	w.leaveCopies(p)
	if p.kept != nil {
		w.cfg.Arena.Remove(p.kept)
		p.kept = nil
		w.stats.Kept--
	}
}

func (p *Peer) flags() (f arena.Flags) {
	for _, flag := range []struct {
		on bool
		is arena.Flags
	}{{p.hasCID, arena.HasCID}, {p.extended, arena.ExtendedMaster}, {p.secure, arena.Renegotiation}, {p.routable, arena.Routability}} {
		if flag.on {
			f |= flag.is
		}
	}
	return f
}

func (p *Peer) pathNow() arena.Path {
	return arena.Path{Addr: p.addr, Local: p.local, Proven: !p.unproven}
}

// keepSent stores that the next sequence number may be used. It is to be called before the record is sealed.
func (p *Peer) keepSent() {
	if p.kept != nil {
		p.kept.Advance(p.association.Sent() + 1)
	}
}

// keepReceived stores that a record has come.
func (w *Worker) keepReceived(p *Peer, renewed bool) {
	if p.kept == nil {
		return
	}
	p.kept.Received(p.association.Window())
	if renewed {
		p.kept.Active(w.now)
	}
}

func (p *Peer) keepForged() {
	if p.kept != nil {
		p.kept.Forged(p.association.Forged())
	}
}

func (p *Peer) keepPath() {
	if p.kept != nil {
		p.kept.Move(p.pathNow())
	}
}

// restore takes over the sessions of an earlier process, which may have had another number of workers.
func (e *Engine) restore(now time.Duration) {
	if e.cfg.Arena == nil {
		return
	}
	kept := e.cfg.Arena.Restored()
	all := make([]*arena.Restored, len(kept)) // they are large, and sorting moves them
	for i := range kept {
		all[i] = &kept[i]
	}
	slices.SortFunc(all, func(a, b *arena.Restored) int { return cmp.Compare(a.State.Active, b.State.Active) })
	at := map[netip.AddrPort]int{}
	for _, r := range all {
		w := e.workers[e.workerOf(&r.State)]
		w.now = now
		w.beginRound()
		if p := w.restore(r); p != nil && p.byAddress {
			at[p.addr] = w.id
		}
	}
	for _, w := range e.workers {
		w.restoredAt = at
		w.publish()
	}
}

// workerOf returns the worker of a session: the one in the hint of its connection id, else the one that it had.
func (e *Engine) workerOf(state *arena.State) int {
	if e.cfg.CIDs != nil && len(state.ReadCID) > 0 {
		if i, ok := e.cfg.CIDs.worker(state.ReadCID, len(e.workers)); ok {
			return i
		}
	}
	return state.Worker % len(e.workers)
}

// restore makes a session of a slot, or frees the slot and returns nil. The session rests until its next authentic record: so that the process serves
// soon, it does not expand the keys of all sessions first.
func (w *Worker) restore(r *arena.Restored) *Peer {
	state := &r.State
	association, err := record.NewResting(state.Suite, &state.Keys, record.Server, state.ReadCID, state.WriteCID)
	if err != nil || !w.fits(state) {
		w.stats.RestoreLost++
		w.cfg.Arena.Remove(r.Session)
		return nil
	}
	p := w.resume(state, association)
	p.kept, p.noted = r.Session, w.copying.to != nil
	w.stats.Kept++
	if p.noted && !w.restoreNote(p) {
		w.stats.RestoreLost++
		w.forget(p)
		return nil
	}
	r.Session.Assign(w.id)
	w.stats.Restored++
	return p
}

// restoreNote goes on with a session of which other nodes may have copies.
func (w *Worker) restoreNote(p *Peer) bool {
	note, ok := p.kept.Noted()
	if !ok {
		return false
	}
	p.unfresh = note&notedUnfresh != 0
	return w.inherit(p, note&notedLimit)
}

// resume enters a session that has begun elsewhere.
func (w *Worker) resume(state *arena.State, association *record.Association) *Peer {
	association.LimitPlaintext(state.Limit)
	association.Resume(state.Sent, state.Forged, state.Window)
	p := &Peer{
		association: association, addr: state.Path.Addr, local: state.Path.Local, unproven: !state.Path.Proven,
		holder:      holderOf(handshake.Auth(state.Auth), state.Identity, state.Path.Addr),
		established: state.Established, hasCID: state.Flags&arena.HasCID != 0, extended: state.Flags&arena.ExtendedMaster != 0,
		secure: state.Flags&arena.Renegotiation != 0, routable: state.Flags&arena.Routability != 0,
	}
	w.peers.add(p, min(state.Active, w.now))
	w.sessions.add(p)
	return p
}

// fits reports whether a session of an earlier process can go on here: there is room, its connection id is of the length that records
// are parsed with, of this node, and no other session's, as is its address without one.
func (w *Worker) fits(state *arena.State) bool {
	if w.server == nil || w.peers.count >= w.cfg.MaxSessions {
		return false
	}
	if len(state.ReadCID) == 0 {
		return w.peers.byAddress[state.Path.Addr] == nil
	}
	if len(state.ReadCID) != w.cidLength || w.peers.byCID[makeKey(state.ReadCID)] != nil {
		return false
	}
	if w.cfg.Cluster == nil {
		return true
	}
	owner, own, ok := w.cfg.CIDs.owner(state.ReadCID)
	return ok && (own || w.mover != nil && w.mover.Hold(owner))
}

// forgetRestored ends the restored session of another worker whose client has made a new one here. Without connection ids the kernel
// chooses the worker, and it may choose another one when their number has changed.
func (w *Worker) forgetRestored(addr netip.AddrPort) {
	to, ok := w.restoredAt[addr]
	if !ok || to == w.id {
		return
	}
	other := w.workers[to]
	other.Post(func() {
		if old := other.peers.byAddress[addr]; old != nil {
			other.stats.Replaced++
			old.replaced = true
			other.drop(old)
		}
	})
}

// listenOrAdopt opens the sockets of a group, or takes over those of an earlier process.
func listenOrAdopt(cfg udpio.Config, sockets []int) (*udpio.Group, error) {
	if len(sockets) == 0 {
		return udpio.Listen(cfg)
	}
	return udpio.ListenWith(cfg, sockets)
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

func descriptors(g *udpio.Group) (fds []int) {
	if g != nil {
		for i := range g.Len() {
			fds = append(fds, g.Conn(i).FD())
		}
	}
	return fds
}
