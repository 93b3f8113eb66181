package nfqueue

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pairedQueue is a kernelQueue over a pair of sockets: what a test writes to peer comes as from the kernel, and verdicts can
// be read there.
func pairedQueue(t testing.TB, c Config) (q *kernelQueue, peer int) {
	t.Helper()
	if err := c.setDefaults(); err != nil {
		t.Fatal(err)
	}
	q, err := openQueue(&c, 7)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Dup2(pair[0], q.fd); err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(pair[0])
	t.Cleanup(func() {
		_ = unix.Close(pair[1])
		if err := q.Close(); err != nil {
			t.Error(err)
		}
		if err := q.Close(); err != nil {
			t.Errorf("closed twice: %v", err)
		}
	})
	return q, pair[1]
}

func write(t testing.TB, fd int, b []byte) {
	t.Helper()
	if _, err := unix.Write(fd, b); err != nil {
		t.Fatal(err)
	}
}

// Packets come in batches and their verdicts leave in one write, of 32 or 40 bytes each.
func TestBatches(t *testing.T) {
	q, peer := pairedQueue(t, Config{Batch: 8, Spin: -1})
	into := make([]Packet, 8)
	if n, err := q.Receive(into, 0); n != 0 || err != nil {
		t.Fatalf("%d packets from an empty queue, %v", n, err)
	}
	for id := range uint32(11) {
		write(t, peer, packetMessage(id+1, etherIPv4, bytes.Repeat([]byte{byte(id)}, 100)))
	}
	for _, want := range []int{8, 3, 0} {
		n, err := q.Receive(into, 0)
		if n != want || err != nil {
			t.Fatalf("%d packets, want %d; %v", n, want, err)
		}
		var verdicts []Verdict
		for _, p := range into[:n] {
			if p.Length != 100 || p.Data[0] != byte(p.ID-1) {
				t.Errorf("%+v", p)
			}
			verdicts = append(verdicts, Verdict{ID: p.ID, Mark: p.ID + 100, Marked: p.ID%2 == 0})
		}
		if err := q.Answer(verdicts); err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			break
		}
		b := make([]byte, 1<<16)
		got, err := unix.Read(peer, b)
		if err != nil {
			t.Fatal(err)
		}
		for rest := b[:got]; len(rest) > 0; n-- {
			v := verdicts[len(verdicts)-n]
			if !bytes.HasPrefix(rest, appendVerdict(nil, 7, v)) {
				t.Fatalf("verdict %+v is not in its place", v)
			}
			rest = rest[binary.NativeEndian.Uint32(rest):]
		}
		if n != 0 {
			t.Errorf("%d verdicts are missing in the write", n)
		}
	}
}

// A message too long for the buffer is cut, counted, and its packet can still be answered.
func TestCutMessages(t *testing.T) {
	q, peer := pairedQueue(t, Config{Batch: 2, CopyRange: 64})
	write(t, peer, packetMessage(5, etherIPv4, make([]byte, 2000)))
	into := make([]Packet, 2)
	n, err := q.Receive(into, 0)
	if n != 1 || err != nil || into[0].ID != 5 || len(into[0].Data) > q.size || q.truncated.Load() != 1 {
		t.Errorf("%d packets, %v: ID %d, %d bytes, %d cut", n, err, into[0].ID, len(into[0].Data), q.truncated.Load())
	}
}

// Receive sleeps until something comes, also for a short timeout, and distinguishes a broken socket from an empty one.
func TestReceiveWaits(t *testing.T) {
	for _, limit := range []time.Duration{idleTimeout, 500 * time.Millisecond} {
		q, peer := pairedQueue(t, Config{Spin: DefaultSpin})
		got := make(chan Packet)
		go func() {
			into := make([]Packet, 4)
			for {
				n, err := q.Receive(into, limit)
				if err != nil {
					t.Error(err)
				}
				if n > 0 || err != nil {
					got <- into[0]
					return
				}
			}
		}()
		for q.sleeps.Load() == 0 {
			time.Sleep(time.Millisecond) // it has nothing to do but sleep
		}
		write(t, peer, packetMessage(9, etherIPv6, []byte{0x60}))
		if p := <-got; p.ID != 9 {
			t.Errorf("%+v", p)
		}
		if n, err := q.Receive(make([]Packet, 1), time.Millisecond); n != 0 || err != nil {
			t.Errorf("after a millisecond without packets: %d, %v", n, err)
		}
		if err := unix.Shutdown(peer, unix.SHUT_RD); err != nil {
			t.Fatal(err)
		}
		if err := q.Answer([]Verdict{{ID: 1}}); !errors.Is(err, unix.EPIPE) {
			t.Errorf("an answer that no one can get: %v", err)
		}
	}
}

// Reading and answering allocate nothing.
func TestQueueNoAllocations(t *testing.T) {
	q, peer := pairedQueue(t, Config{Batch: 16})
	into, verdicts := make([]Packet, 16), make([]Verdict, 0, 16)
	message := packetMessage(1, etherIPv4, make([]byte, 128), attr32(attrMark, 1))
	sink := make([]byte, 4096)
	if n := testing.AllocsPerRun(500, func() {
		for range 10 {
			_, _ = unix.Write(peer, message)
		}
		n, err := q.Receive(into, time.Second)
		if n != 10 || err != nil {
			t.Fatal(n, err)
		}
		verdicts = verdicts[:0]
		for i := range into[:n] {
			verdicts = append(verdicts, Verdict{ID: into[i].ID, Mark: 1, Marked: true})
		}
		if err := q.Answer(verdicts); err != nil {
			t.Fatal(err)
		}
		_, _ = unix.Read(peer, sink)
		if n, err = q.Receive(into, time.Millisecond); n != 0 || err != nil { // spins, then sleeps
			t.Fatal(n, err)
		}
	}); n != 0 {
		t.Errorf("%.1f allocations", n)
	}
}

// Spinning grows while packets come soon and ends when they do not.
func TestSpinAdapts(t *testing.T) {
	q, peer := pairedQueue(t, Config{Spin: DefaultSpin})
	into := make([]Packet, 1)
	q.quick = time.Hour // on a loaded machine too, a sleep that ended with a packet was short
	message := packetMessage(1, etherIPv4, []byte{0x45})
	for q.spin == 0 {
		slept := q.sleeps.Load()
		go func() {
			for q.sleeps.Load() == slept {
				time.Sleep(100 * time.Microsecond)
			}
			_, _ = unix.Write(peer, message)
		}()
		if _, err := q.Receive(into, idleTimeout); err != nil {
			t.Fatal(err)
		}
	}
	if q.spin > q.maxSpin {
		t.Errorf("%d tries, the bound is %d", q.spin, q.maxSpin)
	}
	for tries := 0; q.spin > 0; tries++ {
		if tries > 20 {
			t.Fatalf("still %d tries after %d without a packet", q.spin, tries)
		}
		if _, err := q.Receive(into, time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
}
