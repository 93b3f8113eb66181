package arena

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Config is the size of an arena.
type Config struct {
	Slots       int // sessions
	Application int // bytes of each slot for the owner
	Blocks      int // areas in front of the slots for the owner, one for each worker
	BlockSize   int // bytes of each
	// Version is that of what the owner stores in its bytes. Those of another version are not handed on.
	Version uint32
}

// maxBytes bounds the memory, of which the system provides only what was written to.
const maxBytes = 1 << 42

func (c *Config) slotSize() int  { return aligned(fixedSize + c.Application) }
func (c *Config) blockSize() int { return aligned(c.BlockSize) }
func (c *Config) bytes() int {
	return headerSize + c.Blocks*c.blockSize() + c.Slots*c.slotSize()
}

func (c *Config) validate() error {
	if c.Slots < 1 || c.Slots > 1<<31-1 || c.Application < 0 || c.Application > 1<<20 || c.Blocks < 0 || c.Blocks > 1024 || c.BlockSize < 0 || c.BlockSize > 1<<31 || c.bytes() > maxBytes {
		return fmt.Errorf("arena: %d slots with %d bytes, %d blocks of %d bytes: too many", c.Slots, c.Application, c.Blocks, c.BlockSize)
	}
	return nil
}

// Arena is the mapped memory. Put, Remove, Drop and Stats are safe from any goroutine.
type Arena struct {
	cfg    Config
	file   *os.File
	memory []byte
	header *header
	start  time.Time

	mu   sync.Mutex
	free []uint32
	used int
	kept []Restored

	high     uint64 // of the header, when it was opened
	replaced *Arena // from which this one was copied
}

// Restored is a session that an earlier process has left.
type Restored struct {
	State   State
	Session *Session
}

// NewMemory makes a memfd for New.
func NewMemory() (*os.File, error) {
	fd, err := unix.MemfdCreate("weir-sessions", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("arena: make a memfd: %w", err)
	}
	return os.NewFile(uintptr(fd), "weir-sessions"), nil
}

// New makes an arena in file, or in a new memfd if file is nil. It owns the file, also after an error. What was in it is lost.
func New(cfg Config, file *os.File) (*Arena, error) {
	if file == nil {
		var err error
		if file, err = NewMemory(); err != nil {
			return nil, err
		}
	}
	err := cfg.validate()
	if err == nil {
		err = size(file, int64(cfg.bytes()))
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	a, err := mapFile(cfg, file)
	if err != nil {
		return nil, err
	}
	h := a.header
	*h = header{
		magic: magic(), version: version, fixedSize: uint32(fixedSize), applicationSize: uint32(cfg.Application), slots: uint64(cfg.Slots), blocks: uint64(cfg.Blocks),
		blockSize: uint64(cfg.BlockSize), application: cfg.Version, start: monotonic(),
	}
	if h.boot, err = bootID(); err != nil {
		a.Close()
		return nil, err
	}
	h.sum = h.checksum()
	a.startClock()
	return a, nil
}

// size makes a file one of so many zeros, which cannot shrink any more if it is a memfd.
func size(file *os.File, bytes int64) error {
	if err := errors.Join(file.Truncate(0), file.Truncate(bytes)); err != nil {
		return fmt.Errorf("arena: size %s to %d bytes: %w", file.Name(), bytes, err)
	}
	if _, err := unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EPERM) { // these of a file: see Sealed
		return fmt.Errorf("arena: seal %s: %w", file.Name(), err)
	}
	return nil
}

func magic() [8]byte { return [8]byte{'w', 'e', 'i', 'r', 'D', 'T', 'L', 'S'} }

// monotonic is the time of the clock that also Go's times have.
func monotonic() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // cannot fail with this clock
	return t.Nano()
}

func bootID() (id [36]byte, err error) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return id, fmt.Errorf("arena: %w", err)
	}
	copy(id[:], strings.TrimSpace(string(text)))
	return id, nil
}

// startClock sets start to the Go time at which the arena was made.
func (a *Arena) startClock() {
	a.start = time.Now().Add(-time.Duration(monotonic() - a.header.start - a.header.shift))
}

func mapFile(cfg Config, file *os.File) (*Arena, error) {
	memory, err := unix.Mmap(int(file.Fd()), 0, cfg.bytes(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err == nil {
		err = unix.Madvise(memory, unix.MADV_DONTDUMP)
	}
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("arena: map %d bytes: %w", cfg.bytes(), err)
	}
	return &Arena{cfg: cfg, file: file, memory: memory, header: (*header)(unsafe.Pointer(&memory[0]))}, nil
}

// File is what holds the memory. It must stay open until Close.
func (a *Arena) File() *os.File { return a.file }

// Start is when the arena was made: the times of its sessions count from there.
func (a *Arena) Start() time.Time { return a.start }

// Block returns the i-th block, zero at first.
func (a *Arena) Block(i int) []byte {
	at := headerSize + i*a.cfg.blockSize()
	return a.memory[at : at+a.cfg.BlockSize : at+a.cfg.BlockSize]
}

func (a *Arena) slot(i uint32) Session {
	at := headerSize + a.cfg.Blocks*a.cfg.blockSize() + int(i)*a.cfg.slotSize()
	return slotAt(a.memory[at:at+a.cfg.slotSize()], a.cfg.Application)
}

// number is the inverse of slot.
func (a *Arena) number(s *Session) uint32 {
	at := uintptr(unsafe.Pointer(s.slot)) - uintptr(unsafe.Pointer(&a.memory[0]))
	return uint32((int(at) - headerSize - a.cfg.Blocks*a.cfg.blockSize()) / a.cfg.slotSize())
}

// Put stores a session; nil: its identity or a connection id is too long, or there is no free slot.
func (a *Arena) Put(state *State) *Session {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.header.generation++
	return a.putLocked(state, a.header.generation)
}

func (a *Arena) putLocked(state *State, generation uint64) *Session {
	if len(state.Identity) > MaxIdentity || len(state.ReadCID) > len(static{}.readCID) || len(state.WriteCID) > len(static{}.writeCID) {
		return nil
	}
	var i uint32
	switch {
	case len(a.free) > 0:
		i = a.free[len(a.free)-1]
		a.free = a.free[:len(a.free)-1]
	case a.header.high < uint64(a.cfg.Slots):
		i = uint32(a.header.high)
		a.header.high++
	default:
		return nil
	}
	a.used++
	s := a.slot(i)
	s.generation = generation & valueMask
	s.write(state)
	return &s
}

// Generation is that of the newest session that was put. Those that are put later have higher ones, also in the next process.
func (a *Arena) Generation() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.header.generation
}

// Remove frees the slot of a session and overwrites its keys.
func (a *Arena) Remove(s *Session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := a.number(s)
	s.wipe()
	a.free = append(a.free, i)
	a.used--
}

// Used returns how many slots hold a session.
func (a *Arena) Used() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.used
}

// SlotSize is the memory of a session in bytes.
func (a *Arena) SlotSize() int { return a.cfg.slotSize() }

// Close unmaps the memory. Sessions must not be used any more.
func (a *Arena) Close() {
	if a.replaced != nil {
		a.replaced.Close()
		a.replaced = nil
	}
	_ = unix.Munmap(a.memory) // it was mapped
	_ = a.file.Close()
	a.memory, a.header = nil, nil
}
