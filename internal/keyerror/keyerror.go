// Package keyerror is the error of a value in a configuration. It holds the path of the value's key apart from the text, so
// that the caller can find its line in a file, or name the flag or the key of another format that the value came from.
//
//	return keyerror.At("listeners[1]", keyerror.Errorf("port", "%d is taken; choose another one", port))
//	// listeners[1].port: 3478 is taken; choose another one
package keyerror

import (
	"fmt"
	"strings"
)

// Error is what is wrong with the value of one key.
type Error struct {
	Key string // its path from the top of the configuration, such as listeners[1].port
	Err error  // what is wrong; remedy
}

func (e *Error) Error() string { return e.Key + ": " + e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// Errorf is an Error with a text as of fmt.Errorf.
func Errorf(key, format string, args ...any) error {
	return &Error{Key: key, Err: fmt.Errorf(format, args...)}
}

// At says that err is that of key, or of the key below it that err names if it is an Error itself. Of Errors it does so
// with each. It returns nil for nil.
func At(key string, err error) error {
	switch below := err.(type) { //nolint:errorlint // an Error inside of another text is not the innermost key of this path
	case nil:
		return nil
	case *Error:
		return &Error{Key: key + "." + below.Key, Err: below.Err}
	case Errors:
		var list List
		for _, one := range below {
			list.Add(At(key, one))
		}
		return list.Err()
	}
	return &Error{Key: key, Err: err}
}

// Errors are several errors of one configuration. As one error it has a line for each.
type Errors []error

func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, one := range e {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns all of them.
func (e Errors) Unwrap() []error { return e }

// List collects the errors of the values of one configuration, so that all are reported at once. The zero value is empty.
type List struct{ all Errors }

// Add adds an error, or each one of Errors; nil adds nothing.
func (l *List) Add(err error) {
	if several, ok := err.(Errors); ok { //nolint:errorlint // Errors inside of another text belong to it
		l.all = append(l.all, several...)
	} else if err != nil {
		l.all = append(l.all, err)
	}
}

// If adds an error as of Errorf if the value is wrong.
func (l *List) If(wrong bool, key, format string, args ...any) {
	if wrong {
		l.Add(Errorf(key, format, args...))
	}
}

// Err returns nil for an empty list, the only error, or all as Errors.
func (l *List) Err() error {
	switch len(l.all) {
	case 0:
		return nil
	case 1:
		return l.all[0]
	}
	return l.all
}
