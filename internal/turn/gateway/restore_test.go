package gateway_test

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/pion/stun/v4"
	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
	"github.com/weir-lb/weir/internal/turn/gateway"
)

// shelf is a Store that holds its duplicates in this process, as a supervisor does in its own.
type shelf struct {
	t       testing.TB
	mu      sync.Mutex
	sockets map[string]int
	records map[uint64][]byte
	offered map[string]bool // what Take gives: each once
}

func newShelf(t testing.TB) *shelf {
	s := &shelf{t: t, sockets: map[string]int{}, records: map[uint64][]byte{}, offered: map[string]bool{}}
	t.Cleanup(func() {
		for _, fd := range s.sockets {
			_ = unix.Close(fd)
		}
	})
	return s
}

func (s *shelf) Hold(name string, fd int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if old, ok := s.sockets[name]; ok {
		_ = unix.Close(old)
	}
	s.sockets[name] = kept
	return err
}

func (s *shelf) Drop(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if fd, ok := s.sockets[name]; ok {
		_ = unix.Close(fd)
		delete(s.sockets, name)
		delete(s.offered, name)
	}
}

func (s *shelf) Names() (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.offered {
		names = append(names, name)
	}
	return names
}

func (s *shelf) Take(name string) (int, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.offered[name] {
		return -1, false
	}
	delete(s.offered, name)
	fd, err := unix.FcntlInt(uintptr(s.sockets[name]), unix.F_DUPFD_CLOEXEC, 0)
	return fd, err == nil
}

func (s *shelf) Put(id uint64, record []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records[id] = slices.Clone(record)
}

func (s *shelf) Delete(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.records, id)
}

func (s *shelf) Records(yield func(uint64, []byte) bool) {
	s.mu.Lock()
	records := map[uint64][]byte{}
	for id, r := range s.records {
		records[id] = r
	}
	s.mu.Unlock()
	for id, r := range records {
		if !yield(id, r) {
			return
		}
	}
}

func (s *shelf) sizes() (sockets, records int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	records = len(s.records)
	for id := range s.records {
		if id == 0 || id >= 1<<53 { // the gateway's own
			records--
		}
	}
	return len(s.sockets), records
}

// next offers everything to the next process.
func (s *shelf) next() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offered = map[string]bool{}
	for name := range s.sockets {
		s.offered[name] = true
	}
}

// run runs a gateway until stop.
func run(t testing.TB, c gateway.Config, o gateway.Options) (g *gateway.Gateway, stop func()) {
	t.Helper()
	o.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	g, err := gateway.Open(c, o)
	if err != nil {
		t.Fatal(err)
	}
	return g, netlabtest.Run(t, g.Run)
}

// Every allocation of a gateway that ends goes on in the next one: same relay address, same channels, at the worker
// that the kernel gives its client's datagrams to; what came meanwhile waits in the kernel.
func TestRestart(t *testing.T) {
	for _, workers := range []int{1, 4} {
		t.Run(fmt.Sprint(workers, " workers"), func(t *testing.T) { testRestart(t, workers) })
	}
}

func testRestart(t *testing.T, workers int) {
	port := netlabtest.UDPPort(t)
	cfg := config("127.0.0.1", port)
	store := newShelf(t)
	_, stop := run(t, cfg, gateway.Options{Workers: workers, Store: store})
	const flows = 40
	clients, peers := make([]*turnClient, flows), make([]*net.UDPConn, flows)
	for i := range clients {
		peers[i] = listenUDP(t, peerAddress)
		clients[i] = dial(t, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port))
		clients[i].allocate()
		clients[i].bind(0x4001, addrOf(peers[i]))
	}
	gone := dial(t, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port))
	gone.allocate()
	gone.must(stun.MethodRefresh, lifetime(0))
	stop()
	if sockets, records := store.sizes(); sockets != workers+flows || records != flows {
		t.Fatalf("%d sockets and %d records are kept, want %d and %d", sockets, records, workers+flows, flows)
	}
	for i, c := range clients { // while no gateway is there
		c.send(0x4001, fmt.Sprint("up ", i))
		sendTo(t, peers[i], c.relays[0], fmt.Sprint("down ", i))
	}
	store.next()
	g, _ := run(t, cfg, gateway.Options{Workers: workers + 1, Store: store}) // overruled by the sockets
	for i, c := range clients {
		if from := wantFrom(t, peers[i], fmt.Sprint("up ", i)); from != c.relays[0] {
			t.Fatalf("client %d came from %v, want %v", i, from, c.relays[0])
		}
		c.wantChannelData(0x4001, fmt.Sprint("down ", i))
		c.must(stun.MethodRefresh, lifetime(600)) // 438 first: nonces do not outlive the process
	}
	if s := g.Stats(); s.Totals.Allocations != flows || s.Workers != workers || s.Reasons["no_allocation"] != 0 {
		t.Errorf("stats %+v", s)
	}
	for _, c := range clients {
		c.must(stun.MethodRefresh, lifetime(0))
	}
	netlabtest.Eventually(t, "what ended is kept no more", func() bool {
		sockets, records := store.sizes()
		return sockets == workers && records == 0
	})
}

// Export and Import carry allocations to a gateway that has no socket of the first.
func TestExportImport(t *testing.T) {
	port := netlabtest.UDPPort(t)
	// The relay ports are free for a moment: they are of an address on which no other program takes one.
	const address = "127.0.0.77"
	cfg := config(address, port)
	first, stop := run(t, cfg, gateway.Options{Workers: 2})
	clients, peer := make([]*turnClient, 20), listenUDP(t, peerAddress)
	for i := range clients {
		clients[i] = dial(t, netip.AddrPortFrom(netip.MustParseAddr(address), port))
		clients[i].allocate()
		clients[i].bind(0x4001, addrOf(peer))
		clients[i].send(0x4001, "before")
		wantFrom(t, peer, "before")
	}
	records, err := first.Export(t.Context())
	if err != nil || len(records) != len(clients) {
		t.Fatalf("%d records, %v", len(records), err)
	}
	stop()
	second, _ := run(t, cfg, gateway.Options{Workers: 3})
	if n, err := second.Import(t.Context(), records); n != len(clients) || err != nil {
		t.Fatalf("imported %d, %v", n, err)
	}
	for _, c := range clients {
		c.send(0x4001, "after")
		if from := wantFrom(t, peer, "after"); from != c.relays[0] {
			t.Fatalf("came from %v, want %v", from, c.relays[0])
		}
		sendTo(t, peer, c.relays[0], "back")
		c.wantChannelData(0x4001, "back")
	}
	for u := range second.Users {
		if u.Up.Packets != 2 {
			t.Errorf("counters do not go on: %+v", u.Up)
		}
	}
	// Twice is refused: its port is taken.
	if n, err := second.Import(t.Context(), records[:1]); n != 0 || err == nil {
		t.Errorf("imported %d twice, %v", n, err)
	}
}
