package readfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Replace replaces a file as a whole, with mode 0600: a crash leaves the content before or this one.
func Replace(path string, content []byte) error {
	pending, err := Prepare(path, content, nil)
	if err != nil {
		return err
	}
	defer pending.Discard()
	return pending.Commit()
}

// Pending is the next content of a file, on the disk under another name.
type Pending struct{ path, temporary string }

// Prepare writes the next content of a file. With info, it has that mode and, if that is allowed, that owner; else the mode 0600. The
// caller has to Commit or Discard it.
func Prepare(path string, content []byte, info fs.FileInfo) (*Pending, error) {
	temporary, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // of mode 0600
	if err != nil {
		return nil, err
	}
	_, err = temporary.Write(content)
	if info != nil {
		if owner, ok := info.Sys().(*syscall.Stat_t); ok {
			_ = temporary.Chown(int(owner.Uid), int(owner.Gid)) // only root may; the content counts
		}
		err = errors.Join(err, temporary.Chmod(info.Mode().Perm()))
	}
	if err = errors.Join(err, temporary.Sync(), temporary.Close()); err != nil {
		return nil, errors.Join(err, os.Remove(temporary.Name()))
	}
	return &Pending{path, temporary.Name()}, nil
}

// Commit gives the content its name.
func (p *Pending) Commit() error {
	if err := os.Rename(p.temporary, p.path); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(p.path))
}

// Discard removes the content, unless Commit has given it its name.
func (p *Pending) Discard() { _ = os.Remove(p.temporary) }

func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
