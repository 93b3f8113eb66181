package engine

import (
	"encoding/binary"
	"math"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/weir-lb/weir/internal/dtls/arena"
	"github.com/weir-lb/weir/internal/dtls/record"
)

// Replicator is a Cluster that has the sessions with connection ids copied to another node, which goes on with them after a crash. Its
// methods are called on any worker's goroutine.
type Replicator interface {
	// Serving returns the present life of the process, and whether its sessions may be served now. It is called once in each round. nil:
	// sessions are not copied.
	Serving() (life *Life, now bool)
	// Enter has a new session copied, whose Static and Changing are set. next is its next sequence number. false: there is no room for it.
	Enter(c *Copy, next uint64) bool
	// Inherit is Enter of a session that the process before has left in Config.Arena, where it has this generation, with the limit that is stored there. It is called before Engine.Run. false: the
	// session must be dropped.
	Inherit(c *Copy, next, limit, generation uint64) bool
	// Used says that the session's records have the sequence number next now, at least half of a lease.
	Used(w *Worker, c *Copy, next uint64)
	// Changed calls each with a function that takes the new Changing of a session; the bytes are copied.
	Changed(each func(report func(c *Copy, changing []byte)))
	// Leave says that a session is to leave for another engine, and seals nothing more. It may leave once c.Removed. Detach calls it.
	Leave(w *Worker, c *Copy, id []byte)
	// Stay says that a session that was to leave does not.
	Stay(c *Copy, id []byte)
	// Remove says that a session has ended, and seals nothing more.
	Remove(w *Worker, c *Copy)
}

// Copying is a Handler whose state of a peer is copied with the session.
type Copying interface {
	// Copy appends, in at most room bytes, what Moving.Import of the Handler of the other node takes.
	Copy(p *Peer, b []byte, room int, now time.Duration) []byte
}

// Life is the time of a process until another one has taken its sessions over. Then all of them end here, and it has another life.
type Life struct {
	Lease uint64       // sequence numbers of a session that are acquired at a time
	Until atomic.Int64 // sessions may be served before this time of the Replicator's clock, in nanoseconds
}

// Copy is what a worker and the Replicator share of a session. Static and Changing are guarded by the Replicator.
type Copy struct {
	Life             *Life
	Number           uint64 // of the Replicator
	Static, Changing []byte

	limit   atomic.Uint64
	removed atomic.Bool
}

// Raise lets the session seal sequence numbers below limit. Safe from any goroutine.
func (c *Copy) Raise(limit uint64) {
	for old := c.limit.Load(); limit > old && !c.limit.CompareAndSwap(old, limit); old = c.limit.Load() {
	}
}

// Removed says that no other node has the session. Safe from any goroutine.
func (c *Copy) Removed() { c.removed.Store(true) }

// reportEvery is how often the replay windows of sessions that have received something are copied.
const reportEvery = 100 * time.Millisecond

// copying is a worker's part of replication.
type copying struct {
	to       Replicator // nil: sessions are not copied
	handler  Copying    // the handler, if it has this method
	life     *Life
	silenced bool    // no session that has copies may be served: another process may have it
	changed  []*Peer // whose Changing is to be reported
	reportAt time.Duration
	leaving  []*Peer // to another engine
	scratch  [maxChanging]byte
}

// Bounds of package replica.
const maxChanging = 200

// replicateTo sets the Replicator, if the cluster is one.
func (w *Worker) replicateTo(c Cluster) {
	to, ok := c.(Replicator)
	if !ok {
		return
	}
	if life, _ := to.Serving(); life != nil {
		w.copying.to = to
	}
}

// beginRound finds out whether this process has the sessions still.
func (w *Worker) beginRound() {
	if w.copying.to == nil {
		return
	}
	life, now := w.copying.to.Serving()
	if life != w.copying.life {
		w.endLife(life)
	}
	w.copying.silenced = !now
}

// endLife drops the sessions that another process has. Their clients receive nothing from here.
func (w *Worker) endLife(next *Life) {
	w.copying.life = next
	for p := w.peers.oldest; p != nil; {
		newer := p.newer
		if p.copy != nil && p.copy.Life != next {
			w.stats.Fenced++
			w.forget(p)
		}
		p = newer
	}
}

// forget ends a session here without a word to its client, and wipes its keys.
func (w *Worker) forget(p *Peer) {
	w.peers.remove(p)
	w.sessions.remove(p)
	w.handler.Closed(p, w.now)
	w.release(p)
	p.association.Wipe()
}

// enter has a new session copied. Those without a connection id belong to an address, which another node does not have.
func (w *Worker) enter(p *Peer) {
	if w.copying.to == nil || p.byAddress || w.copying.life == nil || len(p.Identity()) > maxIdentity {
		return
	}
	c := w.newCopy(p)
	p.note(1) // first: from now on another node may have a copy
	if w.copying.to.Enter(c, p.association.Sent()) {
		p.copy, p.watermark = c, 0
		p.note(c.limit.Load())
	} else {
		w.stats.NotCopied++
		p.note(0)
	}
}

func (w *Worker) newCopy(p *Peer) *Copy {
	return &Copy{Life: w.copying.life, Static: w.static(p), Changing: append([]byte(nil), w.changing(p)...)}
}

// inherit has a session of the arena copied again. limit is what was noted. false: it must be dropped.
func (w *Worker) inherit(p *Peer, limit uint64) bool {
	if limit == 0 {
		w.enter(p)
		return true
	}
	if p.byAddress {
		return false
	}
	c := w.newCopy(p)
	if !w.copying.to.Inherit(c, p.association.Sent(), limit, p.kept.Generation()) {
		clear(c.Static)
		return false
	}
	p.copy, p.watermark = c, 0
	return true
}

// The note of a slot in Config.Arena says whether other nodes have copies of the session: it is the limit of its sequence numbers, or 0 if none has; and whether the session needs a proof of freshness.
const (
	notedUnfresh = 1 << 47
	notedLimit   = notedUnfresh - 1
)

// note stores the limit of a session. A limit is stored before a number below it is used that is above the one before.
func (p *Peer) note(limit uint64) {
	if p.kept == nil || !p.noted {
		return
	}
	p.kept.Note(p.noteOf(limit))
}

func (p *Peer) noteOf(limit uint64) (note uint64) {
	if note = min(limit, notedLimit); p.unfresh {
		note |= notedUnfresh
	}
	return note
}

// leaveCopies ends the copying of a session that ends here.
func (w *Worker) leaveCopies(p *Peer) {
	c := p.copy
	if c == nil {
		return
	}
	if p.copy = nil; p.leaving {
		w.copying.to.Stay(c, p.association.ReadCID())
		p.leaving = false
	}
	w.copying.to.Remove(w, c)
}

// maySeal decides for a session whose sequence numbers have come to its watermark.
func (w *Worker) maySeal(p *Peer) bool {
	c := p.copy
	if c == nil {
		p.watermark = math.MaxUint64
		return true
	}
	if w.copying.silenced || p.leaving || c.Life != w.copying.life {
		w.stats.Silenced++
		return false
	}
	sent, half := p.association.Sent(), c.Life.Lease/2
	limit := c.limit.Load()
	if sent+half >= limit {
		w.copying.to.Used(w, c, sent)
		limit = c.limit.Load()
	}
	p.note(limit)
	if sent+half < limit {
		p.watermark = limit - half
	} else {
		p.watermark = min(limit, sent+1+half/64) // when to ask again
	}
	if sent >= limit {
		w.stats.LeaseSpent++
		return false
	}
	return true
}

// noteChange has the changing bytes of a session copied soon. at once: now.
func (w *Worker) noteChange(p *Peer, atOnce bool) {
	if p.copy == nil {
		return
	}
	if !p.changed {
		p.changed = true
		if len(w.copying.changed) == 0 {
			w.copying.reportAt = w.now + reportEvery
		}
		w.copying.changed = append(w.copying.changed, p)
	}
	if atOnce {
		w.copying.reportAt = w.now
	}
}

// reportChanges passes on what has changed.
func (w *Worker) reportChanges() {
	if w.reportNext() > w.now {
		return
	}
	w.copying.to.Changed(func(report func(*Copy, []byte)) {
		for i, p := range w.copying.changed {
			p.changed = false
			if !p.closed && p.copy != nil {
				report(p.copy, w.changing(p))
			}
			w.copying.changed[i] = nil
		}
	})
	w.copying.changed = w.copying.changed[:0]
}

func (w *Worker) reportNext() time.Duration {
	if len(w.copying.changed) == 0 {
		return Never
	}
	return w.copying.reportAt
}

// The copied bytes of a session begin with their version.
const copiedVersion = 1

// staticLength is that of what never changes, without connection ids and identity.
const staticLength = 15 + 2*32 + 2*4 + 3

// static returns what never changes of a session.
func (w *Worker) static(p *Peer) []byte {
	a, le := p.association, binary.LittleEndian
	keys := a.Keys(record.Server)
	b := make([]byte, 0, staticLength+len(a.ReadCID())+len(a.WriteCID())+len(p.Identity())) // exactly: it stays in memory
	b = append(b, copiedVersion)
	b = le.AppendUint16(b, uint16(a.Suite()))
	b = append(b, uint8(p.holder.auth), uint8(p.flags()))
	b = le.AppendUint16(b, uint16(a.PlaintextLimit()))
	b = le.AppendUint64(b, uint64((w.now - p.established).Milliseconds()))
	b = append(append(b, keys.ClientKey[:]...), keys.ServerKey[:]...)
	b = append(append(b, keys.ClientIV[:]...), keys.ServerIV[:]...)
	for _, part := range [][]byte{a.ReadCID(), a.WriteCID(), []byte(p.Identity())} {
		b = append(append(b, byte(len(part))), part...)
	}
	return b
}

// changing returns the rest, valid until the next call.
func (w *Worker) changing(p *Peer) []byte {
	a, le := p.association, binary.LittleEndian
	b := append(w.copying.scratch[:0], copiedVersion, p.pathFlags())
	addr := p.addr.Addr().As16()
	b = le.AppendUint16(append(b, addr[:]...), p.addr.Port())
	window := a.Window()
	b = le.AppendUint64(b, window.Newest())
	b = le.AppendUint64(b, a.Forged())
	if w.copying.handler != nil {
		b = w.copying.handler.Copy(p, b, maxChanging-len(b), w.now)
	}
	return b
}

// parseCopy reads both.
func parseCopy(static, changing []byte, now time.Duration) (s arena.State, rest []byte, err error) {
	const fixed, moving = 1 + 2 + 1 + 1 + 2 + 8 + 2*(32+4), 2 + 16 + 2 + 2*8
	le := binary.LittleEndian
	if len(static) < fixed || len(changing) < moving || static[0] != copiedVersion || changing[0] != copiedVersion {
		return s, nil, errMoved
	}
	b := static
	s.Suite, s.Auth, s.Flags, s.Limit = record.Suite(le.Uint16(b[1:])), b[3], arena.Flags(b[4]), int(le.Uint16(b[5:]))
	s.Established, s.Active = now-age(le.Uint64(b[7:])), now
	b = b[15:]
	b = b[copy(s.Keys.ClientKey[:], b):]
	b = b[copy(s.Keys.ServerKey[:], b):]
	b = b[copy(s.Keys.ClientIV[:], b):]
	b = b[copy(s.Keys.ServerIV[:], b):]
	var parts [3][]byte
	for i := range parts {
		if len(b) < 1 || len(b) < 1+int(b[0]) {
			return s, nil, errMoved
		}
		parts[i], b = append([]byte(nil), b[1:1+b[0]]...), b[1+b[0]:]
	}
	if len(b) > 0 {
		return s, nil, errMoved
	}
	s.ReadCID, s.WriteCID, s.Identity = parts[0], parts[1], string(parts[2])
	addr := netip.AddrFrom16([16]byte(changing[2:]))
	if changing[1]&movedMapped != 0 {
		addr = addr.Unmap()
	}
	s.Path = arena.Path{Addr: netip.AddrPortFrom(addr, le.Uint16(changing[18:])), Proven: changing[1]&movedProven != 0}
	// Below the newest number that the copy has, nothing is accepted: what the owner has received is not known.
	s.Window, s.Forged = record.NewWindow(le.Uint64(changing[20:]), math.MaxUint64), le.Uint64(changing[28:])
	return s, changing[moving:], nil
}
