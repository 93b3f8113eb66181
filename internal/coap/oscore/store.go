package oscore

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// FileStore is a Store in a file, which several processes may share: each gets numbers of its own.
type FileStore struct{ path string }

// NewFileStore returns a Store in the file at path, which the first Reserve creates, with a file path.lock next to it.
func NewFileStore(path string) *FileStore { return &FileStore{path: path} }

// maxState bounds the file, in bytes: 65,536 contexts.
const maxState = 4 << 20

// Reserve implements Store. It replaces the file as a whole and returns once that is on disk.
func (f *FileStore) Reserve(id string, count uint64) (first uint64, err error) {
	if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
		return 0, fmt.Errorf("oscore: state file: %w", err)
	}
	lock, err := os.OpenFile(f.path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return 0, fmt.Errorf("oscore: state file: %w", err)
	}
	defer lock.Close() //nolint:errcheck // nothing was written
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return 0, fmt.Errorf("oscore: lock %s: %w", lock.Name(), err)
	}
	numbers, err := f.read()
	if err != nil {
		return 0, err
	}
	first = numbers[id]
	if first > maxSequence {
		return 0, ErrSpent
	}
	numbers[id] = first + count
	return first, f.write(numbers)
}

// read returns the next number of each context.
func (f *FileStore) read() (map[string]uint64, error) {
	numbers := map[string]uint64{}
	file, err := os.Open(f.path)
	if errors.Is(err, os.ErrNotExist) {
		return numbers, nil
	}
	if err != nil {
		return nil, fmt.Errorf("oscore: state file: %w", err)
	}
	defer file.Close() //nolint:errcheck // it was only read
	text, err := io.ReadAll(io.LimitReader(file, maxState))
	if err != nil {
		return nil, fmt.Errorf("oscore: state file: %w", err)
	}
	if err := json.Unmarshal(text, &numbers); err != nil {
		return nil, fmt.Errorf("oscore: %s: %w; a sequence number must not be used twice: restore the file, or agree on new master secrets and remove it", f.path, err)
	}
	return numbers, nil
}

// write replaces the file.
func (f *FileStore) write(numbers map[string]uint64) error {
	text, err := json.MarshalIndent(numbers, "", " ")
	if err != nil {
		return err
	}
	temporary, err := os.CreateTemp(filepath.Dir(f.path), filepath.Base(f.path)+".*")
	if err != nil {
		return fmt.Errorf("oscore: state file: %w", err)
	}
	_, err = temporary.Write(append(text, '\n'))
	if err = errors.Join(err, temporary.Sync(), temporary.Close()); err == nil {
		err = os.Rename(temporary.Name(), f.path)
	}
	if err != nil {
		os.Remove(temporary.Name()) //nolint:errcheck // the error that matters is err
		return fmt.Errorf("oscore: state file: %w", err)
	}
	folder, err := os.Open(filepath.Dir(f.path))
	if err != nil {
		return fmt.Errorf("oscore: state file: %w", err)
	}
	return errors.Join(folder.Sync(), folder.Close())
}
