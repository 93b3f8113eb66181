package flowfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/steering/steer"
)

// File is the file of this process, and until Commit what an earlier process left.
type File struct {
	path   string
	file   *os.File
	bytes  []byte // mapped
	layout layout
	offset time.Duration // of the file's clock: that of the entries plus this
	old    *old          // nil: there is nothing to take over

	workers []Worker
	unkept  atomic.Uint64
}

// old is the file of an earlier process.
type old struct {
	file   *os.File
	bytes  []byte
	layout layout
}

// ErrInUse is wrapped when another process has the file.
var ErrInUse = errors.New("another process has it")

// Open opens the file at path for workers of at most perWorker entries each. now is the clock of the entries. What an earlier process left
// can be read until Commit; why says why it cannot, "" if it can or if there is nothing.
func Open(path string, workers, perWorker int, now time.Duration) (f *File, why string, err error) {
	if workers < 1 || perWorker < 1 || perWorker > MaxRecords/workers {
		return nil, "", fmt.Errorf("%d workers with %d flows each are beyond %d flows", workers, perWorker, MaxRecords)
	}
	f = &File{path: path, layout: layout{workers: workers, perWorker: perWorker}, offset: monotonic() - now}
	if err := f.layout.here(); err != nil {
		return nil, "", err
	}
	if f.old, why, err = openOld(path, &f.layout); err != nil {
		return nil, "", err
	}
	if err := f.create(); err != nil {
		f.closeOld()
		return nil, "", err
	}
	f.workers = make([]Worker, workers)
	for i := range f.workers {
		start := headerSize + i*perWorker*recordSize
		f.workers[i] = Worker{file: f, records: f.bytes[start : start+perWorker*recordSize], start: int64(start)}
	}
	return f, why, nil
}

// monotonic is the clock of the file.
func monotonic() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // it cannot fail
	return time.Duration(ts.Nano())
}

// openOld opens what an earlier process left, which must not be in use.
func openOld(path string, here *layout) (o *old, why string, err error) {
	file, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	defer func() {
		if o == nil {
			file.Close()
		}
	}()
	info, err := file.Stat()
	switch {
	case err != nil:
		return nil, "", err
	case !info.Mode().IsRegular():
		return nil, "", fmt.Errorf("%s is no regular file", path)
	case !own(info):
		return nil, "", fmt.Errorf("%s belongs to another user", path)
	}
	if err := lock(file); err != nil {
		return nil, "", err
	}
	head := make([]byte, headerUsed+4)
	if n, err := file.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, "", err
	} else if n < len(head) {
		head = head[:n]
	}
	l, err := unmarshal(head, info.Size())
	if err != nil {
		return nil, err.Error(), nil
	}
	if why := l.usable(here); why != "" {
		return nil, why, nil
	}
	bytes, err := unix.Mmap(int(file.Fd()), 0, int(l.size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, "", fmt.Errorf("map %s: %w", path, err)
	}
	return &old{file, bytes, l}, "", nil
}

// own reports whether a file belongs to the user of this process.
func own(info os.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}

func lock(file *os.File) error {
	err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("%s: %w", file.Name(), ErrInUse)
	}
	return err
}

// create makes the new file next to its place.
func (f *File) create() (err error) {
	f.file, err = os.OpenFile(f.path+".new", os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.file.Close()
		}
	}()
	if err := lock(f.file); err != nil {
		return err
	}
	if err := f.file.Truncate(0); err != nil { // all of it reads as zero afterwards
		return err
	}
	if err := f.file.Truncate(f.layout.size()); err != nil {
		return err
	}
	if _, err := f.file.WriteAt(f.layout.marshal(), 0); err != nil {
		return err
	}
	f.bytes, err = unix.Mmap(int(f.file.Fd()), 0, int(f.layout.size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map %s: %w", f.file.Name(), err)
	}
	return nil
}

// Commit gives the new file its place. What the earlier process left is gone then.
func (f *File) Commit() error {
	defer f.closeOld()
	return os.Rename(f.path+".new", f.path)
}

func (f *File) closeOld() {
	if f.old != nil {
		_ = unix.Munmap(f.old.bytes)
		f.old.file.Close()
		f.old = nil
	}
}

// Close ends the writing. The file stays for the next process, or is removed.
func (f *File) Close(remove bool) error {
	f.closeOld()
	var err error
	if remove {
		err = os.Remove(f.path)
	}
	return errors.Join(err, unix.Munmap(f.bytes), f.file.Close())
}

// Path is where the file is.
func (f *File) Path() string { return f.path }

// Unkept counts entries that were not kept, because there was no memory.
func (f *File) Unkept() uint64 { return f.unkept.Load() }

// Worker returns the part of worker i, which only that worker may write.
func (f *File) Worker(i int) *Worker { return &f.workers[i] }

// Read calls yield for the entries that an earlier process left for worker i, those first that have proven themselves, with times by the clock of the
// entries here. With another number of workers than the earlier process had, it yields all entries, because any of them may come to worker i.
// It returns how many records are damaged.
func (f *File) Read(i int, yield func(steer.KeptFlow)) (damaged int) {
	if f.old == nil {
		return 0
	}
	records := f.old.bytes[headerSize:]
	if f.old.layout.workers == f.layout.workers {
		size := f.old.layout.perWorker * recordSize
		records = records[i*size : (i+1)*size]
	}
	for _, proven := range []bool{true, false} {
		damaged = 0
		for at := 0; at < len(records); at += recordSize {
			flow, used, ok := read(records[at : at+recordSize])
			switch {
			case !used:
			case !ok:
				damaged++
			case flow.Proven == proven:
				if flow.Until != never {
					flow.Until -= f.offset
				}
				yield(flow)
			}
		}
	}
	return damaged
}

const never = time.Duration(1<<63 - 1)
