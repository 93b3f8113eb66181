package engine

import (
	"bytes"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/record"
)

// network is a worker with clients at a distance, in virtual time: every datagram takes half a round trip.
type network struct {
	*wire
	roundTrip time.Duration
	due       map[time.Duration][]func()
	clients   map[netip.AddrPort]*newcomer
}

// newcomer is a client that makes a session.
type newcomer struct {
	c       *handshake.Client
	scratch record.Scratch
}

func newNetwork(t testing.TB, roundTrip time.Duration, change func(*Config)) *network {
	t.Helper()
	return &network{
		wire: newWire(t, change), roundTrip: roundTrip,
		due: map[time.Duration][]func(){}, clients: map[netip.AddrPort]*newcomer{},
	}
}

func (n *network) later(f func()) {
	at := n.w.now + n.roundTrip/2
	n.due[at] = append(n.due[at], f)
}

// deliver hands a datagram to the worker, and what the worker sends to clients travels to them.
func (n *network) deliver(d []byte, from netip.AddrPort) {
	for _, reply := range n.in(d, from) {
		if client := n.clients[reply.to]; client != nil {
			n.later(func() { client.c.Receive(&client.scratch, reply.b, n.w.now, n.sender(reply.to)) })
		}
	}
}

func (n *network) sender(from netip.AddrPort) func([]byte) {
	return func(d []byte) {
		d = bytes.Clone(d)
		n.later(func() { n.deliver(d, from) })
	}
}

// start lets a client begin its handshake.
func (n *network) start(from netip.AddrPort, identity string) {
	n.startWith(from, handshake.ClientConfig{Identity: []byte(identity), Key: []byte("key"), OfferCID: true})
}

func (n *network) startWith(from netip.AddrPort, cfg handshake.ClientConfig) {
	c, err := handshake.NewClient(cfg)
	if err != nil {
		n.t.Fatal(err)
	}
	n.clients[from] = &newcomer{c: c}
	c.Start(n.w.now, n.sender(from))
}

// run lets time pass by the millisecond.
func (n *network) run(d time.Duration, each func(millisecond int)) {
	for ms := range int(d / time.Millisecond) {
		n.w.now += time.Millisecond
		arrived := n.due[n.w.now]
		delete(n.due, n.w.now)
		for _, f := range arrived {
			f()
		}
		for from, client := range n.clients {
			if done, _ := client.c.Done(); !done && client.c.Deadline() <= n.w.now {
				client.c.Timeout(&client.scratch, n.w.now, n.sender(from))
			}
		}
		each(ms)
	}
}

// connected is how many clients have a session.
func (n *network) connected() (sessions int) {
	for _, client := range n.clients {
		if done, err := client.c.Done(); done && err == nil {
			sessions++
		}
	}
	return sessions
}

// A flood of handshakes that stop half-way must not keep clients out: ten times the 300 per second that did (4 addresses, none
// of 10 clients got through).
func TestHalfOpenFlood(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	nat := netip.MustParseAddr("192.0.2.1")
	one := func(i int) netip.AddrPort { return netip.AddrPortFrom(nat, uint16(1024+i%60000)) }
	four := func(i int) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{203, 0, byte(i % 4), 1}), uint16(1024+i/4%60000))
	}
	many := func(i int) netip.AddrPort { return addr(1<<20 + i) }
	for _, test := range []struct {
		name   string
		flood  func(i int) netip.AddrPort
		client func(i int) netip.AddrPort
	}{
		{"from four addresses, clients of many", four, func(i int) netip.AddrPort { return addr(i + 1) }},
		{"from four addresses, clients behind one NAT", four, one},
		{"from the NAT of the clients", func(i int) netip.AddrPort { return one(i + 20000) }, one},
		{"from many addresses, clients behind one NAT", many, one},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := newNetwork(t, 500*time.Millisecond, nil)
			sent, clients := 0, 0
			n.run(8*time.Second, func(ms int) {
				for range 3 { // 3000 per second
					n.halfOpenClient(test.flood(sent))
					sent++
				}
				// The table is full after three seconds.
				if ms >= 3000 && ms < 6000 && ms%6 == 0 {
					n.start(test.client(clients), "dev")
					clients++
				}
			})
			s := n.stats()
			if got := n.connected(); got*100 < clients*95 {
				t.Errorf("%d of %d clients connected", got, clients)
			}
			if s.HalfOpenEvicted < 10000 || s.HalfOpen > 8192 || n.w.halfOpens.slots.Size() > 8192 {
				t.Errorf("the flood was not what it should be: %+v", s)
			}
		})
	}
}

// An entry costs what the comment of halfOpens says, also where the client goes on with a long identity and no key.
func TestHalfOpenMemory(t *testing.T) {
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for _, test := range []struct {
		datagrams int // of the client
		limit     uint64
	}{{2, 1500}, {3, 4000}} {
		x := newWire(t, nil)
		const entries = 4000
		identity := bytes.Repeat([]byte("x"), 1024)
		before := heap()
		for i := range entries {
			c, _ := handshake.NewClient(handshake.ClientConfig{Identity: identity, Key: []byte("key"), OfferCID: true})
			var last []byte
			send := func(b []byte) { last = bytes.Clone(b) }
			c.Start(x.w.now, send)
			for n := range test.datagrams {
				for _, reply := range x.in(last, addr(i+1)) {
					if n < test.datagrams-1 {
						c.Receive(new(record.Scratch), reply.b, x.w.now, send)
					}
				}
			}
		}
		if s := x.stats(); s.HalfOpen != entries || test.datagrams == 3 && s.BadMACs != entries {
			t.Fatalf("%+v", s)
		}
		x.public = nil
		each := (heap() - before) / entries
		t.Logf("%d datagrams: %d bytes for each", test.datagrams, each)
		if each > test.limit {
			t.Errorf("%d datagrams: %d bytes for each, want at most %d", test.datagrams, each, test.limit)
		}
		runtime.KeepAlive(x)
	}
}

// What clients send ahead of their keys is bounded for all of them together.
func TestHeldRecordsAreBounded(t *testing.T) {
	x := newWire(t, func(c *Config) { c.CIDs = nil })
	early := record.AppendPlain(nil, record.ApplicationData, 0, make([]byte, 2000))
	early[4] = 1 // epoch
	held := func() (n int) {
		for _, h := range x.w.halfOpens.byAddress {
			n += h.pending.Held()
		}
		return n
	}
	for i := range 3000 {
		x.halfOpenClient(addr(i + 1))
		for range 5 {
			x.in(early, addr(i+1))
		}
	}
	if n := held(); n > handshake.MaxHeld || n < handshake.MaxHeld-10000 {
		t.Errorf("%d bytes held, at most %d", n, handshake.MaxHeld)
	}
	for x.w.next() != Never {
		x.w.now = x.w.next()
		x.w.tick()
		x.w.out.flush()
	}
	x.halfOpenClient(addr(1))
	if x.in(early, addr(1)); held() == 0 {
		t.Error("what is dropped is not given back")
	}
}

// BenchmarkHalfOpen: what a handshake of a flood costs the server, the table being full.
func BenchmarkHalfOpen(b *testing.B) {
	x := newWire(b, nil)
	type hello struct {
		d    []byte
		from source
	}
	var batch [64]hello
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%64 == 0 {
			b.StopTimer()
			for j := range batch {
				from := addr(i + j)
				c, _ := handshake.NewClient(handshake.ClientConfig{Identity: []byte("dev"), Key: []byte("key"), OfferCID: true})
				send := func(d []byte) { batch[j] = hello{bytes.Clone(d), source{addr: from}} }
				c.Start(x.w.now, send)
				for _, reply := range x.in(batch[j].d, from) {
					c.Receive(new(record.Scratch), reply.b, x.w.now, send)
				}
			}
			b.StartTimer()
		}
		x.w.datagram(batch[i%64].d, batch[i%64].from, false)
		if i%64 == 63 {
			x.w.out.flush()
		}
	}
}
