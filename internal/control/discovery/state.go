package discovery

import (
	"errors"
	"fmt"
	"io/fs"

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

// writeState replaces the file as a whole. It may hold secrets: keys of hashes and of connection ids.
func writeState(path string, config []byte) error {
	if err := readfile.Replace(path, config); err != nil {
		return fmt.Errorf("keep the configuration: %w", err)
	}
	return nil
}
