package arena

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Errors of Open. After each of them the sessions in the file are lost.
var (
	ErrVersion = errors.New("arena: of a version that this program does not know")
	ErrBoot    = errors.New("arena: of an earlier boot of the machine")
	ErrHeader  = errors.New("arena: the header is damaged")
)

// Loss says what Open has dropped.
type Loss struct {
	Damaged int // slots whose checks fail
	NoRoom  int // sessions for which an arena of this size has no slot
}

// Open maps the arena that an earlier process has left in file, which it owns. If its size is not that of cfg, the sessions are copied
// to a new arena, in the file that replace returns (nil: a new memfd); replace may be nil, too: see Retire. Restored then returns the
// sessions. After an error the file is closed, and the sessions are lost.
func Open(cfg Config, file *os.File, replace func() (*os.File, error)) (a *Arena, loss Loss, err error) {
	if err := cfg.validate(); err != nil {
		_ = file.Close()
		return nil, loss, err
	}
	found, err := readHeader(file)
	if err != nil {
		_ = file.Close()
		return nil, loss, err
	}
	a, err = mapFile(found, file)
	if err != nil {
		return nil, loss, err
	}
	a.rebase(monotonic(), time.Now().UnixNano())
	a.startClock()
	loss.Damaged = a.scan()
	if found == cfg {
		return a, loss, nil
	}
	b, noRoom, err := a.convert(cfg, replace)
	loss.NoRoom = noRoom
	if err != nil {
		a.Close()
		return nil, loss, err
	}
	b.replaced = a
	return b, loss, nil
}

// Retire makes the arena that Open has copied unreadable, if there was one. It is to be called when the copy is stored in its place, and
// before a record is sealed: a process that restored sessions from the old one afterwards would use sequence numbers twice.
func (a *Arena) Retire() {
	if old := a.replaced; old != nil {
		clear(bytesOf(old.header))
		for i := range uint32(old.high) {
			s := old.slot(i)
			s.wipe()
		}
		old.Close()
		a.replaced = nil
	}
}

// readHeader checks the header of a file, and returns the size of its arena.
func readHeader(file *os.File) (cfg Config, err error) {
	var h header
	if _, err := file.ReadAt(bytesOf(&h), 0); err != nil {
		return cfg, fmt.Errorf("%w: %w", ErrHeader, err)
	}
	if h.magic != magic() {
		return cfg, ErrHeader
	}
	if h.version != version {
		return cfg, fmt.Errorf("%w: %d", ErrVersion, h.version)
	}
	boot, err := bootID()
	switch {
	case err != nil:
		return cfg, err
	case h.sum != h.checksum():
		return cfg, ErrHeader
	case h.boot != boot:
		return cfg, ErrBoot
	}
	info, err := file.Stat()
	if err != nil {
		return cfg, fmt.Errorf("arena: %w", err)
	}
	cfg = Config{
		Slots: int(h.slots), Blocks: int(h.blocks), BlockSize: int(h.blockSize), Version: h.application, Application: int(h.applicationSize),
	}
	if cfg.validate() != nil || h.fixedSize != uint32(fixedSize) || info.Size() < int64(cfg.bytes()) || h.high > h.slots {
		return cfg, ErrHeader
	}
	return cfg, nil
}

// maxPrepared bounds the memory that is taken before it is known how many slots are in use.
const maxPrepared = 1 << 17

// scan rebuilds the list of free slots, and returns how many slots were damaged; these are freed.
func (a *Arena) scan() (damaged int) {
	a.high = a.header.high
	a.kept = make([]Restored, 0, min(a.high, maxPrepared)) // as a rule, all slots are in use
	for i := range uint32(a.high) {
		s := a.slot(i)
		state, used, err := s.read()
		if s.generation > a.header.generation { // a new session must not get it again
			a.header.generation = s.generation
		}
		switch {
		case err != nil:
			damaged++
			s.wipe()
			fallthrough
		case !used:
			a.free = append(a.free, i)
		default:
			a.used++
			a.kept = append(a.kept, Restored{state, &s})
		}
	}
	return damaged
}

// Restored returns the sessions that Open has found, once.
func (a *Arena) Restored() []Restored {
	a.mu.Lock()
	defer a.mu.Unlock()
	kept := a.kept
	a.kept = nil
	return kept
}

// DropRestored frees the slots of all sessions that Open has found.
func (a *Arena) DropRestored() {
	for _, r := range a.Restored() {
		a.Remove(r.Session)
	}
}

// convert copies the sessions to an arena of another size. The blocks, and the bytes of the application, are copied if they have the
// same size and version.
func (a *Arena) convert(cfg Config, replace func() (*os.File, error)) (b *Arena, noRoom int, err error) {
	var file *os.File
	if replace != nil {
		if file, err = replace(); err != nil {
			return nil, 0, fmt.Errorf("arena: %w", err)
		}
	}
	if b, err = New(cfg, file); err != nil {
		return nil, 0, err
	}
	b.header.start = a.header.start
	b.header.sum = b.header.checksum()
	b.header.shift, b.header.seen, b.header.wall = a.header.shift, a.header.seen, a.header.wall
	b.startClock()
	same := a.cfg.Version == cfg.Version && a.cfg.Application == cfg.Application
	if same && a.cfg.BlockSize == cfg.BlockSize {
		for i := range min(a.cfg.Blocks, cfg.Blocks) {
			copy(b.Block(i), a.Block(i))
		}
	}
	b.header.generation = a.header.generation
	for i := range a.kept {
		old := &a.kept[i]
		s := b.putLocked(&old.State, old.Session.generation) // no other goroutine has b yet
		if s == nil {
			noRoom++
			continue
		}
		if same {
			copy(s.application, old.Session.application)
		}
		b.kept = append(b.kept, Restored{old.State, s})
	}
	a.kept = nil
	return b, noRoom, nil
}

// Sealed reports whether the memory cannot shrink, which would end a process that reads it.
func (a *Arena) Sealed() bool {
	seals, err := unix.FcntlInt(a.file.Fd(), unix.F_GET_SEALS, 0)
	return err == nil && seals&unix.F_SEAL_SHRINK != 0
}
