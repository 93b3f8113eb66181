package engine

import (
	"context"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/dtls/arena"
	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/record"
	"github.com/weir-lb/weir/internal/steering/cid"
)

func keptConfig(slots int) arena.Config { return arena.Config{Slots: slots, Application: 8} }

func newArena(t testing.TB) *arena.Arena {
	t.Helper()
	a, err := arena.New(keptConfig(4), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	return a
}

// supervisor holds what outlives an engine, as package handover does.
type supervisor struct {
	t       *testing.T
	memory  *os.File
	sockets []int
	stop    func() // ends the engine that runs
}

func duplicate(t *testing.T, fd int) int {
	t.Helper()
	d, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// start runs an engine with what is held.
func (k *supervisor) start(workers int, change func(*Config)) *Engine {
	k.t.Helper()
	cfg := Config{
		Listen: netip.MustParseAddrPort("127.0.0.1:0"), Workers: workers, CIDs: ByteOwnerCIDs(6, 1), MaxSessions: 64,
		NewHandler: func(*Worker) Handler { return new(mirror) }, PSK: func([]byte) ([]byte, bool) { return []byte("key"), true },
	}
	var loss arena.Loss
	var err error
	if k.memory == nil {
		cfg.Arena, err = arena.New(keptConfig(64), nil)
	} else {
		cfg.Arena, loss, err = arena.Open(keptConfig(64), os.NewFile(uintptr(duplicate(k.t, int(k.memory.Fd()))), "arena"), nil)
	}
	if err != nil || loss.Damaged > 0 {
		k.t.Fatal(err, loss)
	}
	if k.memory == nil {
		k.memory = os.NewFile(uintptr(duplicate(k.t, int(cfg.Arena.File().Fd()))), "held")
		k.t.Cleanup(func() { _ = k.memory.Close(); closeAll(k.sockets) })
	}
	opened := cfg.Arena
	for _, fd := range k.sockets {
		cfg.Sockets = append(cfg.Sockets, duplicate(k.t, fd))
	}
	if change != nil {
		change(&cfg)
	}
	e, err := Open(cfg)
	if err != nil {
		k.t.Fatal(err)
	}
	closeAll(k.sockets)
	k.sockets = nil
	public, _ := e.Descriptors()
	for _, fd := range public {
		k.sockets = append(k.sockets, duplicate(k.t, fd))
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	k.stop = func() {
		cancel()
		if err := <-done; err != nil {
			k.t.Error(err)
		}
		opened.Close()
	}
	return e
}

// client is a session over a socket of its own.
type client struct {
	*device
	conn *net.UDPConn
}

func (k *supervisor) connect(e *Engine, offerCID bool) *client {
	k.t.Helper()
	conn, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(e.Addr()))
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { _ = conn.Close() })
	c, err := handshake.NewClient(handshake.ClientConfig{Identity: []byte("dev"), Key: []byte("key"), OfferCID: offerCID})
	if err != nil {
		k.t.Fatal(err)
	}
	d := &device{scratch: new(record.Scratch), cid: offerCID}
	send := func(b []byte) { _, _ = conn.Write(b) }
	c.Start(0, send)
	b := make([]byte, 2048)
	for {
		if done, err := c.Done(); err != nil {
			k.t.Fatal(err)
		} else if done {
			d.a = c.Result().Association
			return &client{d, conn}
		}
		_ = conn.SetReadDeadline(time.Now().Add(4 * time.Second))
		n, err := conn.Read(b)
		if err != nil {
			c.Timeout(d.scratch, 0, send)
			continue
		}
		c.Receive(d.scratch, b[:n], 0, send)
	}
}

// ask sends a request and waits for its answer. It repeats the request where the kernel may have dropped it.
func (c *client) ask(t *testing.T, text string) {
	t.Helper()
	b := make([]byte, 2048)
	for range 5 {
		if _, err := c.conn.Write(c.seal([]byte(text))); err != nil {
			t.Fatal(err)
		}
		for {
			_ = c.conn.SetReadDeadline(time.Now().Add(4 * time.Second))
			n, err := c.conn.Read(b)
			if err != nil {
				break
			}
			if c.open(b[:n]) == text {
				return
			}
		}
	}
	t.Fatalf("no answer to %s", text)
}

// Sessions with and without connection ids go on in engines with other numbers of workers, without a handshake, and requests that come
// while no engine runs wait in the sockets.
func TestSessionsGoOnInTheNextEngine(t *testing.T) {
	k := &supervisor{t: t}
	e := k.start(2, nil)
	var clients []*client
	for i := range 16 {
		c := k.connect(e, i%2 == 0)
		c.ask(t, "first")
		clients = append(clients, c)
	}
	for _, workers := range []int{2, 3, 1, 4} {
		e.Leave()
		k.stop()
		if workers != 1 { // what waits in a socket that is too many is lost
			for _, c := range clients {
				_, _ = c.conn.Write(c.seal([]byte("early")))
			}
		}
		e = k.start(workers, nil)
		b := make([]byte, 2048)
		for i, c := range clients {
			if workers != 1 {
				_ = c.conn.SetReadDeadline(time.Now().Add(10 * time.Second))
				if n, err := c.conn.Read(b); err != nil || c.open(b[:n]) != "early" {
					t.Fatalf("%d workers: the request of client %d that waited has no answer: %v", workers, i, err)
				}
			}
			c.ask(t, "next")
		}
		s := e.Stats()
		if s.Handshakes != 0 || s.Restored != 16 || s.RestoreLost != 0 || s.Sessions != 16 || s.Kept != 16 {
			t.Errorf("%d workers: %d handshakes, %d restored, %d lost, %d sessions, %d kept", workers, s.Handshakes, s.Restored, s.RestoreLost, s.Sessions, s.Kept)
		}
	}
	k.stop()
	e = k.start(1, nil)
	defer k.stop()
	if s := e.Stats(); s.Sessions != 0 {
		t.Errorf("%d sessions are left after an engine that has closed them", s.Sessions)
	}
}

// What a session has learnt of its client's address, and of forged records, goes on too.
func TestAddressAndForgeriesGoOn(t *testing.T) {
	k := &supervisor{t: t}
	e := k.start(1, nil)
	c := k.connect(e, true)
	c.ask(t, "first")
	moved, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(e.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer moved.Close()
	c.conn = moved
	bad := c.seal([]byte("spoiled"))
	bad[len(bad)-1]++
	_, _ = moved.Write(bad)
	c.ask(t, "moved")
	e.Leave()
	k.stop()
	e = k.start(1, nil)
	defer k.stop()
	restored := make(chan Peer, 1)
	e.workers[0].Post(func() { restored <- *e.workers[0].peers.oldest })
	p := <-restored
	if p.addr != moved.LocalAddr().(*net.UDPAddr).AddrPort() || !p.unproven || p.budget != 0 || p.association.Forged() != 1 || p.Identity() != "dev" {
		t.Errorf("restored at %v, unproven %t, budget %d, forged %d, identity %q", p.addr, p.unproven, p.budget, p.association.Forged(), p.Identity())
	}
	c.ask(t, "again")
}

// Sessions that do not fit the next engine are dropped and counted, and their slots are free again.
func TestSessionsThatDoNotFitAreLost(t *testing.T) {
	k := &supervisor{t: t}
	e := k.start(1, nil)
	for range 4 {
		k.connect(e, true)
	}
	e.Leave()
	k.stop()
	e = k.start(1, func(c *Config) { c.MaxSessions = 3 })
	if s := e.Stats(); s.Restored != 3 || s.RestoreLost != 1 || e.cfg.Arena.Used() != 3 {
		t.Errorf("restored %d, lost %d", s.Restored, s.RestoreLost)
	}
	e.Leave()
	k.stop()
	e = k.start(1, func(c *Config) { c.CIDs = &CIDs{Layout: cid.ByteOwner(8), Owner: 1} })
	defer k.stop()
	if s := e.Stats(); s.Restored != 0 || s.RestoreLost != 3 || e.cfg.Arena.Used() != 0 {
		t.Errorf("restored %d, lost %d", s.Restored, s.RestoreLost)
	}
}

// A session for which the arena has no slot works, ends with its process, and is counted.
func TestSessionsBeyondTheArenaAreCounted(t *testing.T) {
	a, err := arena.New(keptConfig(1), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	x := newWire(t, func(c *Config) { c.Arena = a })
	one, two := x.mustConnect(addr(1), "dev1", true), x.mustConnect(addr(2), "dev2", true)
	for _, d := range []*device{one, two} {
		if out := x.in(d.seal([]byte("hi")), d.addr); len(out) != 1 || d.open(out[0].b) != "hi" {
			t.Error("no answer")
		}
	}
	if s := x.stats(); s.Kept != 1 || s.NotKept != 1 {
		t.Errorf("%d kept, %d not", s.Kept, s.NotKept)
	}
}

// The arena is ahead of what is sent and not behind what was received, at the moment at which the Handler runs.
func TestTheArenaIsWrittenFirst(t *testing.T) {
	a, err := arena.New(keptConfig(4), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	file := os.NewFile(uintptr(duplicate(t, int(a.File().Fd()))), "held")
	defer file.Close()
	look := func() arena.State { // as the next process would
		b, _, err := arena.Open(keptConfig(4), os.NewFile(uintptr(duplicate(t, int(file.Fd()))), "held"), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		return b.Restored()[0].State
	}
	h := &looking{}
	x := newWire(t, func(c *Config) { c.Arena, c.NewHandler = a, func(*Worker) Handler { return h } })
	d := x.mustConnect(addr(1), "dev1", true)
	h.look = func(p *Peer) {
		if s := look(); s.Window.Newest() != p.association.Newest() || s.Window.Bits() == 0 {
			t.Errorf("the Handler runs before the window is stored: %d of %d", s.Window.Newest(), p.association.Newest())
		}
	}
	for range 3 {
		x.in(d.seal([]byte("hi")), d.addr)
		if s, p := look(), x.w.peers.oldest; s.Sent != p.association.Sent() {
			t.Errorf("%d sequence numbers are used, %d stored", p.association.Sent(), s.Sent)
		}
	}
	if h.served != 3 {
		t.Errorf("served %d", h.served)
	}
}

type looking struct {
	mirror
	look   func(*Peer)
	served int
}

func (l *looking) Serve(p *Peer, in, out []byte, now time.Duration) []byte {
	l.served++
	l.look(p)
	return l.mirror.Serve(p, in, out, now)
}

// What comes while a new process still reads the sessions waits in its sockets: they are open before.
func TestSocketsAreOpenBeforeTheSessions(t *testing.T) {
	k := &supervisor{t: t}
	e := k.start(1, nil)
	c := k.connect(e, true)
	c.ask(t, "first")
	e.Leave()
	k.stop()
	closeAll(k.sockets) // as where every process has ended
	k.sockets = nil
	k.start(1, func(cfg *Config) {
		sessions := cfg.Arena
		cfg.Listen, cfg.Arena = e.Addr(), nil
		cfg.OpenArena = func() *arena.Arena {
			if _, err := c.conn.Write(c.seal([]byte("early"))); err != nil {
				t.Error(err)
			}
			return sessions
		}
	})
	defer func() { k.stop() }()
	b := make([]byte, 2048)
	_ = c.conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	n, err := c.conn.Read(b)
	if err != nil || c.open(b[:n]) != "early" {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// A worker that ends handles what another one, which still reads, has for it.
func TestEndingWorkersHandleWhatOthersHaveRead(t *testing.T) {
	k := &supervisor{t: t}
	e := k.start(2, nil)
	k.stop()
	e.reading.Store(2) // they have ended; again, one after the other
	e.allRead = make(chan struct{})
	first, second := e.loops[0], e.loops[1]
	first.noMore, second.noMore = sync.Once{}, sync.Once{}
	first.worker.inbox = newInbox(func() {})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		first.lastArrivals()
	}()
	for e.reading.Load() == 2 {
		runtime.Gosched()
	}
	before := first.worker.stats.Malformed
	second.worker.pass([]byte("no record"), source{}, 0)
	second.readNoMore()
	<-ended
	if second.worker.stats.QueueFull > 0 || first.worker.stats.Malformed != before+1 {
		t.Errorf("%d dropped, %d handled", second.worker.stats.QueueFull, first.worker.stats.Malformed-before)
	}
}
