package keyerror

import (
	"errors"
	"fmt"
	"io"
	"testing"
)

// The path grows outwards, the text and what it wraps stay.
func TestAt(t *testing.T) {
	inner := Errorf("key", "%d bytes: %w", 3, io.ErrUnexpectedEOF)
	err := At("listeners[1]", At("certificate", inner))
	var keyed *Error
	if !errors.As(err, &keyed) || keyed.Key != "listeners[1].certificate.key" || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%#v", err)
	}
	if got, want := err.Error(), "listeners[1].certificate.key: 3 bytes: unexpected EOF"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if got := At("a", fmt.Errorf("cluster: %w", Errorf("b", "c"))).Error(); got != "a: cluster: b: c" {
		t.Errorf("%s", got)
	}
	if At("a", nil) != nil {
		t.Error("an error of nothing")
	}
}

// Several errors stay apart, each with its own path; one is itself, none is nil.
func TestList(t *testing.T) {
	var list List
	if list.Add(nil); list.Err() != nil {
		t.Error(list.Err())
	}
	list.If(false, "a", "b")
	if list.If(true, "a", "%d", 1); list.Err().Error() != "a: 1" {
		t.Error(list.Err())
	}
	var outer List
	list.If(true, "b", "2")
	outer.Add(At("x[0]", list.Err()))
	outer.Add(At("x[1]", io.EOF))
	several, ok := outer.Err().(Errors) //nolint:errorlint // it is the list itself
	if !ok || len(several) != 3 || several.Error() != "x[0].a: 1\nx[0].b: 2\nx[1]: EOF" || !errors.Is(several, io.EOF) {
		t.Errorf("%#v", outer.Err())
	}
	if text := At("k", fmt.Errorf("text: %w", several)).Error(); text != "k: text: x[0].a: 1\nx[0].b: 2\nx[1]: EOF" {
		t.Error(text)
	}
}
