package readfile

import (
	"errors"
	"os"
	"path/filepath"
)

// Replace replaces a file as a whole, with mode 0600: a crash leaves the content before or this one.
func Replace(path string, content []byte) error {
	folder := filepath.Dir(path)
	temporary, err := os.CreateTemp(folder, "."+filepath.Base(path)+"-*") // of mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name()) // nothing is there after a success
	_, err = temporary.Write(content)
	if err = errors.Join(err, temporary.Sync(), temporary.Close()); err == nil {
		err = os.Rename(temporary.Name(), path)
	}
	if err == nil {
		err = syncFolder(folder)
	}
	return err
}

func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
