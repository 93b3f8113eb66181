package engine

import (
	"encoding/binary"
	"hash/maphash"
	"math/rand/v2"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/dtls/arena"
	"github.com/weir-lb/weir/internal/udpio"
)

// What is queued and not sent is left for the next process; nothing else is, and once.
func TestInFlight(t *testing.T) {
	const batch = defaultBatch
	memory := make([]byte, InFlightBytes(2))
	local := netip.MustParseAddr("192.0.2.9")
	for worker := range 2 {
		f := openInFlight(memory, worker, batch)
		if left := f.take(batch); len(left.arrived)+len(left.leaving) > 0 {
			t.Fatalf("new memory has %+v", left)
		}
		out := newTransmit(batch)
		out.outlive(f)
		for i := range 3 {
			b := out.acquire()
			copy(b[LinkHeadRoom:], []byte{byte(worker), byte(i)})
			out.public(b, b[LinkHeadRoom:LinkHeadRoom+2], netip.MustParseAddrPort("192.0.2.1:5"), local)
			if i == 0 {
				out.flush()
			}
		}
	}
	for worker := range 2 {
		left := openInFlight(memory, worker, batch).take(batch)
		if len(left.leaving) != 2 || left.leaving[0].Buf[0] != byte(worker) || left.leaving[0].Buf[1] != 1 || left.leaving[1].Addr != netip.MustParseAddrPort("192.0.2.1:5") || left.leaving[1].Local != local {
			t.Errorf("leaving: %+v", left.leaving)
		}
		if left := openInFlight(memory, worker, batch).take(batch); len(left.arrived)+len(left.leaving) > 0 {
			t.Errorf("it is sent twice: %+v", left)
		}
	}
	if openInFlight(memory, 2, batch) != nil {
		t.Error("memory for a third worker")
	}
}

// FuzzInFlight: whatever an earlier process has left, what is taken lies in the buffers.
func FuzzInFlight(f *testing.F) {
	f.Add(uint64(2), uint32(0), uint32(10), uint16(0))
	f.Add(^uint64(0), ^uint32(0), ^uint32(0), uint16(7))
	f.Fuzz(func(t *testing.T, queued uint64, at, n uint32, flags uint16) {
		m := openInFlight(make([]byte, InFlightBytes(1)), 0, defaultBatch)
		*m.header = inFlightHeader{layout: inFlightLayout(defaultBatch), queued: queued}
		for i := range m.leaving {
			m.leaving[i] = inFlightEntry{at: at, n: n, flags: flags}
		}
		if left := m.take(defaultBatch); len(left.arrived) > 0 || len(left.leaving) > defaultBatch+inHand {
			t.Errorf("%d and %d", len(left.arrived), len(left.leaving))
		}
	})
}

// A server is killed in the middle of batches. The next process answers everything but what the killed one had in hand, one datagram of each worker; no
// nonce is used twice, and nothing is handled twice.
func TestKilledServersLoseNoBatch(t *testing.T) {
	const sockets, clients, each, enough, limit = 2, 8, 24, 600, 300
	memory, err := arena.New(keptConfig(64), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	group, err := udpio.Listen(udpio.Config{
		Addr: netip.MustParseAddrPort("127.0.0.1:0"), Sockets: sockets, Drops: true, Steer: ByteOwnerCIDs(6, 1).Steering(sockets), ReadBuffer: 1 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	server := &killed{t: t, files: []*os.File{memory.File()}}
	for i := range sockets {
		file := os.NewFile(uintptr(duplicate(t, group.Conn(i).FD())), "socket")
		defer file.Close()
		server.files = append(server.files, file)
	}
	flight := newFlight(t, sockets)
	server.flight = flight.file
	server.start()
	defer func() { server.kill() }()
	k := &supervisor{t: t}
	e := &Engine{public: group} // for its address
	var all []*burst
	for range clients {
		all = append(all, &burst{client: k.connect(e, true), t: t, seen: map[uint64]uint64{}, answers: map[uint64]int{}})
	}
	random := rand.New(rand.NewPCG(16, 2))
	kills, left, sent, answered := 0, 0, 0, 0
	for ; left < enough && kills < limit; kills++ {
		_ = server.cmd.Process.Signal(syscall.SIGSTOP) // so that whole batches wait for it
		for i := range each * clients {
			all[i%clients].request()
		}
		sent += each * clients
		_ = server.cmd.Process.Signal(syscall.SIGCONT)
		time.Sleep(time.Duration(random.IntN(int(time.Millisecond)))) // in the middle of one of them
		server.kill()
		left += flight.left()
		server.start()
		for _, b := range all {
			b.finish()
		}
	}
	for i, b := range all {
		for number, n := range b.answers {
			if answered++; n > 1 {
				t.Errorf("client %d: request %d has %d answers", i, number, n)
			}
		}
	}
	t.Logf("%d kills, %d datagrams left by them, %d requests, %d without an answer", kills, left, sent, sent-answered)
	if left < enough {
		t.Errorf("only %d datagrams were under way at %d kills: nothing was tested", left, kills)
	}
	if lost := sent - answered; lost > kills*sockets {
		t.Errorf("%d requests are lost by %d kills of %d workers", lost, kills, sockets)
	}
}

// flightMemory is what a process has under way, as another one sees it.
type flightMemory struct {
	t       *testing.T
	file    *os.File
	memory  []byte
	workers int
}

func newFlight(t *testing.T, workers int) *flightMemory {
	t.Helper()
	fd, err := unix.MemfdCreate("flight", unix.MFD_CLOEXEC)
	if err == nil {
		err = unix.Ftruncate(fd, int64(InFlightBytes(workers)))
	}
	if err != nil {
		t.Fatal(err)
	}
	memory, err := mapFlight(fd, workers)
	if err != nil {
		t.Fatal(err)
	}
	return &flightMemory{t, os.NewFile(uintptr(fd), "flight"), memory, workers}
}

func mapFlight(fd, workers int) ([]byte, error) {
	return unix.Mmap(fd, 0, InFlightBytes(workers), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

// left is how many datagrams the process that has ended leaves.
func (f *flightMemory) left() (n int) {
	for i := range f.workers {
		n += int(openInFlight(f.memory, i, defaultBatch).header.queued)
	}
	return n
}

// burst is a client that sends many requests at a time.
type burst struct {
	*client
	t       *testing.T
	seen    map[uint64]uint64 // epoch and sequence of the server's records: their digest
	next    uint64
	answers map[uint64]int
}

// lastOf marks the request behind the others.
const lastOf = 1 << 60

func (b *burst) request() {
	b.next++
	_, _ = b.conn.Write(b.seal(binary.BigEndian.AppendUint64(nil, b.next)))
}

// receive takes an answer; ok: one has come. The same record may come twice: as it was sent, and as the next process repeats it.
func (b *burst) receive(wait time.Duration) (number uint64, ok bool) {
	buffer := make([]byte, 2048)
	_ = b.conn.SetReadDeadline(time.Now().Add(wait))
	for {
		n, err := b.conn.Read(buffer)
		if err != nil || n < 13 {
			return 0, false
		}
		sequence, digest := binary.BigEndian.Uint64(buffer[3:]), maphash.Bytes(burstSeed, buffer[:n])
		if before, again := b.seen[sequence]; again {
			if before != digest {
				b.t.Errorf("epoch and sequence %x were used for two records", sequence)
			}
			continue
		}
		b.seen[sequence] = digest
		text := b.open(buffer[:n])
		if len(text) != 8 {
			continue
		}
		if number = binary.BigEndian.Uint64([]byte(text)); number < lastOf {
			b.answers[number]++
		}
		return number, true
	}
}

var burstSeed = maphash.MakeSeed()

// finish sends requests until one is answered: then everything before it is answered, or never will be.
func (b *burst) finish() {
	for range 60 {
		_, _ = b.conn.Write(b.seal(binary.BigEndian.AppendUint64(nil, lastOf+b.next)))
		for {
			number, ok := b.receive(500 * time.Millisecond)
			if !ok {
				break
			}
			if number == lastOf+b.next {
				return
			}
		}
	}
	b.t.Error("the session is lost")
}
