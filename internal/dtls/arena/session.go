package arena

import (
	"errors"
	"net/netip"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/weir-lb/weir/internal/dtls/record"
)

// Flags are properties of a session that never change.
type Flags uint8

// Flags of a session.
const (
	HasCID         Flags = 1 << iota // connection ids were negotiated
	ExtendedMaster                   // RFC 7627
	Renegotiation                    // RFC 5746
	Routability                      // RFC 9853
)

// Path is where a session's client is.
type Path struct {
	Addr   netip.AddrPort
	Local  netip.Addr // our address that it sends to; may be invalid
	Proven bool       // the client has proven that it is at Addr
}

// State is a session as values. The byte budget of an unproven address is not part of it: it begins at 0 again, which is never more
// than it was.
type State struct {
	Suite       record.Suite
	Keys        record.Keys
	ReadCID     []byte // up to record.MaxCID bytes
	WriteCID    []byte
	Limit       int // of a record's plaintext, in bytes
	Auth        uint8
	Identity    string // up to MaxIdentity bytes
	Flags       Flags
	Established time.Duration

	Worker int
	Active time.Duration // of the newest record, to a millisecond
	Sent   uint64        // sequence numbers that may have been used
	Forged uint64        // records that failed to open
	Window record.Window
	Path   Path
	Note   uint64 // if not 0, Put stores it with the session, as Session.Note does; that of a session that was left is returned by Noted
}

// Session is the slot of one session. Its methods are for the one goroutine that owns the session; none of them allocates. After
// Remove it must not be used.
type Session struct {
	slot        *fixed
	generation  uint64
	received    uint64 // changes of the window
	moved       uint64 // changes of the path
	application []byte
}

// errDamaged says that a slot does not hold what was stored.
var errDamaged = errors.New("the slot is damaged")

// Application returns the bytes of the slot that belong to the owner of the arena: Config.Application of them, zero at first,
// aligned to 8 bytes.
func (s *Session) Application() []byte { return s.application }

// NoteSize is how many bytes of Config.Application a note takes.
const NoteSize = 8

// Generation grows with each session that is put into the arena.
func (s *Session) Generation() uint64 { return s.generation }

// Note stores up to 48 bits with the session, in the last NoteSize bytes of Application, which the owner must not use otherwise then.
func (s *Session) Note(value uint64) { s.note().set(value, saltNote) }

// Noted returns what Note has stored, or 0. ok is false if it is damaged.
func (s *Session) Noted() (value uint64, ok bool) {
	if w := s.note(); *w != 0 {
		return w.get(saltNote)
	}
	return 0, true
}

func (s *Session) note() *word {
	return (*word)(unsafe.Pointer(&s.application[len(s.application)-NoteSize]))
}

// Advance stores that sequence numbers below sent may have been used. It is to be called before the record is sealed.
func (s *Session) Advance(sent uint64) { s.slot.sent.set(sent, s.generation|saltSent) }

// Received stores the replay window. It is to be called after a record was authenticated, and before it is handled.
func (s *Session) Received(w record.Window) {
	s.received++
	copied := &s.slot.windows[s.received&1]
	copied.next, copied.bits = w.Newest(), w.Bits()
	s.slot.received.set(s.received, s.generation|saltReceived^copied.check())
}

// Forged stores how many records have failed to open.
func (s *Session) Forged(n uint64) { s.slot.forged.set(n, s.generation|saltForged) }

// Active stores when the newest record came.
func (s *Session) Active(at time.Duration) {
	s.slot.active.set(uint64(at.Milliseconds()), s.generation|saltActive)
}

// Assign stores which worker has the session.
func (s *Session) Assign(worker int) { s.slot.worker.set(uint64(worker), s.generation|saltWorker) }

// Move stores where the client is.
func (s *Session) Move(p Path) {
	s.moved++
	copied := &s.slot.paths[s.moved&1]
	*copied = path{addr: p.Addr.Addr().As16(), port: p.Addr.Port()}
	if p.Addr.Addr().Is4() {
		copied.flags |= pathMapped
	}
	if p.Local.IsValid() {
		copied.local, copied.flags = p.Local.As16(), copied.flags|pathLocal
		if p.Local.Is4() {
			copied.flags |= pathLocalMapped
		}
	}
	if p.Proven {
		copied.flags |= pathProven
	}
	s.slot.path.set(s.moved, s.generation|saltPath^copied.check())
}

// write fills a free slot; the store of the generation makes it valid.
func (s *Session) write(state *State) {
	clear(bytesOf(s.slot))
	clear(s.application)
	t := &s.slot.static
	*t = static{
		suite: uint16(state.Suite), auth: state.Auth, flags: uint8(state.Flags), limit: uint16(state.Limit), established: int64(state.Established),
		keys: state.Keys, readLength: uint8(len(state.ReadCID)), writeLength: uint8(len(state.WriteCID)), identity: uint8(len(state.Identity)),
	}
	copy(t.readCID[:], state.ReadCID)
	copy(t.writeCID[:], state.WriteCID)
	copy(t.name[:], state.Identity)
	s.slot.sum = t.checksum() ^ uint32(s.generation)
	s.Assign(state.Worker)
	s.Active(state.Active)
	s.Advance(state.Sent)
	s.Forged(state.Forged)
	s.Received(state.Window)
	s.Move(state.Path)
	if state.Note != 0 {
		s.Note(state.Note)
	}
	s.slot.generation.set(s.generation, saltGeneration)
}

// read checks a slot. used: it holds a session, perhaps a damaged one.
func (s *Session) read() (state State, used bool, err error) {
	if atomic.LoadUint64((*uint64)(&s.slot.generation)) == 0 {
		return state, false, nil
	}
	var ok bool
	t := &s.slot.static
	if s.generation, ok = s.slot.generation.get(saltGeneration); !ok || t.checksum()^uint32(s.generation) != s.slot.sum {
		return state, true, errDamaged
	}
	if t.readLength > record.MaxCID || t.writeLength > record.MaxCID || t.identity > MaxIdentity {
		return state, true, errDamaged
	}
	state = State{
		Suite: record.Suite(t.suite), Keys: t.keys, Limit: int(t.limit), Auth: t.auth, Flags: Flags(t.flags), Established: time.Duration(t.established),
		ReadCID: append([]byte(nil), t.readCID[:t.readLength]...), WriteCID: append([]byte(nil), t.writeCID[:t.writeLength]...), Identity: string(t.name[:t.identity]),
	}
	if !s.readCounters(&state) || !s.readWindow(&state) || !s.readPath(&state) {
		return State{}, true, errDamaged
	}
	return state, true, nil
}

func (s *Session) readCounters(state *State) bool {
	worker, ok1 := s.slot.worker.get(s.generation | saltWorker)
	active, ok2 := s.slot.active.get(s.generation | saltActive)
	sent, ok3 := s.slot.sent.get(s.generation | saltSent)
	forged, ok4 := s.slot.forged.get(s.generation | saltForged)
	state.Worker, state.Active = int(worker), time.Duration(active)*time.Millisecond
	state.Sent, state.Forged = sent, forged
	return ok1 && ok2 && ok3 && ok4
}

func (s *Session) readWindow(state *State) bool {
	count := uint64(s.slot.received.word) & valueMask
	copied := s.slot.windows[count&1]
	_, ok := s.slot.received.get(s.generation | saltReceived ^ copied.check())
	s.received, state.Window = count, record.NewWindow(copied.next, copied.bits)
	return ok
}

func (s *Session) readPath(state *State) bool {
	count := uint64(s.slot.path.word) & valueMask
	copied := s.slot.paths[count&1]
	_, ok := s.slot.path.get(s.generation | saltPath ^ copied.check())
	addr := netip.AddrFrom16(copied.addr)
	if copied.flags&pathMapped != 0 {
		addr = addr.Unmap()
	}
	s.moved, state.Path = count, Path{Addr: netip.AddrPortFrom(addr, copied.port), Proven: copied.flags&pathProven != 0}
	if copied.flags&pathLocal != 0 {
		if state.Path.Local = netip.AddrFrom16(copied.local); copied.flags&pathLocalMapped != 0 {
			state.Path.Local = state.Path.Local.Unmap()
		}
	}
	return ok
}

// wipe frees the slot and then overwrites the keys.
func (s *Session) wipe() {
	atomic.StoreUint64((*uint64)(&s.slot.generation), 0)
	clear(bytesOf(s.slot))
	clear(s.application)
}

// aligned rounds n up to a multiple of a cache line.
func aligned(n int) int { return (n + alignment - 1) / alignment * alignment }

// slotAt returns the slot that begins at b.
func slotAt(b []byte, application int) Session {
	return Session{slot: (*fixed)(unsafe.Pointer(&b[0])), application: b[fixedSize : fixedSize+application : fixedSize+application]}
}
