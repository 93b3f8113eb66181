package handshake

import (
	"testing"
	"time"
)

// A list of server names that ends too early made parsing loop for ever: one datagram stopped a worker.
func TestParsingEnds(t *testing.T) {
	for _, list := range [][]byte{{0}, {0, 0}, {0, 0, 9, 'x'}, {1, 0xff}} {
		data := appendVector16(nil, list)
		c := cursor{b: data}
		done := make(chan bool, 1)
		go func() {
			var h hello
			h.parseServerName(&c, true)
			done <- c.bad
		}()
		select {
		case bad := <-done:
			if !bad {
				t.Errorf("%x is taken", list)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%x: parsing does not end", list)
		}
	}
}
