package handover

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Environment variables of the processes. The values are descriptors.
const (
	childEnv     = "WEIR_KEEP"       // of a child: its end of the socket pair
	successorEnv = "WEIR_KEEP_STATE" // of a supervisor after an exec: the state of its predecessor
	probeEnv     = "WEIR_KEEP_PROBE" // makes a binary print its protocol
)

const handOverTime = 30 * time.Second

// hello is the supervisor's first message.
type hello struct {
	Protocol int    `json:"protocol"`
	Capacity int    `json:"capacity"`
	Starts   int    `json:"starts"`
	Upgrades int    `json:"upgrades"`
	Last     string `json:"last"`  // why the previous child ended
	Clean    bool   `json:"clean"` // start without the records
}

// Supervised reports whether this process was started by a supervisor.
func Supervised() bool { return os.Getenv(childEnv) != "" }

// Leaving notifies the supervisor, if there is one, that this process is about to end in order, with an intended exit
// code; the supervisor then ends with the same code. A child that ends without this call counts as crashed. Therefore
// do not defer the call: a panic runs deferred functions.
func Leaving() {
	fd, err := strconv.Atoi(os.Getenv(childEnv))
	if err != nil {
		return
	}
	_ = unix.Send(fd, []byte{opQuit}, unix.MSG_NOSIGNAL)
}

// join receives what the supervisor or systemd holds, if there is one.
func (k *Store) join() error {
	value := os.Getenv(childEnv)
	if value == "" {
		return k.joinSystemd()
	}
	fd, err := strconv.Atoi(value)
	if err != nil {
		return fmt.Errorf("%s=%q: want the number of a descriptor", childEnv, value)
	}
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3) // the original stays open for Leaving
	if err != nil {
		return fmt.Errorf("%s=%q: %w; it is set by the supervisor only", childEnv, value, err)
	}
	if k.wire, err = newWire(dup); err != nil {
		return err
	}
	k.fds = k.wire
	for {
		m, err := k.wire.receive()
		if err != nil {
			return fmt.Errorf("receive the sockets from the supervisor: %w", err)
		}
		switch m.op {
		case opHello:
			if err := json.Unmarshal(m.body, &k.hello); err != nil || k.hello.Protocol != protocol {
				return fmt.Errorf("the supervisor has protocol %d, this binary %d", k.hello.Protocol, protocol)
			}
		case opSockets:
			k.receiveSockets(m)
		case opBegin:
			return nil
		default:
			closeAll(m.fds)
		}
	}
}

func (k *Store) receiveSockets(m message) {
	names := parseNames(m.body)
	if len(names) != len(m.fds) {
		closeAll(m.fds)
		k.log.Error("sockets of the process before are lost: this process may not open as many files", "sockets", len(names), "received", len(m.fds))
		return
	}
	for i, name := range names {
		k.taken[name] = m.fds[i]
		k.stored[name] = struct{}{}
	}
}

// openJournal opens the journal in dir, or the one that the supervisor passed, or a new memfd. If the directory
// currently cannot be written, the records do not survive the death of all processes, but the start succeeds.
func (k *Store) openJournal(dir string) (err error) {
	var lost damage
	if dir != "" {
		lost, err = k.openStateJournal(dir)
		if err != nil && !unusable(err) {
			return err
		}
		if err != nil {
			k.unusable = err.Error()
			k.log.Error("no journal: session state does not outlive all processes; free space or make the directory writable, then restart or upgrade",
				"state", dir, "error", err)
		}
	}
	if k.journal == nil && k.fds != nil {
		if k.journal, lost, err = k.openMemory(); err != nil {
			return err
		}
	}
	if lost.Torn {
		k.log.Info("the journal's last record was cut off in the middle of its write", "bytes", lost.Bytes)
	} else if lost != (damage{}) {
		k.log.Error("the journal is damaged: records are lost", "lost_records", lost.Frames, "lost_bytes", lost.Bytes, "read_records", len(k.journal.live))
	}
	return nil
}

// openStateJournal opens the journal of a directory. A file that is not a journal, or a journal of another version,
// is moved aside; so is a journal with which children crash.
func (k *Store) openStateJournal(dir string) (lost damage, err error) {
	if k.state, err = openState(dir); err != nil {
		return lost, err
	}
	defer func() {
		if err != nil {
			_ = k.state.lock.Close()
			k.state = nil
		}
	}()
	if k.hello.Clean {
		if err := k.setAside("processes ended of it"); err != nil {
			return lost, err
		}
	}
	k.journal, lost, err = k.state.open()
	if unreadable := (*unreadableError)(nil); errors.As(err, &unreadable) {
		if err := k.setAside(unreadable.Error()); err != nil {
			return lost, err
		}
		k.journal, lost, err = k.state.open()
	}
	if err != nil {
		return lost, err
	}
	if err := k.adoptMemory(); err != nil {
		_ = k.journal.file.Close()
		k.journal = nil
		return lost, fmt.Errorf("state directory %s: %w", dir, err)
	}
	return lost, nil
}

// setAside moves a journal aside. It overwrites no journal that was moved aside earlier.
func (k *Store) setAside(why string) error {
	path, err := k.state.setAside()
	if err != nil {
		return err
	}
	if path != "" {
		k.log.Error("the journal was set aside; a new one begins without the session state in it", "as", path, "why", why)
	}
	return nil
}

// adoptMemory copies the journal that the previous process held in memory because it could not write to the
// directory. That journal is newer than the one in the directory.
func (k *Store) adoptMemory() error {
	fd, known := k.Take(journalName)
	if !known {
		return nil
	}
	file := os.NewFile(uintptr(fd), "weir-journal")
	defer file.Close()
	memory, _, err := openJournal(file)
	if err != nil {
		k.log.Error("the journal of the process before", "error", err)
		k.Drop(journalName)
		return nil
	}
	for id := range k.journal.live {
		if _, there := memory.live[id]; !there {
			if err := k.journal.delete(id); err != nil {
				return errors.Join(err, k.giveBack(file))
			}
		}
	}
	var failed error
	err = memory.each(func(id uint64, record []byte) bool {
		failed = k.journal.put(id, record)
		return failed == nil
	})
	if err = errors.Join(err, failed); err != nil {
		return errors.Join(err, k.giveBack(file))
	}
	k.Drop(journalName)
	return nil
}

// giveBack makes a journal in memory available for Take again.
func (k *Store) giveBack(file *os.File) error {
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err == nil {
		k.socketsMu.Lock()
		k.taken[journalName] = fd
		k.socketsMu.Unlock()
	}
	return err
}

func (k *Store) openMemory() (*journal, damage, error) {
	fresh := func() (*os.File, error) { return newMemory("weir-journal") }
	install := func(file *os.File) error {
		return k.fds.store(handOverTime, journalName, int(file.Fd()))
	}
	fd, known := k.Take(journalName)
	var file *os.File
	var err error
	if known {
		file = os.NewFile(uintptr(fd), "weir-journal")
	} else if file, err = fresh(); err != nil {
		return nil, damage{}, err
	}
	j, lost, err := openJournal(file)
	if errors.Is(err, errNoJournal) {
		err = fmt.Errorf("the journal of the process before: %w", err)
	}
	if err == nil && !known {
		err = install(file)
		k.stored[journalName] = struct{}{}
	}
	if err != nil {
		_ = file.Close()
		return nil, lost, err
	}
	j.fresh, j.install = fresh, install
	return j, lost, nil
}

// listen handles the supervisor's later messages until the connection ends.
func (k *Store) listen() {
	defer close(k.ended)
	handingOver := false
	for {
		m, err := k.wire.receive()
		if err != nil {
			if errors.Is(err, io.EOF) || !errors.Is(err, net.ErrClosed) {
				k.alone.Store(true)
				k.log.Error("the supervisor ended; this process serves on alone: no program restarts it, and its sockets die with it", "error", err)
			}
			return
		}
		closeAll(m.fds)
		switch m.op {
		case opHandOver:
			if !handingOver {
				handingOver = true
				close(k.handOver)
			}
		case opRefused:
			select {
			case k.answers <- string(m.body):
			default:
			}
		case opFull:
			k.socketsMu.Lock()
			k.refuseLocked(string(m.body), ErrFull)
			k.socketsMu.Unlock()
		}
	}
}
