package udpio_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
	"github.com/weir-lb/weir/internal/udpio"
)

func bindSocket(t testing.TB, at netip.AddrPort) *udpio.Socket {
	t.Helper()
	s, err := udpio.Bind(at, udpio.SocketOptions{ReadBuffer: 4 << 20, WriteBuffer: 4 << 20, Coalesce: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return &s
}

func target(t testing.TB, to netip.AddrPort) *udpio.Target {
	t.Helper()
	made, ok := udpio.NewTarget(to, netip.Addr{}, to.Addr().Is6())
	if !ok {
		t.Fatal("no target", to)
	}
	return &made
}

// receiveAll reads n datagrams and cuts coalesced ones up.
func receiveAll(t testing.TB, c *udpio.Conn, n int) (got []string) {
	t.Helper()
	messages := udpio.NewMessages(16, 1<<16)
	for len(got) < n {
		k, err := c.ReadBatch(messages, timeout)
		if err != nil || k == 0 {
			t.Fatalf("read %d of %d datagrams, then %d, %v", len(got), n, k, err)
		}
		for _, m := range messages[:k] {
			size := m.Segment
			if size == 0 {
				size = max(1, m.N)
			}
			for at := 0; at == 0 || at < m.N; at += size {
				got = append(got, string(m.Buf[at:min(at+size, m.N)]))
			}
		}
	}
	return got
}

// What waits in queues arrives in order, whole, at its target, with its head, whatever the lengths are; runs of one
// length leave together.
func TestWriter(t *testing.T) {
	for _, at := range []netip.AddrPort{loopback4, loopback6} {
		for _, coalesce := range []bool{false, true} {
			t.Run(fmt.Sprint(at, " coalesce ", coalesce), func(t *testing.T) {
				from := bindSocket(t, at)
				var to [2]*udpio.Conn
				var targets [2]*udpio.Target
				for i := range to {
					to[i] = listen(t, udpio.Config{Addr: at, ReadBuffer: 8 << 20, Coalesce: coalesce}).Conn(0)
					targets[i] = target(t, to[i].LocalAddr())
				}
				w := udpio.NewWriter(1000)
				var q udpio.Queue
				var want [2][]string
				add := func(i, size int, head bool) {
					body := strings.Repeat(string(rune('a'+len(want[i])%26)), size)
					if head {
						w.AddHead(&q, targets[i], [4]byte{1, 2, 3, byte(size)}, []byte(body))
						body = string([]byte{1, 2, 3, byte(size)}) + body
					} else {
						w.Add(&q, targets[i], []byte(body))
					}
					want[i] = append(want[i], body)
				}
				for _, size := range []int{0, 0, 1, 100, 100, 100, 40, 100, 200, 200, 0, 65000, 30000, 30000, 30000} {
					add(0, size, false)
					add(0, size, true)
				}
				for range 200 { // more than one send can carry
					add(1, 100, true)
				}
				for i := range 20 { // in turns
					add(i%2, 50, i%3 == 0)
				}
				if n := w.Flush(from, &q); n != 0 || q.Len() != 0 {
					t.Fatalf("%d refused, %d wait", n, q.Len())
				}
				w.Reset()
				for i := range to {
					got := receiveAll(t, to[i], len(want[i]))
					for j := range want[i] {
						if got[j] != want[i][j] {
							t.Fatalf("datagram %d of target %d is %.30q (%d bytes), want %.30q (%d bytes)", j, i, got[j], len(got[j]), want[i][j], len(want[i][j]))
						}
					}
				}
				if s := w.Stats(); s.Sent != uint64(len(want[0])+len(want[1])) || s.Segmented < 5 || s.Calls > 10 {
					t.Errorf("stats %+v", s)
				}
			})
		}
	}
}

// A datagram that the kernel refuses takes no other one with it.
func TestWriterPassesOverRefused(t *testing.T) {
	from := bindSocket(t, loopback4)
	to := listen(t, udpio.Config{Addr: loopback4}).Conn(0)
	good := target(t, to.LocalAddr())
	bad := target(t, netip.MustParseAddrPort("255.255.255.255:9")) // EACCES without SO_BROADCAST
	w := udpio.NewWriter(100)
	var q udpio.Queue
	w.Add(&q, bad, []byte("no"))
	w.Add(&q, good, []byte("1"))
	w.Add(&q, good, make([]byte, udpio.MaxDatagram+1))
	w.Add(&q, bad, []byte("no"))
	w.Add(&q, bad, []byte("no"))
	w.Add(&q, good, []byte("2"))
	if n := w.Flush(from, &q); n != 4 {
		t.Errorf("%d refused, want 4", n)
	}
	if got := receiveAll(t, to, 2); got[0] != "1" || got[1] != "2" {
		t.Errorf("got %q", got)
	}
	if _, ok := udpio.NewTarget(netip.MustParseAddrPort("[::1]:9"), netip.Addr{}, false); ok {
		t.Error("an IPv4 socket has a target of IPv6")
	}
}

// Segments that are longer than the link takes leave one by one, as fragments; shorter ones go on together.
func TestRootWriterBeyondTheMTU(t *testing.T) {
	lab := netlabtest.Up(t, netlab.Topology{
		Name:       "udpiomtu",
		Namespaces: []netlab.Namespace{{Name: "a"}, {Name: "b"}},
		Links:      []netlab.Link{netlab.Cable("a eth0 10.9.0.1/24", "b eth0 10.9.0.2/24")},
	})
	var to *udpio.Conn
	err := lab.Namespace("b").Do(func() error {
		group, err := udpio.Listen(udpio.Config{Addr: netip.MustParseAddrPort("10.9.0.2:0"), ReadBuffer: 8 << 20})
		if err == nil {
			to = group.Conn(0)
			t.Cleanup(func() { _ = group.Close() })
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var from *udpio.Socket
	if err := lab.Namespace("a").Do(func() error { from = bindSocket(t, netip.MustParseAddrPort("10.9.0.1:0")); return nil }); err != nil {
		t.Fatal(err)
	}
	dest := target(t, to.LocalAddr())
	w := udpio.NewWriter(1000)
	for round := range 3 {
		var q udpio.Queue
		total := 0
		for _, size := range []int{2000, 2000, 2000, 1472, 1472, 1473, 1473, 900, 900, 900, 4000, 4000} {
			w.Add(&q, dest, make([]byte, size))
			total++
		}
		if n := w.Flush(from, &q); n != 0 {
			t.Fatalf("round %d: %d refused", round, n)
		}
		w.Reset()
		receiveAll(t, to, total)
	}
	if s := w.Stats(); s.Segmented == 0 {
		t.Errorf("nothing left in segments: %+v", s)
	}
}

func TestReader(t *testing.T) {
	s := bindSocket(t, loopback4)
	local, err := s.LocalAddr()
	if err != nil {
		t.Fatal(err)
	}
	r := udpio.NewReader(8)
	messages := udpio.NewMessages(8, 100)
	if n, err := r.Read(s, messages); n != 0 || !errors.Is(err, unix.EAGAIN) {
		t.Fatalf("nothing there: %d, %v", n, err)
	}
	from := listen(t, udpio.Config{Addr: loopback4}).Conn(0)
	out := []udpio.Message{message(local, []byte("one")), message(local, make([]byte, 101))}
	if n := from.WriteAll(out); n != 2 {
		t.Fatal(n)
	}
	n := 0
	for end := time.Now().Add(timeout); n < 2 && time.Now().Before(end); { // loopback may deliver after the send has returned
		var k int
		if k, err = r.Read(s, messages[n:]); err != nil && !errors.Is(err, unix.EAGAIN) {
			break
		}
		n += k
	}
	if n != 2 || string(messages[0].Buf[:3]) != "one" || messages[0].Addr != from.LocalAddr() || messages[0].Truncated || !messages[1].Truncated {
		t.Errorf("%d, %v: %+v", n, err, messages[:2])
	}
}

// Sockets that another part of the program opened go on as a group and as a Socket.
func TestAdopt(t *testing.T) {
	config := udpio.Config{Addr: loopback4, Sockets: 2, Steer: &udpio.Steering{ByPeer: true}}
	group := listen(t, config)
	var fds []int
	for i := range group.Len() {
		fd, err := unix.Dup(group.Conn(i).FD())
		if err != nil {
			t.Fatal(err)
		}
		fds = append(fds, fd)
	}
	local := group.LocalAddr()
	if err := group.Close(); err != nil {
		t.Fatal(err)
	}
	adopted, err := udpio.AdoptGroup(udpio.Config{}, fds)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = adopted.Close() })
	if adopted.LocalAddr() != local || adopted.Len() != 2 || adopted.Conn(0).ReadBuffer() == 0 {
		t.Errorf("adopted %v, %d sockets", adopted.LocalAddr(), adopted.Len())
	}
	s := bindSocket(t, loopback4)
	from, err := s.LocalAddr()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SendTo([]byte("hello"), local); err != nil {
		t.Fatal(err)
	}
	in := udpio.NewMessages(1, 10)
	conn := adopted.Conn(udpio.PeerSocket(from, 2)) // the program is the group's and outlived its maker
	if n, err := conn.ReadBatch(in, timeout); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if n := conn.WriteAll(in); n != 1 {
		t.Fatal(n)
	}
	fd, err := unix.Dup(s.FD())
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	again, err := udpio.Adopt(fd)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if at, err := again.LocalAddr(); err != nil || at != from || again.IPv6() {
		t.Errorf("adopted %v, %v", at, err)
	}
	buf := make([]byte, 10)
	for end := time.Now().Add(timeout); ; time.Sleep(time.Millisecond) {
		n, err := again.Receive(buf)
		if err == nil && string(buf[:n]) == "hello" {
			break
		}
		if time.Now().After(end) {
			t.Fatal(n, err)
		}
	}
	if _, err := udpio.AdoptGroup(udpio.Config{}, []int{-1}); err == nil {
		t.Error("adopted a closed descriptor")
	}
	if _, err := udpio.Bind(local, udpio.SocketOptions{}); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("a taken port: %v", err)
	}
}

func TestWriterAllocatesNothing(t *testing.T) {
	from, to := bindSocket(t, loopback4), listen(t, udpio.Config{Addr: loopback4}).Conn(0)
	dest, w := target(t, to.LocalAddr()), udpio.NewWriter(64)
	var q udpio.Queue
	body := make([]byte, 100)
	in := udpio.NewMessages(16, 2000)
	n := testing.AllocsPerRun(100, func() {
		for range 16 {
			w.AddHead(&q, dest, [4]byte{}, body)
		}
		w.Flush(from, &q)
		w.Reset()
		for got := 0; got < 16; {
			k, _ := to.ReadBatch(in, timeout)
			got += k
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}
