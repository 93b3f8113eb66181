package udpio

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"
	"unsafe"
)

const (
	journalBatch = 8
	journalSize  = 64
)

// journalOf is a journal in memory that the test keeps, read by a new Conn.
func journalOf(t *testing.T, memory []byte) (*Conn, *ReadJournal, []Message) {
	t.Helper()
	group, err := Listen(Config{Addr: netip.MustParseAddrPort("127.0.0.1:0"), Sockets: 1, Batch: journalBatch, Drops: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = group.Close() })
	c := group.Conn(0)
	j := OpenReadJournal(memory, journalBatch, journalSize)
	left := j.Left()
	c.ReadBy(j)
	return c, j, left
}

// fillJournal sends datagrams with one byte each and reads them.
func fillJournal(t *testing.T, c *Conn, j *ReadJournal, n int) (from netip.AddrPort) {
	t.Helper()
	sender, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(c.LocalAddr()))
	if err != nil {
		t.Fatal(err)
	}
	defer sender.Close()
	for i := range n {
		if _, err := sender.Write([]byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := c.ReadBatch(j.Messages(), 10*time.Second); got != n || err != nil {
		t.Fatalf("%d of %d, %v", got, n, err)
	}
	return sender.LocalAddr().(*net.UDPAddr).AddrPort()
}

// The next process gets what was read and not handled, with its addresses, once.
func TestReadJournal(t *testing.T) {
	for name, c := range map[string]struct {
		leave func(j *ReadJournal)
		left  []byte
	}{
		"nothing handled": {func(*ReadJournal) {}, []byte{0, 1, 2, 3}},
		"in the third":    {func(j *ReadJournal) { j.Handling(3, 4) }, []byte{3}},
		"in the last":     {func(j *ReadJournal) { j.Handling(4, 4) }, nil},
		"in the system call": {func(j *ReadJournal) {
			for i := 2; i < journalBatch; i++ {
				j.reader.headers[i].Len = 0 // the kernel sets them one after the other
			}
			j.head.state = journalReading | journalBatch
		}, []byte{0, 1}},
		"of another layout": {func(j *ReadJournal) { j.head.layout++ }, nil},
	} {
		memory := make([]byte, ReadJournalBytes(journalBatch, journalSize))
		conn, j, left := journalOf(t, memory)
		if len(left) > 0 {
			t.Fatalf("%s: new memory has %v", name, left)
		}
		from := fillJournal(t, conn, j, 4)
		c.leave(j)
		_, _, left = journalOf(t, memory)
		var got []byte
		for _, m := range left {
			if m.N != 1 || m.Addr != from {
				t.Errorf("%s: %+v, want it from %v", name, m, from)
			}
			got = append(got, m.Buf[0])
		}
		if string(got) != string(c.left) {
			t.Errorf("%s: %v is left, want %v", name, got, c.left)
		}
		if _, _, left = journalOf(t, memory); len(left) > 0 {
			t.Errorf("%s: it is left twice: %v", name, left)
		}
	}
}

// A read that finds nothing leaves nothing, whatever was read before.
func TestReadJournalOfNothing(t *testing.T) {
	memory := make([]byte, ReadJournalBytes(journalBatch, journalSize))
	conn, j, _ := journalOf(t, memory)
	fillJournal(t, conn, j, 5)
	if n, err := conn.ReadBatch(j.Messages(), 0); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	if _, _, left := journalOf(t, memory); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

// FuzzReadJournal: whatever is in the memory, what is left lies in the buffers.
func FuzzReadJournal(f *testing.F) {
	f.Add(uint64(4), []byte{1, 2, 3})
	f.Add(uint64(journalReading|8), make([]byte, 700))
	f.Fuzz(func(t *testing.T, state uint64, tables []byte) {
		memory := make([]byte, ReadJournalBytes(journalBatch, journalSize))
		copy(memory[unsafe.Sizeof(journalHead{}):], tables)
		binary.NativeEndian.PutUint64(memory, journalLayout(journalBatch, journalSize))
		binary.NativeEndian.PutUint64(memory[8:], state)
		for _, m := range OpenReadJournal(memory, journalBatch, journalSize).Left() {
			if m.N < 1 || m.N > journalSize || len(m.Buf) != m.N {
				t.Errorf("%+v", m)
			}
		}
	})
}
