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
