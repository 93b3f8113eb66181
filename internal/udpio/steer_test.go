package udpio_test

import (
	"net/netip"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/udpio"
)

// record is the head of a DTLS 1.2 record with a CID.
func record(cid ...byte) []byte {
	return append(append([]byte{25, 0xfe, 0xfd, 0, 1, 0, 0, 0, 0, 0, 9}, cid...), 0, 0)
}

func steeredTo(t *testing.T, g *udpio.Group, payload []byte) int {
	t.Helper()
	// A fresh source port each time: the kernel's hash would not keep to one socket.
	group, err := udpio.Listen(udpio.Config{Addr: loopback4})
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	client := group.Conn(0)
	messages := udpio.NewMessages(1, 100)
	for end := time.Now().Add(timeout); time.Now().Before(end); {
		if client.WriteAll([]udpio.Message{message(g.LocalAddr(), payload)}) != 1 {
			t.Fatal("not sent")
		}
		// On a busy machine loopback delivers after the send has returned, and may drop.
		for again := time.Now().Add(timeout / 4); time.Now().Before(again); {
			for i := range g.Len() {
				n, err := g.Conn(i).ReadBatch(messages, 0)
				if err != nil {
					t.Fatal(err)
				}
				if n == 1 && messages[0].Addr == client.LocalAddr() { // else: one that was sent twice before
					return i
				}
			}
		}
	}
	t.Fatal("lost")
	return -1
}

func TestSteering(t *testing.T) {
	g := listen(t, udpio.Config{Addr: loopback4, Sockets: 4, Steer: &udpio.Steering{Rules: []udpio.SteerRule{
		udpio.SteerDTLS12(1, 4, 0x0f),
		{FirstMask: 0xf0, FirstValue: 0x30, Offset: 1, Mask: 0x03}, // DTLS 1.3
		{FirstMask: 0xc0, FirstValue: 0x40, Offset: 3, Mask: 0xff}, // QUIC
	}}})
	for i := range 40 {
		want := i % 4
		for name, payload := range map[string][]byte{
			"dtls12": record(byte(i), byte(want<<4|i&0x0f), 7, 7),
			"dtls13": {0x30 | byte(i&7), byte(i<<2 | want), 1, 2, 3},
			"quic":   {0x40 | byte(i&0x3f), 9, 9, byte(want), 8},
		} {
			if got := steeredTo(t, g, payload); got != want {
				t.Fatalf("%s: value %d went to socket %d", name, want, got)
			}
		}
	}
	// What no rule fits, what is short, and values without a socket spread by the kernel's hash.
	for name, payload := range map[string][]byte{
		"handshake": {22, 0xfe, 0xfd}, "empty": {}, "one byte": {25}, "short": record()[:11], "no socket": record(0, 0xf0),
	} {
		seen := map[int]bool{}
		for range 64 {
			seen[steeredTo(t, g, payload)] = true
		}
		if len(seen) < 2 {
			t.Errorf("%s always went to the same socket", name)
		}
	}
}

// A busy wait reports as Wait does, and comes back by itself where there is nothing.
func TestBusyWait(t *testing.T) {
	server := listen(t, udpio.Config{Addr: loopback4}).Conn(0)
	poller, err := udpio.NewPoller(4)
	if err != nil {
		t.Fatal(err)
	}
	defer poller.Close()
	if err := poller.AddConn(server, 7); err != nil {
		t.Fatal(err)
	}
	tokens := make([]uint64, 4)
	if n, woken, err := poller.WaitBusy(tokens, time.Millisecond); n != 0 || woken || err != nil {
		t.Fatalf("nothing there: %d, %v, %v", n, woken, err)
	}
	socket, err := udpio.Dial(server.LocalAddr(), true)
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	if err := socket.Send([]byte("x")); err != nil {
		t.Fatal(err)
	}
	for n, end := 0, time.Now().Add(timeout); n == 0; { // 0 too where a signal ends it
		if n, _, err = poller.WaitBusy(tokens, time.Millisecond); err != nil || n == 1 && tokens[0] != 7 || time.Now().After(end) {
			t.Fatalf("a datagram: %d, %v, %v", n, tokens[:n], err)
		}
	}
	readAll(t, server, 1, 10)
	poller.Wake()
	for woken, end := false, time.Now().Add(timeout); !woken; {
		if _, woken, err = poller.WaitBusy(tokens, time.Millisecond); err != nil || time.Now().After(end) {
			t.Fatalf("woken: %v, %v", woken, err)
		}
	}
}

// A garbage collection stops all goroutines twice. If it had to wait for the end of a busy wait, few pauses would be
// shorter than half of one.
func TestCollectionsDoNotWaitForABusyWait(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	var stop atomic.Bool
	var workers sync.WaitGroup
	for range 2 {
		poller, err := udpio.NewPoller(4)
		if err != nil {
			t.Fatal(err)
		}
		workers.Go(func() {
			defer poller.Close()
			for tokens := make([]uint64, 4); !stop.Load(); {
				if _, _, err := poller.WaitBusy(tokens, 20*time.Millisecond); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	const most, enough, long = 20, 6, 10 * time.Millisecond
	var pauses []time.Duration
	short := func() (n int) {
		for _, pause := range pauses {
			if pause <= long {
				n++
			}
		}
		return n
	}
	for len(pauses) < most && short() < enough { // no more than it takes to see: on a busy machine each takes seconds
		runtime.GC()
		var stats debug.GCStats
		debug.ReadGCStats(&stats)
		pauses = append(pauses, stats.Pause[0])
	}
	stop.Store(true)
	workers.Wait()
	t.Logf("pauses of collections: %v", pauses)
	if n := short(); n < enough {
		t.Errorf("%d of %d pauses are not longer than %v: collections wait for busy waits", n, len(pauses), long)
	}
}

func TestSocketsInAPoller(t *testing.T) {
	server := listen(t, udpio.Config{Addr: loopback4, ReadBuffer: 4 << 20}).Conn(0)
	poller, err := udpio.NewPoller(16)
	if err != nil {
		t.Fatal(err)
	}
	defer poller.Close()
	const count = 100
	sockets := make([]udpio.Socket, count)
	for i := range sockets {
		sockets[i], err = udpio.Dial(server.LocalAddr(), i%2 == 0)
		if err != nil {
			t.Fatal(err)
		}
		defer sockets[i].Close()
		token := uint64(i) | 1<<40
		if err := poller.Add(&sockets[i], token); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			err = sockets[i].Send([]byte{byte(i)})
		} else {
			err = sockets[i].SendTo([]byte{byte(i)}, server.LocalAddr())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	server.WriteAll(readAll(t, server, count, 10))
	tokens := make([]uint64, 16)
	seen := map[uint64]bool{}
	for end := time.Now().Add(timeout); len(seen) < count; {
		n, _, err := poller.Wait(tokens, timeout) // 0 too where a signal ends it
		if n == 0 && time.Now().After(end) || err != nil {
			t.Fatalf("%d of %d sockets ready, then %d, %v", len(seen), count, n, err)
		}
		for _, token := range tokens[:n] {
			i := token &^ (1 << 40)
			buffer := make([]byte, 10)
			length, from, err := sockets[i].ReceiveFrom(buffer)
			if err != nil || length != 1 || buffer[0] != byte(i) || from != server.LocalAddr() {
				t.Fatalf("socket %d: %v from %v, %v", i, buffer[:length], from, err)
			}
			seen[token] = true
			if _, err := sockets[i].Receive(buffer); err != unix.EAGAIN {
				t.Fatalf("an empty socket says %v", err)
			}
		}
	}
	poller.Wake()
	for woken := false; !woken; { // a signal may end a wait
		var n int
		if n, woken, err = poller.Wait(tokens, udpio.Forever); n != 0 || err != nil {
			t.Fatalf("woken: %d, %v, %v", n, woken, err)
		}
	}
}

func TestDialFromChoosesTheSource(t *testing.T) {
	peer := listen(t, udpio.Config{Addr: loopback4}).Conn(0).LocalAddr()
	local := netip.MustParseAddr("127.0.0.77")
	for _, connected := range []bool{true, false} {
		socket, err := udpio.DialFrom(local, peer, connected)
		if err != nil {
			t.Fatal(err)
		}
		if at, err := socket.LocalAddr(); err != nil || at.Addr() != local || at.Port() == 0 || socket.Connected() != connected {
			t.Errorf("connected %v: local address %v, %v", connected, at, err)
		}
		socket.Close()
	}
	if _, err := udpio.DialFrom(netip.IPv6Loopback(), peer, true); err == nil {
		t.Error("IPv6 source to an IPv4 peer, and no error")
	}
}

func TestSocketRetarget(t *testing.T) {
	a, b := listen(t, udpio.Config{Addr: loopback4}).Conn(0), listen(t, udpio.Config{Addr: loopback4}).Conn(0)
	socket, err := udpio.Dial(a.LocalAddr(), true)
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	first, err := socket.LocalAddr()
	if err != nil {
		t.Fatal(err)
	}
	send := func(to *udpio.Conn, connected bool) {
		t.Helper()
		if err := socket.Retarget(to.LocalAddr(), connected); err != nil {
			t.Fatal(err)
		}
		if connected {
			err = socket.Send([]byte("x"))
		} else {
			err = socket.SendTo([]byte("x"), to.LocalAddr())
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := readAll(t, to, 1, 10); got[0].Addr.Port() != first.Port() {
			t.Fatalf("port %d became %d", first.Port(), got[0].Addr.Port())
		}
	}
	for range 3 {
		send(b, true)
		send(a, true)
		send(b, false)
		send(a, false)
		send(b, true)
	}
	// No program listens there: the network says so.
	gone := netip.AddrPortFrom(loopback4.Addr(), 9)
	if err := socket.Retarget(gone, true); err != nil {
		t.Fatal(err)
	}
	if err := socket.Send([]byte("x")); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(timeout); ; { // on a busy machine the refusal comes after the send has returned
		_, err := socket.Receive(make([]byte, 1))
		if err == unix.ECONNREFUSED {
			break
		}
		if err != unix.EAGAIN || time.Now().After(end) {
			t.Fatalf("a closed port says %v", err)
		}
		if err := socket.Send([]byte("x")); err != nil && err != unix.ECONNREFUSED { // which a send may report as well
			t.Fatal(err)
		} else if err != nil {
			break
		}
	}
}
