package flowfile

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/steering/steer"
)

// chunk is how many records get their memory at a time.
const chunk = 1024

// Worker is the part of one worker. It is the journal of its Engine.
type Worker struct {
	file     *File
	records  []byte
	start    int64 // in the file
	reserved int   // records that have memory
	full     bool  // there is no more memory
}

var _ steer.Journal = (*Worker)(nil)

// Keep writes an entry.
func (w *Worker) Keep(number int, f steer.KeptFlow) {
	if number >= w.reserved && !w.reserve(number) {
		w.file.unkept.Add(1)
		return
	}
	until := f.Until
	if until != never {
		if until += w.file.offset; until < f.Until && w.file.offset > 0 {
			until = never
		}
	}
	write(w.records[number*recordSize:(number+1)*recordSize], &f, until)
}

// Forget removes an entry.
func (w *Worker) Forget(number int) {
	if number < w.reserved {
		atomic.StoreUint64(checkOf(w.records[number*recordSize:]), 0)
	}
}

// reserve makes sure that a store to the record with this number finds memory: without it, the process would be killed by SIGBUS.
func (w *Worker) reserve(number int) bool {
	total := len(w.records) / recordSize
	if w.full || number >= total {
		return false
	}
	until := min((number/chunk+1)*chunk, total)
	from, size := w.start+int64(w.reserved)*recordSize, int64(until-w.reserved)*recordSize
	if err := unix.Fallocate(int(w.file.file.Fd()), 0, from, size); err != nil {
		w.full = true
		return false
	}
	w.reserved = until
	return true
}
