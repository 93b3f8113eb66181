package discovery

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/weir-lb/weir/internal/readfile"
)

// readState returns the configuration that a process before this one has kept; nil: there is none.
func readState(path string) ([]byte, error) {
	text, err := readfile.Read(path, MaxConfig)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("the last configuration: %w", err)
	case len(text) == 0:
		return nil, fmt.Errorf("the last configuration, %s, is empty; remove the file", path)
	}
	return text, nil
}

// writeState replaces the file as a whole, so that a crash leaves the one before or this one. It may hold secrets: keys of hashes and of
// connection ids.
func writeState(path string, config []byte) error {
	folder := filepath.Dir(path)
	temporary, err := os.CreateTemp(folder, "."+filepath.Base(path)+"-*") // of mode 0600
	if err != nil {
		return fmt.Errorf("keep the configuration: %w", err)
	}
	defer os.Remove(temporary.Name()) // nothing is there after a success
	_, err = temporary.Write(config)
	if err = errors.Join(err, temporary.Sync(), temporary.Close()); err == nil {
		err = os.Rename(temporary.Name(), path)
	}
	if err == nil {
		err = syncFolder(folder)
	}
	if err != nil {
		return fmt.Errorf("keep the configuration: %w", err)
	}
	return nil
}

func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
