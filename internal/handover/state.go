package handover

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// journalFile is the name of the journal in a state directory, lockFile that of the lock file in it.
const (
	journalFile = "journal"
	lockFile    = "lock"
)

// stateDir is a locked directory. The lock ends with the process.
type stateDir struct {
	path string
	lock *os.File
}

func openState(path string) (_ *stateDir, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("state directory %s: %w", path, err)
		}
	}()
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o022 != 0 {
		return nil, fmt.Errorf("mode %04o lets others write; chmod it to 0700", info.Mode().Perm())
	}
	lock, err := openFile(filepath.Join(path, lockFile))
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		holder := make([]byte, 20)
		n, _ := lock.ReadAt(holder, 0)
		_ = lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			pid := strings.TrimSpace(string(holder[:n]))
			return nil, fmt.Errorf("process %s uses it, another server or one that serves on alone because its supervisor ended; stop it (kill %s) or name another directory", pid, pid)
		}
		return nil, fmt.Errorf("lock: %w", err)
	}
	if err := lock.Truncate(0); err == nil {
		_, _ = lock.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0) // for a process that finds the directory locked
	}
	return &stateDir{path: path, lock: lock}, nil
}

// openFile opens a regular file that only its owner may read. It does not follow links.
func openFile(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("%s: a symbolic link; remove it", path)
	}
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s: not a regular file", path)
	}
	if err == nil {
		err = file.Chmod(0o600)
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// unusable reports whether an error means that a directory is correct but currently cannot be used.
func unusable(err error) bool {
	for _, errno := range []error{unix.ENOSPC, unix.EDQUOT, unix.EROFS, unix.EACCES, unix.EPERM, unix.EIO, unix.ENOMEM, errAside} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// unreadableError is the error for a file in the journal's place that is not a journal of this version.
type unreadableError struct{ error }

func (e *unreadableError) Unwrap() error { return e.error }

// errAside means that too many journals were moved aside before, and no one has removed them.
var errAside = errors.New("journals were set aside before; look at them and remove them")

const maxAside = 8 // journals that may be moved aside

// setAside renames the journal to the first free name of journal.bad, journal.bad.1 and so on, and returns the new
// path. The path is empty if there was no journal.
func (d *stateDir) setAside() (string, error) {
	path := filepath.Join(d.path, journalFile)
	for i := range maxAside {
		aside := path + ".bad"
		if i > 0 {
			aside += "." + strconv.Itoa(i)
		}
		err := unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, aside, unix.RENAME_NOREPLACE)
		switch {
		case err == nil:
			return aside, nil
		case errors.Is(err, unix.ENOENT):
			return "", nil
		case !errors.Is(err, unix.EEXIST):
			return "", fmt.Errorf("set %s aside: %w", path, err)
		}
	}
	return "", fmt.Errorf("set %s aside: %s.bad and %d more: %w", path, path, maxAside-1, errAside)
}

// open reads the journal of the directory.
func (d *stateDir) open() (*journal, damage, error) {
	path := filepath.Join(d.path, journalFile)
	file, err := openFile(path)
	if err != nil {
		return nil, damage{}, fmt.Errorf("state directory %s: %w", d.path, err)
	}
	j, lost, err := openJournal(file)
	if err != nil {
		_ = file.Close()
		return nil, lost, fmt.Errorf("%s: %w", path, err)
	}
	temporary := path + ".new"
	j.fresh = func() (*os.File, error) {
		if err := os.Remove(temporary); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		return openFile(temporary)
	}
	j.install = func(*os.File) error { return os.Rename(temporary, path) }
	return j, lost, nil
}

// newMemory creates a file that exists as long as a process holds a descriptor of it.
func newMemory(name string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a memfd: %w", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}
