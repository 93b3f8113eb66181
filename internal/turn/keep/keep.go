package keep

import (
	"errors"
	"log/slog"
)

// Bounds of what is kept.
const (
	MaxSockets = 65_536    // descriptors that a supervisor holds, if its file limit allows
	MaxName    = 200       // bytes of a socket's name
	MaxRecord  = 1 << 20   // bytes of a record
	MaxRecords = 262_144   // records in a journal
	MaxBytes   = 512 << 20 // bytes of a journal's live records
)

var (
	// ErrFull says that the supervisor holds all the sockets it can.
	ErrFull = errors.New("the supervisor holds as many sockets as it can")
	// ErrLate says that the supervisor did not take a socket in time.
	ErrLate = errors.New("the supervisor does not answer")
)

// Options say where records are kept. The zero value keeps them with the supervisor, or nowhere without one.
type Options struct {
	State string // directory that outlives every process, made if missing; empty: none
	Log   *slog.Logger
}

// Keep is the serving process's end. Its methods may be called by several goroutines at once.
type Keep struct{}

// Open takes over from the process before, under a supervisor its sockets too. Called once, before sockets are opened.
// Errors: a state directory that cannot be used or that another process uses, a journal that is none.
func Open(o Options) (*Keep, error) { return nil, errors.ErrUnsupported }

// Store hands a duplicate of fd to the supervisor under a name, replacing one of that name; the caller keeps its own. A
// socket that was taken is stored already. Errors: ErrFull, ErrLate; the caller counts them and goes on. Without a
// supervisor it does nothing.
func (k *Keep) Store(name string, fd int) error { return nil }

// Drop lets the supervisor close its duplicate. Ending the process is no reason to drop: what is stored then, the next
// process takes.
func (k *Keep) Drop(name string) {}

// Take gives the caller the socket that an earlier process stored, once.
func (k *Keep) Take(name string) (fd int, ok bool) { return -1, false }

// Names lists what can be taken.
func (k *Keep) Names() []string { return nil }

// Settle drops what nobody took, and returns how many that were.
func (k *Keep) Settle() int { return 0 }

// Put writes the record of an id, in place of an earlier one. It is in the kernel's hands when Put returns.
func (k *Keep) Put(id uint64, record []byte) {}

// Delete removes the record of an id. Ending the process is no reason to delete.
func (k *Keep) Delete(id uint64) {}

// Records yields every record, for the restore at the start. record is valid until yield returns.
func (k *Keep) Records(yield func(id uint64, record []byte) bool) {}

// Ready tells the supervisor that this process serves.
func (k *Keep) Ready() {}

// HandOver is closed when the supervisor wants this process to stop reading and end, keeping all that is stored, for a
// successor that is about to start.
func (k *Keep) HandOver() <-chan struct{} { return nil }
