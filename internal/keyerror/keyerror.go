// Package keyerror is the error of a value in a configuration. It holds the path of the value's key apart from the text, so
// that the caller can find its line in a file, or name the flag or the key of another format that the value came from.
//
//	return keyerror.At("listeners[1]", keyerror.Errorf("port", "%d is taken; choose another one", port))
//	// listeners[1].port: 3478 is taken; choose another one
package keyerror

import "fmt"

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

// At says that err is that of key, or of the key below it that err names if it is an Error itself. It returns nil for nil.
func At(key string, err error) error {
	if err == nil {
		return nil
	}
	if below, ok := err.(*Error); ok { //nolint:errorlint // an Error inside of another text is not the innermost key of this path
		return &Error{Key: key + "." + below.Key, Err: below.Err}
	}
	return &Error{Key: key, Err: err}
}
