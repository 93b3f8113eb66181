// Package scratch makes temporary directories that do not outlive their process for long.
//
// A directory is locked while its process runs (flock(2)); the kernel lets go of the lock however that process ends. New
// removes the directories that no program holds, so what a killed run left is gone when the next one starts: the same that
// netlab does for network namespaces. A lock, unlike a PID in a name, is also valid between containers that share
// /tmp.
//
//	dir, err := scratch.New()
//	if err != nil {
//		return err
//	}
//	defer dir.Remove()
//	config := filepath.Join(dir.Path, "weir.yaml")
package scratch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const prefix = "weir-scratch-" // short: Unix sockets, of at most 107 bytes, lie within

// Dir is a temporary directory of this process, locked until Remove or the end of the process.
type Dir struct {
	Path string
	lock int // a file descriptor, not an os.File: that one is closed when nothing refers to it any more
}

// New makes a directory below os.TempDir, for this user alone, after it has swept what dead processes of this user left.
func New() (*Dir, error) {
	if err := sweep(); err != nil {
		return nil, fmt.Errorf("remove what dead runs left: %w", err)
	}
	for {
		path, err := os.MkdirTemp("", prefix)
		if err != nil {
			return nil, fmt.Errorf("make a temporary directory: %w", err)
		}
		dir, err := hold(path, 0)
		if err == nil {
			var lock int
			lock, err = unix.FcntlInt(dir.Fd(), unix.F_DUPFD_CLOEXEC, 0) // has the lock, too
			dir.Close()
			if err == nil {
				return &Dir{Path: path, lock: lock}, nil
			}
		}
		if !errors.Is(err, fs.ErrNotExist) { // else another sweep was faster than our lock
			return nil, errors.Join(err, os.RemoveAll(path))
		}
	}
}

// Remove deletes the directory with all in it. A second call does nothing.
func (d *Dir) Remove() error {
	err := os.RemoveAll(d.Path)
	if d.lock >= 0 {
		_ = unix.Close(d.lock) // after the removal: a sweep does not come between
	}
	d.lock = -1
	return err
}

// Abandon deletes every directory of this process: it is for a process that ends at once.
func Abandon() error {
	const open = "/proc/self/fd" // a directory's lock is open for as long as the directory is there
	entries, err := os.ReadDir(open)
	if err != nil {
		return fmt.Errorf("find our temporary directories: %w", err)
	}
	var errs []error
	for _, entry := range entries {
		path, err := os.Readlink(filepath.Join(open, entry.Name()))
		if err == nil && strings.HasPrefix(filepath.Base(path), prefix) {
			errs = append(errs, os.RemoveAll(path))
		}
	}
	return errors.Join(errs...)
}

// hold locks a directory. It fails with fs.ErrNotExist where path has gone meanwhile.
func hold(path string, how int) (*os.File, error) {
	dir, err := os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|how); err != nil {
		dir.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	held, err := dir.Stat()
	if err == nil {
		var now fs.FileInfo
		if now, err = os.Lstat(path); err == nil && !os.SameFile(held, now) {
			err = fs.ErrNotExist
		}
	}
	if err != nil {
		dir.Close()
		return nil, err
	}
	return dir, nil
}

// sweep removes this user's directories that no process holds.
func sweep() error {
	paths, err := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range paths {
		info, err := os.Lstat(path)
		if err != nil || !info.IsDir() || info.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid()) {
			continue // gone, or not ours
		}
		lock, err := hold(path, syscall.LOCK_NB)
		if err != nil {
			continue // in use, or gone
		}
		errs = append(errs, os.RemoveAll(path), lock.Close())
	}
	return errors.Join(errs...)
}
