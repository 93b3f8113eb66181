package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/weir-lb/weir/internal/keyerror"
)

// Position is a place in a file, counted from 1. Column counts bytes of the parser's reading, tabs as one.
type Position struct{ Line, Column int }

// Error is one error in a document.
type Error struct {
	File string
	Position
	Path    string // such as services[0].mode; empty: the document as a whole
	Message string // what is wrong; remedy

	unknown bool // the key, not its value
}

func (e *Error) Error() string {
	if e.Path == "" {
		return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Message)
	}
	return fmt.Sprintf("%s:%d:%d: %s: %s", e.File, e.Line, e.Column, e.Path, e.Message)
}

// Errors are several errors in a document, in its order. As one error it is the first, with the number of the others.
type Errors []error

func (e Errors) Error() string {
	return fmt.Sprintf("%v (and %d more; weir check lists all)", e[0], len(e)-1)
}

// Unwrap returns all of them.
func (e Errors) Unwrap() []error { return e }

// OneOf is nil for none, the error itself for one, and Errors for several.
func OneOf(all []error) error {
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	default:
		return Errors(all)
	}
}

// Document knows where each value of a decoded document is.
type Document struct {
	file string
	once sync.Once
	find func() map[string]Position // nil: positions are there
	at   map[string]Position

	warnings []string
}

// Warnings are of keys that have another name now: one line each, with file, line, key and what to write.
// A nil document has none.
func (d *Document) Warnings() []string {
	if d == nil {
		return nil
	}
	return d.warnings
}

// positions are by path. A document without errors is seldom asked for one, and a large one has many: they are found when they are
// needed first.
func (d *Document) positions() map[string]Position {
	d.once.Do(func() {
		if d.find != nil {
			d.at, d.find = d.find(), nil
		}
	})
	return d.at
}

// File is the name given to Decode.
func (d *Document) File() string { return d.file }

// Position returns the position of a path; for a path that the document does not have, that of its nearest ancestor.
func (d *Document) Position(path string) Position {
	for positions := d.positions(); ; {
		if p, ok := positions[path]; ok {
			return p
		}
		if path == "" {
			return Position{1, 1}
		}
		path = parent(path)
	}
}

// Errorf is an Error at a path, for checks that run after Decode.
func (d *Document) Errorf(path, format string, args ...any) error {
	return &Error{File: d.file, Position: d.Position(path), Path: path, Message: fmt.Sprintf(format, args...)}
}

// Locate adds the file, line and column to a [keyerror.Error], and to each one of several joined errors. It returns other errors
// unchanged, and all errors if d is nil, which means that the values did not come from a file.
func (d *Document) Locate(err error) error {
	if d == nil {
		return err
	}
	switch err := err.(type) { //nolint:errorlint // what wraps a key error in more text would lose that text
	case *keyerror.Error:
		return d.Errorf(err.Key, "%v", err.Err)
	case interface{ Unwrap() []error }:
		all := slices.Clone(err.Unwrap())
		for i, one := range all {
			all[i] = d.Locate(one)
		}
		return OneOf(inOrder(all))
	}
	return err
}

// inOrder sorts errors as the document has them.
func inOrder(all []error) []error {
	slices.SortStableFunc(all, func(a, b error) int {
		var x, y *Error
		if !errors.As(a, &x) || !errors.As(b, &y) {
			return 0
		}
		return cmp.Or(cmp.Compare(x.Line, y.Line), cmp.Compare(x.Column, y.Column))
	})
	return all
}

// parent strips the last key or index of a path.
func parent(path string) string {
	for i := len(path) - 1; i >= 0; i-- {
		if path[i] == '.' || path[i] == '[' {
			return path[:i]
		}
	}
	return ""
}
