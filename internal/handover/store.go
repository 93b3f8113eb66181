package handover

import (
	"cmp"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Limits of what is stored.
const (
	MaxSockets = 65_536    // descriptors that a supervisor holds, if its file limit allows
	MaxName    = 200       // bytes of a socket's name
	MaxRecord  = 1 << 20   // bytes of a record
	MaxRecords = 262_144   // records in a journal
	MaxBytes   = 512 << 20 // bytes of a journal's live records
)

// ownID and the ids above it, and 0, are ids of the serving part's own records, which do not count as session state.
const ownID = 1 << 53

// journalName is the name of the journal's memfd among the sockets.
const journalName = "keep/journal"

var (
	// ErrFull means that the supervisor, or systemd, holds as many sockets as it can.
	ErrFull = errors.New("the supervisor holds as many sockets as it can")
	// ErrLate means that the supervisor, or systemd, did not accept a socket in time.
	ErrLate = errors.New("the supervisor does not answer")
)

// Options say where records are stored. The zero value stores them with the supervisor, or nowhere without one.
type Options struct {
	State string // directory for records that outlive all processes, created if missing; empty: none
	Log   *slog.Logger
}

// fdStore holds descriptors beyond the process: a supervisor of this package, or systemd.
type fdStore interface {
	// store passes on a duplicate of fd, which replaces an earlier one of that name. It waits up to wait for space.
	store(wait time.Duration, name string, fd int) error
	drop(name string) error
	// flush sends what a store that succeeded left to be sent. It waits up to wait for space.
	flush(wait time.Duration) error
	ready() error
	stopping() error
	close()
}

// Store is the serving process's connection to what holds its sockets: the supervisor or systemd. Several goroutines
// may call its methods concurrently.
type Store struct {
	log     *slog.Logger
	fds     fdStore        // nil: none
	wire    *wire          // fds, if it is a supervisor
	systemd *systemd       // fds, if it is systemd
	signals chan os.Signal // of systemd
	hello   hello
	state   *stateDir // nil: none

	unusable string // why there is no journal in Options.State

	journalMu sync.Mutex
	journal   *journal // nil: records are not stored

	socketsMu sync.Mutex
	taken     map[string]int // sockets that were not taken yet
	stored    map[string]struct{}
	waiting   map[string]int // duplicates of sockets that found no space, or dropped
	retry     *time.Timer    // passes them on; nil: nothing waits
	closed    bool
	refused   uint64
	warned    bool // a refusal was logged; reset by the next success

	handOver chan struct{}
	answers  chan string // replies for RequestUpgrade
	alone    atomic.Bool // the supervisor ended
	ended    chan struct{}
}

// Stats is what is stored and what could not be stored.
type Stats struct {
	Supervisor string `json:"supervisor" metric:"weir_turn_supervisor_gone" when:"gone" help:"1 if the supervisor has ended: no program restarts the gateway."` // yes, systemd, gone, none
	PID        int    `json:"pid,omitempty"`                                                                                                                    // of the supervisor
	Starts     int    `json:"starts" metric:"weir_turn_starts" help:"Serving processes that the supervisor has started."`                                       // starts of a serving process, by this supervisor and its predecessors
	Upgrades   int    `json:"upgrades"`                                                                                                                         // of the binary
	Last       string `json:"last,omitempty"`                                                                                                                   // why the previous process ended
	Sockets    int    `json:"sockets" metric:"weir_turn_kept_sockets" help:"Sockets that the supervisor holds."`
	Capacity   int    `json:"capacity"`                                                                                                                               // maximum number of sockets
	Refused    uint64 `json:"refused" metric:"weir_turn_kept_sockets_refused_total" help:"Sockets that do not outlive the process: the supervisor was full or late."` // sockets that could not be stored: their sessions do not survive the process
	Waiting    int    `json:"waiting" metric:"weir_turn_kept_sockets_waiting" help:"Sockets that the supervisor, or systemd, has not accepted yet; they are sent again."`
	State      string `json:"state,omitempty"`
	// Unusable is why the directory of Options.State has no journal; empty if it has one, or if none was requested.
	Unusable string       `json:"state_unusable,omitempty" metric:"weir_turn_state_unusable" help:"1 if the directory of --state cannot be written: session state does not outlive all processes."`
	Journal  JournalStats `json:"journal" metric:"weir_turn_kept_records"`
}

// Open takes over from the previous process: its records and, under a supervisor, its sockets. It is called once,
// before sockets are opened. Errors: a state directory that others may write to, that is not a directory, or that
// another process uses. A directory that currently cannot be written (a full disk, no permission) is reported by the
// log and Stats.
func Open(o Options) (*Store, error) {
	k := &Store{
		log: cmp.Or(o.Log, slog.New(slog.DiscardHandler)), taken: map[string]int{}, stored: map[string]struct{}{},
		waiting: map[string]int{}, handOver: make(chan struct{}), answers: make(chan string, 1), ended: make(chan struct{}),
	}
	if err := k.join(); err != nil {
		return nil, err
	}
	if err := k.openJournal(o.State); err != nil {
		k.Close()
		return nil, err
	}
	switch {
	case k.wire != nil:
		go k.listen()
	case k.systemd != nil:
		go k.followSystemd(k.signals)
	default:
		close(k.ended)
	}
	return k, nil
}

// Close passes on what waits, ends the connection to the supervisor and closes the journal. It drops nothing.
func (k *Store) Close() {
	if k.fds != nil {
		k.closeWaiting()
		k.fds.close()
		if k.signals != nil {
			signal.Stop(k.signals)
			close(k.signals)
			k.signals = nil
		}
		if k.journal != nil {
			<-k.ended
		}
	}
	k.journalMu.Lock()
	defer k.journalMu.Unlock()
	if k.journal != nil {
		_ = k.journal.file.Close()
		k.journal = nil
	}
	if k.state != nil {
		_ = k.state.lock.Close()
	}
}

// Hold passes a duplicate of fd to the supervisor or systemd under a name and replaces one of that name; the caller keeps its
// own. A socket that came from Take is stored already. If the other side does not read in time, the duplicate waits
// and is passed on later. Errors: ErrFull; ErrLate if too many wait; the caller counts them and continues. Without a
// supervisor or systemd it does nothing.
func (k *Store) Hold(name string, fd int) error {
	if k.fds == nil || k.alone.Load() {
		return nil
	}
	k.socketsMu.Lock()
	defer k.socketsMu.Unlock()
	_, known := k.stored[name]
	_, waits := k.waiting[name]
	if !known && !waits && len(k.stored)+len(k.waiting) >= k.hello.Capacity {
		k.refuseLocked(name, ErrFull)
		return ErrFull
	}
	if err := k.holdLocked(name, fd); err != nil {
		k.refuseLocked(name, err)
		return err
	}
	if _, waits := k.waiting[name]; !waits {
		k.acceptLocked(name)
	}
	return nil
}

func (k *Store) acceptLocked(name string) {
	k.stored[name] = struct{}{}
	k.warned = false
}

// refuseLocked counts a socket that is not stored. It logs the first one until a socket is stored again.
func (k *Store) refuseLocked(name string, err error) {
	k.refused++
	delete(k.stored, name)
	if !k.warned {
		k.warned = true
		k.log.Warn("socket is not stored; it will not survive this process", "socket", name, "stored", len(k.stored), "error", err)
	}
}

// Drop makes the supervisor or systemd close its duplicate. Do not drop sockets because the process ends: the next process takes
// what is stored then.
func (k *Store) Drop(name string) {
	if k.fds == nil || k.alone.Load() {
		return
	}
	k.socketsMu.Lock()
	defer k.socketsMu.Unlock()
	k.forgetLocked(name)
	if _, known := k.stored[name]; !known {
		return
	}
	switch err := k.fds.drop(name); {
	case err == nil:
		delete(k.stored, name)
	case errors.Is(err, ErrLate) && !k.closed:
		k.waitLocked(name, dropped)
	} // after an error it still counts as stored, because it is
}

// Take returns the socket that an earlier process stored, once.
func (k *Store) Take(name string) (fd int, ok bool) {
	k.socketsMu.Lock()
	defer k.socketsMu.Unlock()
	fd, ok = k.taken[name]
	delete(k.taken, name)
	if !ok {
		return -1, false
	}
	return fd, true
}

// Names returns the names that can be taken, sorted.
func (k *Store) Names() []string {
	k.socketsMu.Lock()
	defer k.socketsMu.Unlock()
	names := make([]string, 0, len(k.taken))
	for name := range k.taken {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// DropUntaken drops the sockets that no request took, and returns how many there were.
func (k *Store) DropUntaken() int {
	names := k.Names()
	for _, name := range names {
		if fd, ok := k.Take(name); ok {
			closeAll([]int{fd})
			k.Drop(name)
		}
	}
	return len(names)
}

// Ready notifies the supervisor or systemd that this process serves.
func (k *Store) Ready() {
	if k.fds != nil && !k.alone.Load() {
		_ = k.fds.ready()
	}
}

// Stopping notifies the supervisor or systemd that this process received the first termination signal and may need some time to
// end.
func (k *Store) Stopping() {
	if k.fds != nil && !k.alone.Load() {
		_ = k.fds.stopping()
	}
}

// HandOver is closed when this process must stop reading and end, without dropping what is stored, because its
// successor is about to start.
func (k *Store) HandOver() <-chan struct{} { return k.handOver }

// RequestUpgrade asks the supervisor to replace this process by the binary that is at its path now. It waits until
// the supervisor has tested the binary; the error says why that failed. HandOver closes next.
func (k *Store) RequestUpgrade() error {
	if k.systemd != nil {
		return errors.New("systemd holds the sockets: install the new binary, then run 'systemctl restart' with the name of the service")
	}
	if k.wire == nil || k.alone.Load() {
		return errors.New("no supervisor: it serves with --no-supervisor, or its supervisor ended")
	}
	if err := k.wire.send(handOverTime, opUpgrade, nil); err != nil {
		return err
	}
	select {
	case <-k.handOver:
		return nil
	case why := <-k.answers:
		return errors.New(why)
	case <-k.ended:
		return errors.New("the supervisor ended")
	case <-time.After(probeTime + handOverTime):
		return ErrLate
	}
}

// Stats returns a snapshot. It may be called at any time.
func (k *Store) Stats() Stats {
	k.socketsMu.Lock()
	s := Stats{Unusable: k.unusable, Supervisor: "none", Sockets: len(k.stored), Waiting: len(k.waiting), Refused: k.refused, Capacity: k.hello.Capacity}
	k.socketsMu.Unlock()
	if k.systemd != nil {
		s.Supervisor, s.PID = "systemd", os.Getppid()
	}
	if k.wire != nil {
		s.Supervisor, s.PID = "yes", os.Getppid()
		s.Starts, s.Upgrades, s.Last = k.hello.Starts, k.hello.Upgrades, k.hello.Last
		if k.alone.Load() {
			s.Supervisor, s.PID = "gone", 0
		}
	}
	k.journalMu.Lock()
	defer k.journalMu.Unlock()
	if k.state != nil {
		s.State = k.state.path
	}
	if k.journal != nil {
		s.Journal = k.journal.snapshot()
	}
	return s
}
