package packet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

// What is written is read back, by our reader; and each block has the form that other readers want.
func TestCaptureWriter(t *testing.T) {
	var file bytes.Buffer
	w, err := NewCaptureWriter(&file, "weir")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"eth0", "a-long-name.100"} {
		if _, err := w.Interface(name); err != nil {
			t.Fatal(err)
		}
	}
	at := 1_800_000_000*time.Second + 123_456_789
	for i, comment := range []string{"conntrack echo/a", "", strings.Repeat("x", 1<<17)} {
		if err := w.Packet(i%2, at+time.Duration(i), 1500, bytes.Repeat([]byte{byte(i)}, 61+i), comment); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Packet(2, at, 1, nil, ""); err == nil {
		t.Error("an interface that is not there was taken")
	}
	whole := bytes.Clone(file.Bytes())
	for b := whole; len(b) > 0; {
		if len(b) < 12 {
			t.Fatalf("%d bytes are no block", len(b))
		}
		n := binary.LittleEndian.Uint32(b[4:])
		if n%4 != 0 || int(n) > len(b) || binary.LittleEndian.Uint32(b[n-4:]) != n {
			t.Fatalf("a block says it has %d bytes", n)
		}
		b = b[n:]
	}
	r, err := NewCaptureReader(&file)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		got, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		// The reader's time is a float inside the second: a microsecond is what it keeps.
		if d := got.Time - at; d < -time.Microsecond || d > time.Microsecond || got.Link != linkEthernet || len(got.Data) != 61+i || got.Data[0] != byte(i) {
			t.Errorf("packet %d: %v link %d, %d bytes", i, got.Time, got.Link, len(got.Data))
		}
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("after the last: %v", err)
	}
	if !bytes.Contains(whole, []byte("conntrack echo/a")) {
		t.Error("no comment")
	}
}
