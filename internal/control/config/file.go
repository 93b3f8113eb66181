package config

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/readfile"
)

// File is a configuration file that may change while it is watched. A ConfigMap volume is one: Kubernetes swaps a
// symlink in the same directory. Its methods may be called from any goroutine, Watch from one at a time.
type File struct {
	path   string
	file   *readfile.File
	reload chan struct{}
	poll   time.Duration

	reloadMu sync.Mutex
	reloaded chan struct{}                     // of the reload that Watch has not begun yet; nil: none
	own      atomic.Pointer[[sha256.Size]byte] // of what Commit has written last; nil: nothing, or the file has changed since
	// watching is called with each directory whose watch begins; for tests.
	watching func(directory string)
}

// NewFile names a file; it is not opened yet.
func NewFile(path string) *File {
	return &File{path: path, file: readfile.New(path, MaxJSONBytes+1), reload: make(chan struct{}, 1), poll: poll}
}

// Path is the name given to NewFile.
func (f *File) Path() string { return f.path }

// Read returns the file's bytes, at most MaxJSONBytes+1 of them: Decode then refuses a longer file by name. It takes at most
// readfile.Timeout, whatever kind of file has the name; only a regular file is read.
func (f *File) Read() ([]byte, error) { return f.file.Read() }

// Once reads a configuration for a command that reads it only once. The file may be a pipe, such as <(command) of a shell.
func Once(path string) ([]byte, error) { return readfile.Once(path, MaxJSONBytes) }

// Reload makes Watch report the file even if it looks unchanged (SIGHUP). It never blocks; any goroutine may call it. The channel
// closes when Watch has reported it.
func (f *File) Reload() (done <-chan struct{}) {
	f.reloadMu.Lock()
	defer f.reloadMu.Unlock()
	if f.reloaded == nil {
		f.reloaded = make(chan struct{})
		f.reload <- struct{}{} // there is space: none waits
	}
	return f.reloaded
}

// reloading is a reload that Watch has begun; nil: there is none.
type reloading chan struct{}

func (f *File) beginReload() reloading {
	f.reloadMu.Lock()
	defer f.reloadMu.Unlock()
	reloaded := f.reloaded
	f.reloaded = nil
	return reloaded
}

func (r reloading) end() {
	if r != nil {
		close(r)
	}
}

const (
	quietTime = 100 * time.Millisecond // editors write in several steps; a change is read when it has been quiet this long
	noisyTime = 500 * time.Millisecond // one that is not, such as of a program that writes all the time, is read after this long
	poll      = 10 * time.Second       // interval of reading on file systems without inotify (NFS, some overlays)
)

// Watch calls changed with the new content, or with the error of reading it, each time the file differs from before or
// Reload was called. seen is the content that the caller has read last. Watch runs until ctx ends and then returns nil, also
// while the file system does not answer. An error means that the directory cannot be watched at all.
func (f *File) Watch(ctx context.Context, seen []byte, changed func(text []byte, err error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	directory := filepath.Dir(f.path)
	var events <-chan struct{} // nil: the directory is gone or does not answer, so the file is polled
	begun := f.begin(ctx, directory)
	select {
	case <-ctx.Done():
		return nil
	case w := <-begun:
		if w.err != nil {
			return fmt.Errorf("watch %s: %w", directory, w.err)
		}
		events, begun = w.events, nil
	case <-time.After(readfile.Timeout):
	}
	ticker := time.NewTicker(f.poll)
	defer ticker.Stop()
	var since time.Time   // of the first event that was not read yet
	quiet := soon(&since) // read it once: the file may have changed before the watch began
	last := lastRead{text: seen}
	for {
		forced := reloading(nil)
		select {
		case <-ctx.Done():
			return nil
		case _, ok := <-events:
			if !ok {
				events = nil
			}
			quiet = soon(&since)
			continue
		case w := <-begun:
			events, begun = w.events, nil
			quiet = soon(&since)
			continue
		case <-quiet:
		case <-ticker.C:
			if events == nil && begun == nil { // another directory may have the name by now
				begun = f.begin(ctx, directory)
			}
			if f.file.Hangs() { // it will come back; an event or a reload tries again, for the name may mean another file by then
				continue
			}
		case <-f.reload:
			forced = f.beginReload()
		}
		quiet, since = nil, time.Time{}
		text, err := f.readUntil(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if own := err == nil && f.wrote(text, &last); !own && last.differs(text, err) || forced != nil {
			changed(text, err)
		}
		forced.end()
	}
}

// soon is when a file is read after an event; since is the time of the first event that was not read yet.
func soon(since *time.Time) <-chan time.Time {
	if since.IsZero() {
		*since = time.Now()
	}
	return time.After(min(quietTime, noisyTime-time.Since(*since)))
}

// lastRead is what a file's last reading gave.
type lastRead struct {
	text    []byte // of the last one without an error
	failure string // empty: the last one had no error
}

// differs reports whether this reading gave something else, and records it.
func (l *lastRead) differs(text []byte, err error) bool {
	if err != nil {
		differs := err.Error() != l.failure
		l.failure = err.Error()
		return differs
	}
	differs := l.failure != "" || !bytes.Equal(text, l.text)
	l.text, l.failure = text, ""
	return differs
}

// readUntil is Read that also returns when ctx ends.
func (f *File) readUntil(ctx context.Context) ([]byte, error) {
	var text []byte
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		text, err = f.Read()
	}()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-done:
		if err != nil {
			return nil, err
		}
		return text, nil
	}
}

// watched is a directory whose watch has begun, or could not.
type watched struct {
	events <-chan struct{}
	err    error
}

// begin runs watchDirectory on its own goroutine, because looking up a name in a file system that hangs blocks for ever.
func (f *File) begin(ctx context.Context, directory string) <-chan watched {
	begun := make(chan watched, 1)
	go func() {
		events, err := f.watchDirectory(ctx, directory)
		begun <- watched{events, err}
	}()
	return begun
}

// watchDirectory reports that something in a directory changed. The channel closes when the directory goes away or
// ctx ends.
func (f *File) watchDirectory(ctx context.Context, directory string) (<-chan struct{}, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, err
	}
	const mask = unix.IN_CLOSE_WRITE | unix.IN_MOVED_TO | unix.IN_CREATE | unix.IN_DELETE | unix.IN_DELETE_SELF |
		unix.IN_MOVE_SELF | unix.IN_ONLYDIR
	if _, err := unix.InotifyAddWatch(fd, directory, mask); err != nil {
		unix.Close(fd)
		return nil, err
	}
	if f.watching != nil {
		f.watching(directory)
	}
	file := os.NewFile(uintptr(fd), "inotify") // non-blocking, so that Close ends a Read
	events := make(chan struct{}, 1)
	stop := context.AfterFunc(ctx, func() { file.Close() })
	go func() {
		defer close(events)
		defer file.Close()
		defer stop()
		buffer := make([]byte, 4096+unix.SizeofInotifyEvent)
		for {
			n, err := file.Read(buffer)
			if err != nil || n == 0 {
				return
			}
			select {
			case events <- struct{}{}:
			default: // one is waiting already
			}
			if gone(buffer[:n]) {
				return
			}
		}
	}()
	return events, nil
}

// gone reports whether the events say that the watched directory itself went away.
func gone(events []byte) bool {
	for len(events) >= unix.SizeofInotifyEvent {
		mask := uint32(events[4]) | uint32(events[5])<<8 | uint32(events[6])<<16 | uint32(events[7])<<24
		if mask&(unix.IN_IGNORED|unix.IN_DELETE_SELF|unix.IN_MOVE_SELF) != 0 {
			return true
		}
		name := int(events[12]) | int(events[13])<<8 | int(events[14])<<16 | int(events[15])<<24
		size := unix.SizeofInotifyEvent + name
		if name < 0 || size > len(events) {
			return false
		}
		events = events[size:]
	}
	return false
}
