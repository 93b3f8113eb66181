package node

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/coap/cluster"
	"github.com/weir-lb/weir/internal/coap/exchange"
	"github.com/weir-lb/weir/internal/dtls/arena"
	"github.com/weir-lb/weir/internal/dtls/engine"
)

// Store holds what outlives the process, as package handover does: descriptors by name, and files.
type Store interface {
	// Take returns the descriptor that an earlier process stored, once.
	Take(name string) (fd int, ok bool)
	// Hold stores a duplicate, in place of an earlier one of that name.
	Hold(name string, fd int) error
	Drop(name string)
	// OpenState opens a file that outlives every process, and ReplaceState one that install puts in its place; nil: there are none.
	OpenState(name string) (*os.File, error)
	ReplaceState(name string) (file *os.File, install func() error, err error)
}

// What is stored of a listener, with the number of the worker behind it.
const (
	storedSocket = "/socket/"
	storedLink   = "/link/"
	storedArena  = "/sessions"
	storedCopied = "/copied-sessions" // those that other nodes have copies of
	storedFlight = "/under-way"
)

// storedName names a listener in the Store, by its configured address: the port may be 0. Several at the same one are numbered.
func (n *Node) storedName(l *listener, address string) string {
	kind := "coap"
	if l.secure {
		kind = "coaps"
	}
	if l.cluster != nil {
		kind = "node" + strconv.FormatUint(uint64(*l.nodeID), 10)
	}
	name := kind + "/" + address
	n.names[name]++
	return name + "/" + strconv.Itoa(n.names[name])
}

// takeOver adds to cfg what an earlier process has left of the listener.
func (n *Node) takeOver(l *listener, cfg *engine.Config) {
	if n.cfg.Store == nil {
		return
	}
	cfg.Workers = cmp.Or(cfg.Workers, runtime.GOMAXPROCS(0))
	cfg.Sockets, l.held = n.takeAll(l.stored + storedSocket)
	cfg.LinkSockets, l.heldLinks = n.takeAll(l.stored + storedLink)
	copied := l.cluster != nil && l.cluster.Replication() != nil
	if l.arenaName = l.stored + storedArena; copied {
		n.dropArena(l.arenaName)
		l.arenaName, l.copied = l.stored+storedCopied, true
	} else if l.cluster != nil {
		n.dropArena(l.stored + storedCopied)
	}
	size := engine.InFlightBytes(cfg.Workers)
	memory := n.openInFlight(l, size+cluster.LinkMemory)
	if memory != nil {
		cfg.InFlight = memory[:size:size]
	}
	if !l.secure {
		return
	}
	slots := arena.Config{
		Slots: cfg.Workers * cmp.Or(cfg.MaxSessions, defaultSessions), Application: exchange.MemorySize,
		Blocks: cfg.Workers, BlockSize: exchange.LogSize, Version: exchange.MemoryVersion,
	}
	if copied {
		slots.Application, slots.Blocks = slots.Application+arena.NoteSize, slots.Blocks+1
	}
	cfg.OpenArena = func() *arena.Arena {
		a, loss, err := n.openArena(l, slots)
		now := time.Duration(0) // of the engine's clock
		if a != nil {
			now = time.Since(a.Start())
		}
		if l.cluster != nil && memory != nil {
			l.cluster.KeepLink(memory[size:], now)
		}
		if err != nil {
			n.cfg.Log.Error("DTLS sessions will not outlive this process", "listener", l.stored, "error", err)
			return nil
		}
		if copied && !l.cluster.KeepCopies(a.Block(0), a.Generation) {
			a.DropRestored()
		}
		l.arena, l.kept = a, &KeptStatus{SlotBytes: a.SlotSize(), Damaged: loss.Damaged, NoRoom: loss.NoRoom}
		return a
	}
}

// openInFlight maps the memory of what a process has under way: that of the process before, or a new one. nil: there is none.
func (n *Node) openInFlight(l *listener, size int) []byte {
	if fd, ok := n.cfg.Store.Take(l.stored + storedFlight); ok {
		l.flight, l.flightHeld = os.NewFile(uintptr(fd), "under-way"), true
		if info, err := l.flight.Stat(); err != nil || info.Size() != int64(size) { // of another number of workers
			_ = l.flight.Close()
			l.flight, l.flightHeld = nil, false
		}
	}
	var err error
	if l.flight == nil {
		l.flight, err = newFlight(size)
	}
	if err == nil {
		l.flightMemory, err = unix.Mmap(int(l.flight.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err == nil {
		err = unix.Madvise(l.flightMemory, unix.MADV_DONTDUMP) // it holds what clients have sent
	}
	if err != nil {
		n.cfg.Log.Warn("what a process has read when it is killed will be lost", "listener", l.stored, "error", err)
		l.closeFlight()
		return nil
	}
	return l.flightMemory
}

// newFlight makes a memfd of zeros that cannot shrink.
func newFlight(size int) (*os.File, error) {
	fd, err := unix.MemfdCreate("weir-under-way", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("make a memfd: %w", err)
	}
	file := os.NewFile(uintptr(fd), "weir-under-way")
	err = file.Truncate(int64(size))
	if err == nil {
		_, err = unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK)
	}
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("make a memfd of %d bytes: %w", size, err)
	}
	return file, nil
}

func (l *listener) closeFlight() {
	if l.flightMemory != nil {
		_ = unix.Munmap(l.flightMemory) // it was mapped
	}
	if l.flight != nil {
		_ = l.flight.Close()
	}
	l.flight, l.flightMemory = nil, nil
}

// dropArena overwrites what an earlier process has left of a listener whose sessions were, or are, copied to another node, but not both: the node that has copies takes them over. One that
// was restored from the memory as well would use its sequence numbers twice.
func (n *Node) dropArena(name string) {
	if file, err := n.cfg.Store.OpenState(name); err == nil && file != nil {
		if err := file.Truncate(0); err != nil {
			n.cfg.Log.Error("the DTLS sessions of the process before stay in a file, and must not be used", "file", file.Name(), "error", err)
		}
		_ = file.Close()
	}
	if fd, ok := n.cfg.Store.Take(name); ok {
		_ = unix.Close(fd)
		n.cfg.Store.Drop(name)
	}
}

// defaultSessions is that of engine.Config.MaxSessions.
const defaultSessions = 65536

func (n *Node) takeAll(prefix string) (fds []int, count int) {
	for {
		fd, ok := n.cfg.Store.Take(prefix + strconv.Itoa(len(fds)))
		if !ok {
			return fds, len(fds)
		}
		fds = append(fds, fd)
	}
}

// openArena opens the arena of an earlier process, or makes one.
func (n *Node) openArena(l *listener, size arena.Config) (a *arena.Arena, loss arena.Loss, err error) {
	name := l.arenaName
	file, err := n.storedArena(l, name)
	if err != nil || file == nil {
		return nil, loss, err
	}
	if info, err := file.Stat(); err == nil && info.Size() == 0 {
		a, err = arena.New(size, file)
		return a, loss, err
	}
	var install func() error
	a, loss, err = arena.Open(size, file, func() (file *os.File, err error) {
		file, install, err = n.cfg.Store.ReplaceState(name)
		return file, err
	})
	if err == nil && install != nil {
		err = install()
	}
	if err != nil {
		n.cfg.Log.Error("the DTLS sessions of the process before are lost", "listener", l.stored, "error", err)
		if file, err = n.cfg.Store.OpenState(name); err == nil {
			a, err = arena.New(size, file)
		}
		return a, arena.Loss{}, err
	}
	if loss != (arena.Loss{}) {
		n.cfg.Log.Error("some DTLS sessions of the process before are lost", "listener", l.stored, "damaged", loss.Damaged, "no_room", loss.NoRoom)
	}
	return a, loss, nil
}

// storedArena returns the file of an arena. It is empty if there was none.
func (n *Node) storedArena(l *listener, name string) (*os.File, error) {
	file, err := n.cfg.Store.OpenState(name)
	if err != nil || file != nil {
		return file, err
	}
	if fd, ok := n.cfg.Store.Take(name); ok {
		l.taken = os.NewFile(uintptr(fd), "sessions")
		return l.taken, nil
	}
	return arena.NewMemory()
}

// hold stores what the listener has, for the next process.
func (n *Node) hold(l *listener) {
	if n.cfg.Store == nil {
		return
	}
	public, link := l.engine.Descriptors()
	n.holdAll(l.stored+storedSocket, public, l.held)
	n.holdAll(l.stored+storedLink, link, l.heldLinks)
	if l.flight != nil && !l.flightHeld {
		n.holdOne(l.stored+storedFlight, int(l.flight.Fd()))
	}
	if l.arena != nil && l.arena.Sealed() && l.arena.File() != l.taken { // neither a file of the state directory, nor stored already
		n.holdOne(l.arenaName, int(l.arena.File().Fd()))
	}
	if l.arena != nil {
		l.arena.Retire() // whether or not the store has the new one
	}
}

func (n *Node) holdAll(prefix string, fds []int, before int) {
	for i := before; i < len(fds); i++ { // what was taken is stored already, and systemd stores nothing twice
		n.holdOne(prefix+strconv.Itoa(i), fds[i])
	}
	for i := len(fds); i < before; i++ {
		n.cfg.Store.Drop(prefix + strconv.Itoa(i))
	}
}

func (n *Node) holdOne(name string, fd int) {
	if err := n.cfg.Store.Hold(name, fd); err != nil {
		n.cfg.Log.Warn("this will not outlive the process", "what", name, "error", err)
	}
}

// Leave makes Run, when its context ends, leave the DTLS sessions as they are for the next process, or for the node with copies of them: their clients receive nothing. It is
// to be called before the context ends.
func (n *Node) Leave() {
	for _, l := range n.listeners {
		if l.cluster != nil {
			l.cluster.LeaveSessions()
		}
		if l.engine != nil {
			l.engine.Leave()
		}
	}
}

// Respond returns when every worker has finished a round: they serve.
func (n *Node) Respond() {
	var group sync.WaitGroup
	for _, l := range n.listeners {
		l.mu.Lock()
		for _, h := range l.handlers {
			group.Add(1)
			if !h.worker.Post(group.Done) {
				group.Done()
			}
		}
		l.mu.Unlock()
	}
	group.Wait()
}

// KeptStatus is what the listener's sessions need to outlive the process.
type KeptStatus struct {
	SlotBytes int `json:"slot_bytes"`                                                                                                              // of a session in the arena
	Damaged   int `json:"damaged" metric:"_damaged" help:"DTLS sessions of the process before that were dropped, because their slot was damaged."` // slots of the process before
	NoRoom    int `json:"no_room" metric:"_no_room" help:"DTLS sessions of the process before that were dropped, because fewer are allowed now."`  // likewise
}

// adopt gives a session the memory that outlives the process, if there is some.
func (h *handler) adopt(s *session) {
	if kept := s.peer.Kept(); kept != nil {
		h.endpoint.Adopt(&s.Session.Session, kept)
	}
}

// keptLog returns where a worker's answers are stored; nil: in the process.
func (l *listener) keptLog(worker int) []byte {
	if l.arena == nil {
		return nil
	}
	if l.copied {
		worker++ // the first block is the cluster's
	}
	return l.arena.Block(worker)
}

func (l *listener) closeArena() {
	l.closeFlight()
	if l.arena != nil {
		l.arena.Close()
	}
}
