package config

import (
	"errors"
	"strings"
)

// Also adds to err, which Decode returned, what a check of the value that could be read found, so that one run reports both.
// check returns errors of this document, or nil; it is not called if the text is not YAML. Left out is what may follow from
// the errors that are known: errors of the same value, of its mapping, and of keys that are missing while an unknown one is there.
func (d *Document) Also(err error, check func() error) error {
	if err == nil || len(d.positions()) == 0 {
		return err
	}
	all := flat(err)
	known := len(all)
	for _, one := range flat(check()) {
		var later *Error
		if len(all) < maxErrors && errors.As(one, &later) && !d.followsFrom(all[:known], later) {
			all = append(all, later)
		}
	}
	return OneOf(inOrder(all))
}

// flat returns the errors of a document one by one.
func flat(err error) []error {
	if several, ok := err.(Errors); ok { //nolint:errorlint // Errors inside of another text are one error
		return append([]error(nil), several...)
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

// followsFrom reports whether an error may be but a consequence of others.
func (d *Document) followsFrom(others []error, later *Error) bool {
	for _, other := range others {
		var first *Error
		if !errors.As(other, &first) {
			return true
		}
		mapping := parent(first.Path)
		_, present := d.positions()[later.Path]
		switch {
		case below(first.Path, later.Path), below(later.Path, first.Path): // the same value, one inside of it, or one around it
			return true
		case first.unknown && !present && parent(later.Path) == mapping: // perhaps the key that was meant
			return true
		case !first.unknown && mapping != "" && below(later.Path, mapping): // perhaps compared with the value that is missing
			return true
		}
	}
	return false
}

// below reports whether path is that of a value, or of one inside of it.
func below(path, value string) bool {
	rest, ok := strings.CutPrefix(path, value)
	return ok && (rest == "" || value == "" || rest[0] == '.' || rest[0] == '[')
}
