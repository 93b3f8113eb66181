package cluster

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/coap/cluster/membership"
	"github.com/weir-lb/weir/internal/dtls/engine"
)

// worker records what a Cluster asks an engine's worker to do.
type worker struct {
	buffer   []byte
	sent     []message
	injected []message
	raw      []message
}

type message struct {
	bytes  []byte
	to     netip.AddrPort // of an injected datagram: the client
	router netip.AddrPort
}

func (w *worker) LinkBuffer() []byte {
	if w.buffer == nil {
		w.buffer = make([]byte, 2048)
	}
	return w.buffer
}

func (w *worker) LinkSendInOrder(n int, to netip.AddrPort) { w.LinkSend(n, to) }

func (w *worker) LinkSend(n int, to netip.AddrPort) {
	w.sent = append(w.sent, message{bytes: bytes.Clone(w.buffer[:n]), to: to})
}

func (w *worker) Inject(b []byte, client, router netip.AddrPort) {
	w.injected = append(w.injected, message{bytes.Clone(b), client, router})
}

func (w *worker) SendRaw(b []byte, to netip.AddrPort) {
	w.raw = append(w.raw, message{bytes: bytes.Clone(b), to: to})
}

var (
	addr1    = netip.MustParseAddrPort("127.0.0.1:15884")
	addr2    = netip.MustParseAddrPort("127.0.0.1:25884")
	client   = netip.MustParseAddrPort("192.0.2.9:40000")
	stranger = netip.MustParseAddrPort("127.0.0.1:9")
	record   = bytes.Repeat([]byte{0x19}, 40)
)

func open(t testing.TB, self uint32, change func(*Config)) *Cluster {
	t.Helper()
	cfg := Config{Nodes: []Node{
		{ID: 1, DTLS: "127.0.0.1:15784", Management: addr1.String()},
		{ID: 2, DTLS: "127.0.0.1:25784", Management: addr2.String()},
	}}
	if change != nil {
		change(&cfg)
	}
	c, err := New(cfg, self, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A record passes through the whole cluster: node 1 receives it, node 2 owns it, and its reply leaves the public port of node 1.
func TestForwardAndBackward(t *testing.T) {
	one, two := open(t, 1, nil), open(t, 2, nil)
	var w1, w2 worker
	if !one.foreign(&w1, &one.counters[0], 2, record, client) {
		t.Fatal("node 2 is not known")
	}
	if len(w1.sent) != 1 || w1.sent[0].to != addr2 {
		t.Fatalf("sent %+v", w1.sent)
	}
	two.frame(&w2, &two.counters[0], w1.sent[0].bytes, addr1, 0)
	if len(w2.injected) != 1 || !bytes.Equal(w2.injected[0].bytes, record) || w2.injected[0].to != client || w2.injected[0].router != addr1 {
		t.Fatalf("injected %+v", w2.injected)
	}
	reply := bytes.Repeat([]byte{0x17}, 30)
	buf := append(make([]byte, engine.LinkHeadRoom), reply...)
	start, ok := two.wrap(&two.counters[0], buf, engine.LinkHeadRoom, reply, client, addr1)
	if !ok {
		t.Fatal("not returned through the router")
	}
	one.frame(&w1, &one.counters[0], buf[start:], addr2, 0)
	if len(w1.raw) != 1 || !bytes.Equal(w1.raw[0].bytes, reply) || w1.raw[0].to != client {
		t.Fatalf("sent to the client %+v", w1.raw)
	}
	s1, s2 := one.Stats(), two.Stats()
	if s1.Forwarded != 1 || s1.SentBackwarded != 1 || s2.ProcessedForwarded != 1 || s2.Backwarded != 1 {
		t.Fatalf("counted %+v and %+v", s1, s2)
	}
}

func TestForwardUnknownNode(t *testing.T) {
	c := open(t, 1, nil)
	var w worker
	for _, owner := range []uint32{1, 3, 255, 256, 1 << 31} {
		if c.foreign(&w, &c.counters[0], owner, record, client) {
			t.Errorf("owner %d: forwarded", owner)
		}
	}
	if c.foreign(&w, &c.counters[0], 2, record[:25], client) {
		t.Error("25 bytes are no record with a connection id")
	}
	if len(w.sent) != 0 || c.Stats().DroppedForward != 6 {
		t.Errorf("sent %d, counted %+v", len(w.sent), c.Stats())
	}
	if !c.foreign(&w, &c.counters[0], 2, make([]byte, 2048), client) || len(w.sent) != 0 {
		t.Error("a datagram too long for the link was sent")
	}
}

// Only a configured node may make the public port emit bytes, inject datagrams or get an answer.
func TestStrangersRefused(t *testing.T) {
	c := open(t, 1, nil)
	var w worker
	out := append(AppendHeader(nil, TypeOut, client), record...)
	in := append(AppendHeader(nil, TypeIn, client), record...)
	ping := AppendPing(nil, Ping{Type: TypePing, Node: 2})
	for _, b := range [][]byte{out, in, ping, nil} {
		c.frame(&w, &c.counters[0], b, stranger, 0)
	}
	if len(w.raw)+len(w.injected)+len(w.sent) != 0 || c.Stats().Strangers != 4 {
		t.Fatalf("%+v, counted %+v", w, c.Stats())
	}
	lax := open(t, 1, func(cfg *Config) { cfg.AcceptStrangers = true })
	lax.frame(&w, &lax.counters[0], out, stranger, 0)
	if len(w.raw) != 1 {
		t.Fatal("accept_strangers does not")
	}
}

func TestNoBackward(t *testing.T) {
	off := false
	c := open(t, 2, func(cfg *Config) { cfg.Backward = &off })
	if _, ok := c.wrap(&c.counters[0], make([]byte, 128), engine.LinkHeadRoom, record, client, addr1); ok {
		t.Fatal("returned through the router")
	}
}

func TestLiveness(t *testing.T) {
	c := open(t, 1, nil)
	var w worker
	n := &c.counters[0]
	state := func() Liveness { return c.Status()[1].State }
	at := 10 * time.Millisecond
	run := func(until time.Duration) { // ticks as the engine would
		for at <= until {
			at = c.tick(&w, n, at)
		}
	}
	pong := func(now time.Duration) {
		c.frame(&w, n, AppendPing(nil, Ping{Type: TypePong, Node: 2, State: membership.StateUp}), addr2, now)
	}
	run(time.Second)
	if len(w.sent) != 1 || w.sent[0].to != addr2 || state() != Unknown || c.Ready() {
		t.Fatalf("after the first tick: sent %+v, state %s, ready %v", w.sent, state(), c.Ready())
	}
	pong(time.Second)
	run(3 * time.Second)
	if state() != Up || !c.Ready() {
		t.Fatalf("after a pong: %s, ready %v", state(), c.Ready())
	}
	before := len(w.sent)
	run(4500 * time.Millisecond)
	if len(w.sent) != before {
		t.Fatal("pinged a node that answered 3.5 s ago")
	}
	run(7 * time.Second)
	if len(w.sent) == before {
		t.Fatal("a node silent for 5 s is not pinged")
	}
	run(14 * time.Second)
	if state() != Down {
		t.Fatalf("silent for 12 s: %s", state())
	}
	// A forwarded record is a sign of life too.
	c.frame(&w, n, append(AppendHeader(nil, TypeIn, client), record...), addr2, 14*time.Second)
	run(16 * time.Second)
	if state() != Up {
		t.Fatalf("after a frame: %s", state())
	}
}

func TestPingAnswered(t *testing.T) {
	c := open(t, 1, nil)
	var w worker
	n := &c.counters[0]
	c.frame(&w, n, []byte{TypePing, 2, 0, 0, 0}, addr2, time.Second) // 2.5.0's five bytes
	if len(w.sent) != 1 || !bytes.Equal(w.sent[0].bytes, []byte{TypePong, 1, 0, 0, 0, 0}) || w.sent[0].to != addr2 {
		t.Fatalf("answered %+v", w.sent)
	}
	c.frame(&w, n, AppendPing(nil, Ping{Type: TypePing, Node: 1}), addr2, time.Second) // our own id
	c.frame(&w, n, AppendPing(nil, Ping{Type: TypePing, Node: 7}), addr2, time.Second) // another than configured
	if len(w.sent) != 1 || c.Stats().MistakenIDs != 2 {
		t.Fatalf("answered %d, counted %+v", len(w.sent), c.Stats())
	}
}

func TestAllocations(t *testing.T) {
	one, two := open(t, 1, nil), open(t, 2, nil)
	w := quiet{buffer: make([]byte, 2048)}
	in := append(AppendHeader(nil, TypeIn, client), record...)
	out := append(AppendHeader(nil, TypeOut, client), record...)
	buf := make([]byte, 256)
	if got := testing.AllocsPerRun(100, func() {
		one.foreign(&w, &one.counters[0], 2, record, client)
		two.frame(&w, &two.counters[0], in, addr1, time.Second)
		two.wrap(&two.counters[0], buf, engine.LinkHeadRoom, record, client, addr1)
		one.frame(&w, &one.counters[0], out, addr2, time.Second)
	}); got != 0 {
		t.Fatalf("%v allocations for a forwarded record", got)
	}
}

// quiet is a worker that keeps nothing.
type quiet struct{ buffer []byte }

func (w *quiet) LinkBuffer() []byte                            { return w.buffer }
func (w *quiet) LinkSend(int, netip.AddrPort)                  {}
func (w *quiet) LinkSendInOrder(int, netip.AddrPort)           {}
func (w *quiet) Inject([]byte, netip.AddrPort, netip.AddrPort) {}
func (w *quiet) SendRaw([]byte, netip.AddrPort)                {}
