package config

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/weir-lb/weir/internal/readfile"
)

// ErrFileChanged is in the error of Prepare when the file is not what the caller has read.
var ErrFileChanged = errors.New("the file has changed meanwhile")

// Writing is a new content of a file that is on the disk already under another name.
type Writing struct {
	file    *File
	pending *readfile.Pending
	sum     [sha256.Size]byte
}

// Prepare writes text to a new file in the directory of the file, so that Commit can hardly fail. The file must have the content before. A
// symbolic link stays one: what it names is replaced.
func (f *File) Prepare(before, text []byte) (*Writing, error) {
	now, err := f.Read()
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(now, before) {
		return nil, fmt.Errorf("write %s: %w; wait until it is in force, or take its error away, and do it again", f.path, ErrFileChanged)
	}
	path, err := filepath.EvalSymlinks(f.path)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	pending, err := readfile.Prepare(path, text, info)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", f.path, err)
	}
	return &Writing{file: f, pending: pending, sum: sha256.Sum256(text)}, nil
}

// Commit gives the new content the name of the file. Watch does not report it.
func (w *Writing) Commit() error {
	w.file.own.Store(&w.sum)
	return w.pending.Commit()
}

// Discard removes the new content, unless Commit has used it.
func (w *Writing) Discard() { w.pending.Discard() }

// wrote reports whether a text is what Commit has written last. When the file has any other new content, it is no longer of interest.
func (f *File) wrote(text []byte, last *lastRead) bool {
	own := f.own.Load()
	if own == nil {
		return false
	}
	if sha256.Sum256(text) == *own {
		last.text, last.failure = text, ""
		return true
	}
	if !bytes.Equal(text, last.text) {
		f.own.CompareAndSwap(own, nil)
	}
	return false
}
