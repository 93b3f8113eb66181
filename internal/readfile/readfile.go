package readfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Timeout is how long a file system may take to answer.
const Timeout = 5 * time.Second

// MaxHanging is how many reads of one File may hang at a time.
const MaxHanging = 8

// Read returns the content of a regular file. A file larger than maxBytes is an error.
func Read(path string, maxBytes int64) ([]byte, error) { return whole(path, maxBytes, false) }

// Once is Read that also takes a pipe, such as <(command) of a shell or /dev/stdin.
func Once(path string, maxBytes int64) ([]byte, error) { return whole(path, maxBytes, true) }

func whole(path string, maxBytes int64, pipes bool) ([]byte, error) {
	f := New(path, maxBytes+1)
	f.pipes = pipes
	text, err := f.Read()
	if err == nil && int64(len(text)) > maxBytes {
		return nil, fmt.Errorf("%s is larger than %d bytes; name another file, or split it", path, maxBytes)
	}
	return text, err
}

// File is a regular file that is read again and again. Its methods may be called from any goroutine.
type File struct {
	path     string
	maxBytes int64
	pipes    bool
	timeout  time.Duration
	open     func(path string, pipes bool) (io.ReadCloser, error)

	hanging atomic.Int32 // reads that were given up and have not come back
}

// New names a file; nothing is opened yet. Of a larger file, Read returns the first maxBytes.
func New(path string, maxBytes int64) *File {
	return &File{path: path, maxBytes: maxBytes, timeout: Timeout, open: open}
}

// Read returns the content. It takes at most Timeout.
func (f *File) Read() ([]byte, error) {
	if f.hanging.Load() >= MaxHanging {
		return nil, f.hangs("still does not answer")
	}
	f.hanging.Add(1)
	done := make(chan struct{})
	var text []byte
	var err error
	go func() {
		defer close(done)
		defer f.hanging.Add(-1)
		text, err = f.read()
	}()
	timer := time.NewTimer(f.timeout)
	defer timer.Stop()
	select {
	case <-done:
		return text, err
	case <-timer.C:
		return nil, f.hangs("does not answer for " + f.timeout.String())
	}
}

// Hangs reports whether a read is under way, such as one that was given up: the name may stand for another file by now, but the file
// system of then has not come back.
func (f *File) Hangs() bool { return f.hanging.Load() > 0 }

func (f *File) hangs(how string) error {
	return fmt.Errorf("%s %s; look at its file system (or the program that writes the pipe), or name another file", f.path, how)
}

func (f *File) read() ([]byte, error) {
	file, err := f.open(f.path, f.pipes)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, f.maxBytes))
}

// open never waits for the other end of a FIFO. The kind is looked at before, since opening a device may already do something.
func open(path string, pipes bool) (io.ReadCloser, error) {
	info, err := os.Stat(path)
	if err == nil {
		err = refuse(path, info, pipes)
	}
	if err != nil {
		return nil, remedy(err)
	}
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, remedy(err)
	}
	if info, err = file.Stat(); err == nil { // it may be another one by now
		err = refuse(path, info, pipes)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func refuse(path string, info fs.FileInfo, pipes bool) error {
	kind := ""
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return nil
	case mode&fs.ModeNamedPipe != 0 && pipes:
		return nil
	case mode&fs.ModeNamedPipe != 0:
		kind = "a pipe"
	case mode.IsDir():
		kind = "a directory"
	case mode&fs.ModeDevice != 0:
		kind = "a device"
	case mode&fs.ModeSocket != 0:
		kind = "a socket"
	default:
		kind = "no file with content"
	}
	return fmt.Errorf("%s is %s; name a regular file", path, kind)
}

// remedy adds to an error of opening what to do about it.
func remedy(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w; create it, or name another file", err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w; let user id %d read it, or name another file", err, os.Geteuid())
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ENXIO):
		return fmt.Errorf("%w; name a regular file", err)
	}
	return err
}
