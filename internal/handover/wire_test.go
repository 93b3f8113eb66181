package handover

import (
	"bytes"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Whatever a child or a supervisor sends, the other end reads it without harm: a message arrives as it was sent, names are
// those that fit, control data that are no descriptors give none, and a supervisor stores no more than it has room for.
func FuzzWire(f *testing.F) {
	f.Add(byte(opStore), []byte("relay/192.0.2.1:49152"), []byte{}, true)
	f.Add(byte(opSockets), appendName(appendName(nil, "a"), "keep/journal"), []byte{16, 0, 0, 0}, false)
	f.Add(byte(opHello), []byte(`{"protocol":1}`), unix.UnixRights(0), false)
	f.Add(byte(opSockets), []byte{0}, []byte{}, true)
	f.Fuzz(func(t *testing.T, op byte, body, control []byte, withSocket bool) {
		if len(body) >= maxMessage {
			t.Skip()
		}
		_ = parseRights(control) // which the kernel writes
		joined := []byte(nil)
		for _, name := range parseNames(body) {
			joined = appendName(joined, name)
		}
		if len(joined) > 0 && !bytes.Equal(joined, body) {
			t.Fatalf("names of %x written again are %x", body, joined)
		}

		ours, theirs, err := newPair()
		if err != nil {
			t.Fatal(err)
		}
		defer ours.conn.Close()
		fd, err := unix.Dup(int(theirs.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		_ = theirs.Close()
		child, err := newWire(fd)
		if err != nil {
			t.Fatal(err)
		}
		defer child.conn.Close()
		var fds []int
		if withSocket {
			null, err := os.Open(os.DevNull)
			if err != nil {
				t.Fatal(err)
			}
			defer null.Close()
			fds = append(fds, int(null.Fd()))
		}
		if err := child.send(handOverTime, op, body, fds...); err != nil {
			t.Fatal(err)
		}
		m, err := ours.receive()
		if err != nil || m.op != op || !bytes.Equal(m.body, body) || len(m.fds) != len(fds) {
			t.Fatalf("sent %c %x, received %c %x with %d descriptors, %v", op, body, m.op, m.body, len(m.fds), err)
		}
		h := &held{fds: map[string]int{}, capacity: 1}
		stored := h.store(m)
		if want := withSocket && len(body) > 0 && len(body) <= MaxName; stored != want {
			t.Fatalf("stored: %v, want %v", stored, want)
		}
		h.clear()
	})
}
