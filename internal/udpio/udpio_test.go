package udpio_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/udpio"
)

var (
	loopback4 = netip.MustParseAddrPort("127.0.0.1:0")
	loopback6 = netip.MustParseAddrPort("[::1]:0")
)

// timeout bounds waits that end at once unless something is broken.
const timeout = 10 * time.Second

func listen(t testing.TB, config udpio.Config) *udpio.Group {
	t.Helper()
	group, err := udpio.Listen(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = group.Close() })
	return group
}

// readAll reads until n datagrams came.
func readAll(t testing.TB, c *udpio.Conn, n, size int) []udpio.Message {
	t.Helper()
	messages := udpio.NewMessages(n, size)
	for got := 0; got < n; {
		k, err := c.ReadBatch(messages[got:], timeout)
		if err != nil || k == 0 {
			t.Fatalf("read %d of %d datagrams, then %d, %v", got, n, k, err)
		}
		got += k
	}
	return messages
}

func message(to netip.AddrPort, payload []byte) udpio.Message {
	return udpio.Message{Buf: payload, N: len(payload), Addr: to}
}

func TestRoundTrip(t *testing.T) {
	for _, addr := range []netip.AddrPort{loopback4, loopback6} {
		for _, noSegment := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v/%v", addr, noSegment), func(t *testing.T) {
				a := listen(t, udpio.Config{Addr: addr, NoSegment: noSegment, ReadBuffer: 4 << 20}).Conn(0)
				b := listen(t, udpio.Config{Addr: addr, ReadBuffer: 4 << 20}).Conn(0)
				var out []udpio.Message
				for _, size := range []int{0, 1, 100, 100, 100, 100, 60, 1400, 1400, 1400, 9, 20000, 65507, 0, 5} {
					payload := bytes.Repeat([]byte{byte(len(out) + 1)}, size)
					out = append(out, message(b.LocalAddr(), payload))
				}
				if n, err := a.WriteBatch(out); n != len(out) || err != nil {
					t.Fatalf("wrote %d of %d: %v", n, len(out), err)
				}
				for i, m := range readAll(t, b, len(out), 65536) {
					if !bytes.Equal(m.Buf[:m.N], out[i].Buf) || m.Truncated {
						t.Fatalf("datagram %d of %d bytes arrived as %d bytes", i, out[i].N, m.N)
					}
					if m.Addr != a.LocalAddr() {
						t.Fatalf("from %v, want %v", m.Addr, a.LocalAddr())
					}
				}
				if segmented := a.Stats().Segmented; (segmented > 0) == noSegment {
					t.Errorf("%d segmented sends with NoSegment=%v", segmented, noSegment)
				}
				if s := a.Stats(); s.Sent != uint64(len(out)) || s.SendErrors != 0 {
					t.Errorf("sender counts %+v", s)
				}
				if s := b.Stats(); s.Received != uint64(len(out)) {
					t.Errorf("receiver counts %+v", s)
				}
			})
		}
	}
}

func TestCoalesce(t *testing.T) {
	a := listen(t, udpio.Config{Addr: loopback4}).Conn(0)
	b := listen(t, udpio.Config{Addr: loopback4, Coalesce: true}).Conn(0)
	var out []udpio.Message
	for i := range 10 {
		out = append(out, message(b.LocalAddr(), bytes.Repeat([]byte{byte(i)}, 200)))
	}
	if _, err := a.WriteBatch(out); err != nil {
		t.Fatal(err)
	}
	messages := udpio.NewMessages(10, 65535)
	var got []byte
	for len(got) < 2000 {
		n, err := b.ReadBatch(messages, timeout)
		if n == 0 || err != nil {
			t.Fatalf("read %d: %v", n, err)
		}
		for _, m := range messages[:n] {
			if m.N > 200 && m.Segment != 200 {
				t.Fatalf("%d bytes with segment %d, want 200", m.N, m.Segment)
			}
			got = append(got, m.Buf[:m.N]...)
		}
	}
	for i := range 10 {
		if got[i*200] != byte(i) {
			t.Fatalf("datagram %d lost its place", i)
		}
	}
	// A coalesced message goes back as the datagrams it was made of.
	back := messages[0]
	if _, err := b.WriteBatch([]udpio.Message{back}); err != nil {
		t.Fatal(err)
	}
	count := 1
	if back.Segment > 0 {
		count = back.N / back.Segment
	}
	for _, m := range readAll(t, a, count, 1000) {
		if m.N != 200 {
			t.Fatalf("came back with %d bytes", m.N)
		}
	}
}

func TestTruncated(t *testing.T) {
	a, b := listen(t, udpio.Config{Addr: loopback4}).Conn(0), listen(t, udpio.Config{Addr: loopback4}).Conn(0)
	a.WriteAll([]udpio.Message{message(b.LocalAddr(), make([]byte, 11)), message(b.LocalAddr(), make([]byte, 10))})
	got := readAll(t, b, 2, 10)
	if !got[0].Truncated || got[0].N != 10 || got[1].Truncated || b.Stats().Truncated != 1 {
		t.Fatalf("got %+v, %+v", got, b.Stats())
	}
}

// A reply from a wildcard socket leaves from the address that was asked, for both families on one socket.
func TestWildcardAnswersFromTheAddressRequested(t *testing.T) {
	server := listen(t, udpio.Config{}).Conn(0)
	port := server.LocalAddr().Port()
	for _, target := range []string{"127.0.0.1", "127.0.0.77", "::1"} {
		to := netip.AddrPortFrom(netip.MustParseAddr(target), port)
		if to.Addr().Is6() && !server.LocalAddr().Addr().Is6() {
			continue
		}
		client, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to)) // connected: receives from that address only
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		if _, err := client.Write([]byte("who")); err != nil {
			t.Fatal(err)
		}
		got := readAll(t, server, 1, 100)
		if got[0].Local != to.Addr() {
			t.Errorf("to %v: local address %v", to, got[0].Local)
		}
		if n := server.WriteAll(got); n != 1 {
			t.Fatalf("no reply to %v: %+v", to, server.Stats())
		}
		_ = client.SetReadDeadline(time.Now().Add(timeout))
		if n, err := client.Read(make([]byte, 10)); n != 3 || err != nil {
			t.Errorf("asked %v: %d, %v", to, n, err)
		}
	}
}

func TestDrops(t *testing.T) {
	a := listen(t, udpio.Config{Addr: loopback4}).Conn(0)
	b := listen(t, udpio.Config{Addr: loopback4, Drops: true, ReadBuffer: 4096}).Conn(0)
	messages := udpio.NewMessages(1, 1000)
	sent, read := 0, 0
	end := time.Now().Add(3 * timeout)
	take := func() bool {
		n, err := b.ReadBatch(messages, 0)
		if err != nil {
			t.Fatal(err)
		}
		read += n
		return n == 1
	}
	for range 200 {
		a.WriteAll([]udpio.Message{message(b.LocalAddr(), make([]byte, 1000))})
		sent++
	}
	// What was sent is read or was dropped, at last: on a busy machine loopback delivers after the send has returned. Nothing
	// is read before the buffer is full.
	for b.Overflowed() == 0 && time.Now().Before(end) {
	}
	for read+int(b.Overflowed()) < sent {
		if !take() && time.Now().After(end) {
			t.Fatalf("of %d datagrams %d were read, and the kernel dropped %d", sent, read, b.Overflowed())
		}
	}
	if overflowed := b.Overflowed(); overflowed == 0 || read+int(overflowed) != sent {
		t.Fatalf("a buffer of 4096 bytes took %d of %d datagrams of 1000 bytes, and %d were dropped", read, sent, overflowed)
	}
	for b.Stats().Dropped != b.Overflowed() { // each later datagram carries the count of drops
		if b.Stats().Dropped > b.Overflowed() || time.Now().After(end) {
			t.Fatalf("counted %d drops of %d", b.Stats().Dropped, b.Overflowed())
		}
		a.WriteAll([]udpio.Message{message(b.LocalAddr(), nil)})
		for again := time.Now().Add(timeout / 4); !take() && time.Now().Before(again); {
		}
	}
}

func TestWakeAndClose(t *testing.T) {
	c := listen(t, udpio.Config{Addr: loopback4}).Conn(0)
	messages := udpio.NewMessages(1, 10)
	c.Wake() // before the wait
	c.Wake()
	if _, err := c.ReadBatch(messages, udpio.Forever); !errors.Is(err, udpio.ErrWoken) {
		t.Fatalf("woken before the wait: %v", err)
	}
	if n, err := c.ReadBatch(messages, 0); n != 0 || err != nil {
		t.Fatalf("two wakes count as one, got %d, %v", n, err)
	}
	if n, err := c.ReadBatch(messages, time.Millisecond); n != 0 || err != nil {
		t.Fatalf("after the time: %d, %v", n, err)
	}
	result := make(chan error)
	read := func() { _, err := c.ReadBatch(messages, udpio.Forever); result <- err }
	go read()
	c.Wake()
	if err := <-result; !errors.Is(err, udpio.ErrWoken) {
		t.Fatalf("woken: %v", err)
	}
	go read()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-result; !errors.Is(err, net.ErrClosed) {
		t.Fatalf("closed: %v", err)
	}
	if err := c.Close(); !errors.Is(err, net.ErrClosed) {
		t.Fatalf("closed twice: %v", err)
	}
	if _, err := c.WriteBatch([]udpio.Message{message(loopback4, nil)}); !errors.Is(err, net.ErrClosed) {
		t.Fatalf("write after close: %v", err)
	}
}

// A refused datagram does not hold up the ones behind it.
func TestWriteAllPassesOverTheRefused(t *testing.T) {
	a, b := listen(t, udpio.Config{Addr: loopback4}).Conn(0), listen(t, udpio.Config{Addr: loopback4}).Conn(0)
	out := []udpio.Message{
		message(b.LocalAddr(), []byte("one")),
		message(b.LocalAddr(), make([]byte, 65508)), // one byte more than fits
		message(netip.MustParseAddrPort("[2001:db8::1]:9"), []byte("wrong family")),
		message(b.LocalAddr(), []byte("two")),
	}
	if n := a.WriteAll(out); n != 2 {
		t.Fatalf("sent %d, want 2", n)
	}
	got := readAll(t, b, 2, 10)
	if string(got[0].Buf[:got[0].N]) != "one" || string(got[1].Buf[:got[1].N]) != "two" {
		t.Fatalf("got %q, %q", got[0].Buf[:got[0].N], got[1].Buf[:got[1].N])
	}
	if s := a.Stats(); s.SendErrors != 2 || s.Sent != 2 {
		t.Fatalf("%+v", s)
	}
}

// Somebody else's reuse-port group is not joined by accident.
// What makes the kernel refuse a run may be its address: port 0 of a forged datagram, a source address that has gone. Others
// are still sent in segments.
func TestABadAddressDoesNotEndSegmentation(t *testing.T) {
	a := listen(t, udpio.Config{Addr: netip.AddrPortFrom(netip.IPv4Unspecified(), 0)}).Conn(0)
	b := listen(t, udpio.Config{Addr: loopback4}).Conn(0)
	gone := message(b.LocalAddr(), []byte("no"))
	gone.Local = netip.MustParseAddr("203.0.113.9")
	for _, bad := range []udpio.Message{message(netip.MustParseAddrPort("127.0.0.1:0"), []byte("no")), gone} {
		before := a.Stats()
		if n := a.WriteAll([]udpio.Message{bad, bad, bad}); n != 0 {
			t.Fatalf("%d datagrams went to %v from %v", n, bad.Addr, bad.Local)
		}
		var good []udpio.Message
		for range 10 {
			good = append(good, message(b.LocalAddr(), []byte("hello")))
		}
		if n := a.WriteAll(good); n != len(good) {
			t.Fatalf("wrote %d of %d", n, len(good))
		}
		readAll(t, b, len(good), 64)
		after := a.Stats()
		if after.SendErrors-before.SendErrors != 3 || after.Segmented == before.Segmented {
			t.Errorf("after %v from %v: %+v, before %+v", bad.Addr, bad.Local, after, before)
		}
	}
}

func TestAddressInUse(t *testing.T) {
	g := listen(t, udpio.Config{Addr: loopback4, Sockets: 2})
	if other, err := udpio.Listen(udpio.Config{Addr: g.LocalAddr(), Sockets: 2}); err == nil {
		_ = other.Close()
		t.Fatal("joined the group of another")
	}
}

func TestConfigErrors(t *testing.T) {
	for name, config := range map[string]udpio.Config{
		"sockets":   {Addr: loopback4, Sockets: -1},
		"batch":     {Addr: loopback4, Batch: udpio.MaxBatch + 1},
		"connected": {Addr: loopback4, Sockets: 2, Peer: loopback4},
		"address":   {Addr: netip.MustParseAddrPort("192.0.2.1:1")},
		"no rules":  {Addr: loopback4, Steer: &udpio.Steering{}},
		"mask":      {Addr: loopback4, Steer: &udpio.Steering{Rules: []udpio.SteerRule{{Offset: 1}}}},
	} {
		if g, err := udpio.Listen(config); err == nil {
			_ = g.Close()
			t.Errorf("%s: no error", name)
		}
	}
}

func TestConnected(t *testing.T) {
	a, stranger := listen(t, udpio.Config{Addr: loopback4}).Conn(0), listen(t, udpio.Config{Addr: loopback4}).Conn(0)
	b := listen(t, udpio.Config{Addr: loopback4, Peer: a.LocalAddr()}).Conn(0)
	stranger.WriteAll([]udpio.Message{message(b.LocalAddr(), []byte("stranger"))})
	a.WriteAll([]udpio.Message{message(b.LocalAddr(), []byte("peer"))})
	got := readAll(t, b, 1, 20)
	if string(got[0].Buf[:got[0].N]) != "peer" {
		t.Fatalf("received %q", got[0].Buf[:got[0].N])
	}
	if n := b.WriteAll([]udpio.Message{{Buf: []byte("x"), N: 1}, {Buf: []byte("y"), N: 1}}); n != 2 {
		t.Fatalf("sent %d without an address", n)
	}
	readAll(t, a, 2, 10)
}

func TestNoAllocations(t *testing.T) {
	for _, config := range []udpio.Config{{Addr: loopback4}, {Addr: loopback6}, {Drops: true}} {
		a, b := listen(t, config).Conn(0), listen(t, config).Conn(0)
		to := b.LocalAddr()
		if to.Addr().IsUnspecified() {
			to = netip.AddrPortFrom(loopback4.Addr(), to.Port())
		}
		out := make([]udpio.Message, 16)
		for i := range out {
			out[i] = message(to, make([]byte, 100+i%3))
		}
		in := udpio.NewMessages(len(out), 200)
		allocs := testing.AllocsPerRun(50, func() {
			a.WriteAll(out)
			for got := 0; got < len(out); {
				n, err := b.ReadBatch(in, timeout)
				if err != nil || n == 0 {
					t.Fatalf("%d, %v", n, err)
				}
				b.WriteAll(in[:n])
				got += n
			}
			for got := 0; got < len(out); {
				n, err := a.ReadBatch(in, timeout)
				if err != nil || n == 0 {
					t.Fatalf("%d, %v", n, err)
				}
				got += n
			}
		})
		if allocs != 0 {
			t.Errorf("%v: %v allocations for %d datagrams there and back", config.Addr, allocs, len(out))
		}
	}
}

func BenchmarkEcho(b *testing.B) {
	server, client := listen(b, udpio.Config{Addr: loopback4}).Conn(0), listen(b, udpio.Config{Addr: loopback4}).Conn(0)
	out := make([]udpio.Message, 32)
	for i := range out {
		out[i] = message(server.LocalAddr(), make([]byte, 64))
	}
	in := udpio.NewMessages(len(out), 2048)
	b.ReportAllocs()
	for done := 0; done < b.N; done += len(out) {
		client.WriteAll(out)
		for got := 0; got < len(out); {
			n, _ := server.ReadBatch(in, timeout)
			got += n
			server.WriteAll(in[:n])
		}
		for got := 0; got < len(out); {
			n, _ := client.ReadBatch(in, timeout)
			got += n
		}
	}
}
