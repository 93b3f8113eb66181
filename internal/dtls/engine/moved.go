package engine

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"time"

	"github.com/weir-lb/weir/internal/dtls/arena"
	"github.com/weir-lb/weir/internal/dtls/record"
)

// A session moves to another engine as plain bytes: its worker takes it out of its tables, after which nothing can seal with its keys
// here, and then writes its sequence number and keys down. Whoever has the bytes has the session: they travel encrypted, are used once,
// and are lost when it is not known whether they were used.

// movedVersion is that of the layout. Sessions of another version are refused.
const movedVersion = 1

const (
	movedFixed  = 1 + 2 + 1 + 1 + 1 + 2 + 6*8 + 2*(32+4) + 16 + 2 // bytes in front of the connection ids
	maxIdentity = 255
)

// Flags of the path.
const (
	movedProven  = 1 << iota
	movedMapped  // the address is one of IPv4
	movedUnfresh // Peer.NeedsFreshness
)

var errMoved = errors.New("engine: these bytes are no session of this version")

// Detach takes up to limit sessions of an owner away from this worker, and passes each to give, with its connection id; both are valid
// during the call. force: also sessions with something under way that will be lost. It returns how many it has given, how many it
// has passed over because of that, and how many may not leave yet, because a copy of them is being removed at another node.
func (w *Worker) Detach(owner uint32, limit int, force bool, give func(id, session []byte)) (given, busy, waiting int) {
	for p := w.peers.oldest; p != nil && given+waiting < limit; {
		next := p.newer
		if !w.movable(p, owner) {
			p = next
			continue
		}
		session, ready := w.export(p)
		switch {
		case !ready && !force && !p.leaving:
			busy++
		case !w.mayLeave(p):
			waiting++
		default:
			id := append([]byte(nil), p.association.ReadCID()...)
			w.leave(p)
			give(id, session)
			given++
		}
		clear(session) // keys
		p = next
	}
	return given, busy, waiting
}

// leave ends a session here without a word to its client.
func (w *Worker) leave(p *Peer) {
	p.leaving = false // what has come meanwhile waits for the other node
	w.forget(p)
	w.stats.MovedOut++
}

// WithCID is how many sessions of this worker have connection ids.
func (w *Worker) WithCID() int { return len(w.peers.byCID) }

// Room is for how many more sessions this worker has room.
func (w *Worker) Room() int { return max(0, w.cfg.MaxSessions-w.peers.count) }

// CIDLength is that of the connection ids that this engine makes, in bytes. Safe from any goroutine.
func (w *Worker) CIDLength() int { return max(0, w.cidLength) }

// Siblings is how many workers the engine has. Safe from any goroutine.
func (w *Worker) Siblings() int { return len(w.workers) }

// movable reports whether a session is one of an owner that can be moved at all.
func (w *Worker) movable(p *Peer, owner uint32) bool {
	if p.byAddress || p.association == nil || len(p.Identity()) > maxIdentity {
		return false
	}
	of, _, known := w.cfg.CIDs.owner(p.association.ReadCID())
	return known && of == owner
}

// export writes a session down. ready: nothing of it is under way.
func (w *Worker) export(p *Peer) (b []byte, ready bool) {
	a, le := p.association, binary.LittleEndian
	window, keys := a.Window(), a.Keys(record.Server)
	b = make([]byte, 0, MaxMoved)
	b = append(b, movedVersion)
	b = le.AppendUint16(b, uint16(a.Suite()))
	b = append(b, uint8(p.holder.auth), uint8(p.flags()), p.pathFlags())
	b = le.AppendUint16(b, uint16(a.PlaintextLimit()))
	for _, v := range []uint64{
		uint64((w.now - p.established).Milliseconds()), uint64((w.now - p.last).Milliseconds()), a.Sent(), a.Forged(), window.Newest(), window.Bits(),
	} {
		b = le.AppendUint64(b, v)
	}
	b = append(append(b, keys.ClientKey[:]...), keys.ServerKey[:]...)
	b = append(append(b, keys.ClientIV[:]...), keys.ServerIV[:]...)
	addr := p.addr.Addr().As16()
	b = le.AppendUint16(append(b, addr[:]...), p.addr.Port())
	for _, part := range [][]byte{a.ReadCID(), a.WriteCID(), []byte(p.Identity())} {
		b = append(append(b, byte(len(part))), part...)
	}
	ready = !p.final.Present()
	if w.moving != nil {
		var idle bool
		b, idle = w.moving.Export(p, b, MaxMoved-len(b), w.now)
		ready = ready && idle
	}
	return b, ready
}

func (p *Peer) pathFlags() (f uint8) {
	if !p.unproven {
		f |= movedProven
	}
	if p.addr.Addr().Is4() {
		f |= movedMapped
	}
	if p.unfresh {
		f |= movedUnfresh
	}
	return f
}

// Attach makes a session of the bytes that another engine's Detach has given, on the worker of its connection id, and calls done there.
// The owner of the connection id must be the one given. session is copied.
func (w *Worker) Attach(owner uint32, session []byte, done func(w *Worker, ok bool)) {
	state, rest, err := parseMoved(session, w.now)
	if err != nil {
		done(w, false)
		return
	}
	if of, _, known := w.cfg.CIDs.owner(state.ReadCID); !known || of != owner {
		done(w, false)
		return
	}
	to := w
	if i, ok := w.cfg.CIDs.worker(state.ReadCID, len(w.workers)); ok {
		to = w.workers[i]
	}
	unfresh := session[5]&movedUnfresh != 0
	if to == w {
		done(w, w.attach(&state, rest, unfresh))
		return
	}
	rest = append([]byte(nil), rest...)
	if !to.Post(func() { done(to, to.attach(&state, rest, unfresh)) }) {
		done(w, false)
	}
}

// attach enters a session of another engine.
func (w *Worker) attach(state *arena.State, rest []byte, unfresh bool) bool {
	association, err := record.NewAssociation(state.Suite, &state.Keys, record.Server, state.ReadCID, state.WriteCID)
	if err != nil || len(state.ReadCID) == 0 || !w.fits(state) {
		return false
	}
	p := w.resume(state, association)
	p.unfresh = unfresh
	w.keep(p, &state.Keys, 0)
	w.enter(p)
	clear(state.Keys.ClientKey[:])
	clear(state.Keys.ServerKey[:])
	w.stats.MovedIn++
	if w.moving != nil {
		w.moving.Import(p, rest, w.now)
	}
	return true
}

// parseMoved reads the bytes of a session. rest is the Handler's.
func parseMoved(b []byte, now time.Duration) (s arena.State, rest []byte, err error) {
	le := binary.LittleEndian
	if len(b) < movedFixed || b[0] != movedVersion {
		return s, nil, errMoved
	}
	s.Suite, s.Auth, s.Flags = record.Suite(le.Uint16(b[1:])), b[3], arena.Flags(b[4])
	path := b[5]
	s.Limit = int(le.Uint16(b[6:]))
	var v [6]uint64
	for i := range v {
		v[i] = le.Uint64(b[8+8*i:])
	}
	s.Established, s.Active = now-age(v[0]), now-age(v[1])
	s.Sent, s.Forged, s.Window = v[2], v[3], record.NewWindow(v[4], v[5])
	b = b[8+8*len(v):]
	b = b[copy(s.Keys.ClientKey[:], b):]
	b = b[copy(s.Keys.ServerKey[:], b):]
	b = b[copy(s.Keys.ClientIV[:], b):]
	b = b[copy(s.Keys.ServerIV[:], b):]
	addr := netip.AddrFrom16([16]byte(b))
	if path&movedMapped != 0 {
		addr = addr.Unmap()
	}
	s.Path = arena.Path{Addr: netip.AddrPortFrom(addr, le.Uint16(b[16:])), Proven: path&movedProven != 0}
	b = b[18:]
	var parts [3][]byte
	for i := range parts {
		if len(b) < 1 || len(b) < 1+int(b[0]) {
			return s, nil, errMoved
		}
		parts[i], b = append([]byte(nil), b[1:1+b[0]]...), b[1+b[0]:]
	}
	s.ReadCID, s.WriteCID, s.Identity = parts[0], parts[1], string(parts[2])
	return s, b, nil
}

// maxAge bounds what another node says about how old a session is.
const maxAge = 10 * 365 * 24 * time.Hour

func age(milliseconds uint64) time.Duration {
	return time.Duration(min(milliseconds, uint64(maxAge.Milliseconds()))) * time.Millisecond
}

// InjectFinal is Inject for a datagram that two nodes have forwarded: it goes to no other one.
func (w *Worker) InjectFinal(datagram []byte, client, router netip.AddrPort) {
	w.stats.Injected++
	w.datagram(datagram, source{addr: client, router: router, final: true}, false)
}

// missing sends a datagram of a session that is not here to where it may be.
func (w *Worker) missing(d []byte, from source) bool {
	if w.mover == nil {
		return false
	}
	owner, _, ok := w.cfg.CIDs.owner(w.record.CID)
	if !ok {
		return false
	}
	w.queueHint, _ = w.cfg.CIDs.worker(w.record.CID, w.cfg.Workers)
	taken := w.mover.Missing(w, owner, d, from.addr, from.router, from.final)
	w.queueHint = 0
	if taken && !from.router.IsValid() {
		w.returns.note(from.addr, from.local)
	}
	return taken
}
