package handover

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// OpenState opens a file of the state directory, in addition to the journal, and creates it if it is missing. Only the owner may read it. It is empty if
// processes ended of what was in it, as the supervisor has found. It returns nil without a directory, or if that cannot be written.
func (k *Store) OpenState(name string) (*os.File, error) {
	if k.state == nil {
		return nil, nil
	}
	file, err := openFile(k.statePath(name))
	if err == nil && k.hello.Clean {
		if err = file.Truncate(0); err != nil {
			_ = file.Close()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("state directory %s: %w", k.state.path, err)
	}
	return file, nil
}

// ReplaceState opens a new file, which install makes the one that OpenState opens. Without a directory both are nil.
func (k *Store) ReplaceState(name string) (file *os.File, install func() error, err error) {
	if k.state == nil {
		return nil, nil, nil
	}
	path := k.statePath(name)
	temporary := path + ".new"
	if err = os.Remove(temporary); err == nil || errors.Is(err, os.ErrNotExist) {
		file, err = openFile(temporary)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("state directory %s: %w", k.state.path, err)
	}
	return file, func() error { return os.Rename(temporary, path) }, nil
}

func (k *Store) statePath(name string) string {
	return filepath.Join(k.state.path, strings.ReplaceAll(name, "/", "."))
}
