package engine

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/record"
	"github.com/weir-lb/weir/internal/udpio"
)

// wire is a worker without sockets: datagrams and time go in, datagrams come out.
type wire struct {
	t       testing.TB
	w       *Worker
	public  []sent
	link    []sent
	batches int // of the link
}

type sent struct {
	b  []byte
	to netip.AddrPort
}

type mirror struct {
	closed int
	repeat int // times the request is in the answer
}

func (m *mirror) Serve(_ *Peer, in, out []byte, _ time.Duration) []byte {
	for range max(m.repeat, 1) {
		out = append(out, in...)
	}
	return out
}
func (m *mirror) Tick(time.Duration) time.Duration { return Never }
func (m *mirror) Closed(*Peer, time.Duration)      { m.closed++ }

func newWire(t testing.TB, change func(*Config)) *wire {
	t.Helper()
	x := &wire{t: t}
	cfg := Config{
		Workers: 1, NewHandler: func(*Worker) Handler { return new(mirror) }, CIDs: ByteOwnerCIDs(6, 1),
		PSK: func(id []byte) ([]byte, bool) { return []byte("key"), bytes.HasPrefix(id, []byte("dev")) },
	}
	if change != nil {
		change(&cfg)
	}
	if err := cfg.defaults(); err != nil {
		t.Fatal(err)
	}
	var err error
	if x.w, err = newServingWorker(0, &cfg, make([]byte, handshake.CookieSecretLength)); err != nil {
		t.Fatal(err)
	}
	x.w.workers = []*Worker{x.w}
	x.w.handler = cfg.NewHandler(x.w)
	x.w.now = time.Second
	x.capture()
	return x
}

func (x *wire) capture() {
	x.w.out.publicOut = func(m []udpio.Message) {
		for i := range m {
			x.public = append(x.public, sent{bytes.Clone(m[i].Buf[:m[i].N]), m[i].Addr})
		}
	}
	x.w.out.linkOut = func(m []udpio.Message) {
		x.batches++
		for i := range m {
			x.link = append(x.link, sent{bytes.Clone(m[i].Buf[:m[i].N]), m[i].Addr})
		}
	}
}

// in hands a datagram to the worker and returns what it sends to the public.
func (x *wire) in(d []byte, from netip.AddrPort) []sent {
	x.public = x.public[:0]
	x.w.datagram(bytes.Clone(d), source{addr: from}, false)
	x.w.tick()
	x.w.out.flush()
	return x.public
}

func (x *wire) stats() Stats { x.w.publish(); return x.w.Stats() }

// device is a client of a wire.
type device struct {
	addr    netip.AddrPort
	a       *record.Association
	scratch *record.Scratch
	cid     bool
}

func addr(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 5000)
}

// connect makes a session; lossy decides which datagrams get lost.
func (x *wire) connect(from netip.AddrPort, identity string, offerCID bool) (*device, error) {
	x.t.Helper()
	return x.connectWith(from, handshake.ClientConfig{Identity: []byte(identity), Key: []byte("key"), OfferCID: offerCID})
}

func (x *wire) connectWith(from netip.AddrPort, cfg handshake.ClientConfig) (*device, error) {
	x.t.Helper()
	c, err := handshake.NewClient(cfg)
	if err != nil {
		x.t.Fatal(err)
	}
	d := &device{addr: from, scratch: new(record.Scratch), cid: cfg.OfferCID}
	var queue [][]byte
	send := func(b []byte) { queue = append(queue, bytes.Clone(b)) }
	c.Start(x.w.now, send)
	for len(queue) > 0 {
		next := queue[0]
		queue = queue[1:]
		for _, reply := range x.in(next, from) {
			c.Receive(d.scratch, bytes.Clone(reply.b), x.w.now, send)
		}
	}
	if done, err := c.Done(); !done || err != nil {
		return nil, fmt.Errorf("done %t, %w", done, err)
	}
	d.a = c.Result().Association
	return d, nil
}

func (x *wire) mustConnect(from netip.AddrPort, identity string, offerCID bool) *device {
	x.t.Helper()
	d, err := x.connect(from, identity, offerCID)
	if err != nil {
		x.t.Fatal(err)
	}
	return d
}

func (d *device) seal(payload []byte) []byte {
	buf := make([]byte, record.MaxHeadRoom+len(payload)+record.MaxTailRoom)
	copy(buf[record.MaxHeadRoom:], payload)
	out, err := d.a.Seal(d.scratch, record.ApplicationData, buf, record.MaxHeadRoom, len(payload))
	if err != nil {
		panic(err)
	}
	return out
}

// open reads one record of the server; "" if it is none of this device's.
func (d *device) open(b []byte) string {
	var r record.Record
	if _, err := record.Next(b, -1, &r); err != nil {
		return ""
	}
	typ, payload, _, v := d.a.Open(d.scratch, &r)
	if v != record.Opened || typ != record.ApplicationData {
		return ""
	}
	return string(payload)
}

func TestSpoofedHellosLeaveNothing(t *testing.T) {
	x := newWire(t, nil)
	var hello []byte
	c, _ := handshake.NewClient(handshake.ClientConfig{Identity: []byte("dev"), Key: []byte("key")})
	c.Start(0, func(b []byte) { hello = bytes.Clone(b) })
	for i := range 10000 {
		out := x.in(hello, addr(i))
		if len(out) != 1 || len(out[0].b) > len(hello) {
			t.Fatalf("hello %d: %d answers", i, len(out))
		}
	}
	s := x.stats()
	if s.HelloVerifies != 10000 || s.HalfOpen != 0 || s.Sessions != 0 {
		t.Fatalf("%+v", s)
	}
	if n := testing.AllocsPerRun(100, func() {
		x.w.datagram(hello, source{addr: addr(1)}, false)
		x.public = x.public[:0]
		x.w.out.toPublic, x.w.out.free, x.w.out.used = x.w.out.toPublic[:0], append(x.w.out.free, x.w.out.used...), x.w.out.used[:0]
	}); n > 0 {
		t.Errorf("a spoofed hello costs %v allocations", n)
	}
}

// halfOpenClient goes up to the server's flight and no further.
func (x *wire) halfOpenClient(from netip.AddrPort) {
	x.halfOpenWith(from, handshake.ClientConfig{Identity: []byte("dev"), Key: []byte("key")})
}

func (x *wire) halfOpenWith(from netip.AddrPort, cfg handshake.ClientConfig) {
	c, err := handshake.NewClient(cfg)
	if err != nil {
		x.t.Fatal(err)
	}
	var last []byte
	send := func(b []byte) { last = bytes.Clone(b) }
	c.Start(x.w.now, send)
	for _, reply := range x.in(last, from) { // a HelloVerifyRequest, and what is due for others
		if reply.to == from {
			c.Receive(new(record.Scratch), reply.b, x.w.now, send)
		}
	}
	x.in(last, from)
}

func TestHalfOpenHandshakesAreBounded(t *testing.T) {
	x := newWire(t, func(c *Config) { c.MaxHalfOpen = 300 })
	for i := range 600 {
		x.halfOpenClient(addr((i + 1) << 8))
	}
	if s := x.stats(); s.HalfOpen != 300 || s.HalfOpenEvicted != 300 {
		t.Fatalf("%d half open, %d evicted", s.HalfOpen, s.HalfOpenEvicted)
	}
	// The flight is repeated some times, then the table is empty again.
	x.public = x.public[:0]
	for x.w.next() != Never {
		x.w.now = x.w.next()
		x.w.tick()
		x.w.out.flush()
	}
	if x.w.now > time.Second+x.w.halfOpens.life {
		t.Errorf("the last one went at %v", x.w.now)
	}
	if len(x.public) != 3*300 {
		t.Errorf("%d flights repeated, want 3 for each", len(x.public))
	}
	if s := x.stats(); s.HalfOpen != 0 || len(x.w.halfOpens.byAddress) != 0 {
		t.Errorf("left behind: %+v", s)
	}
	x.mustConnect(addr(1), "dev", true)
}

func TestRandomDatagrams(t *testing.T) {
	x := newWire(t, func(c *Config) { c.MaxSessions = 50 })
	d := x.mustConnect(addr(1), "dev", true)
	rng := rand.New(rand.NewPCG(1, 2))
	good := d.seal([]byte("x"))
	for i := range 10000 {
		b := make([]byte, rng.IntN(200))
		for j := range b {
			b[j] = byte(rng.Uint32())
		}
		switch i % 4 {
		case 1: // something like a record
			if len(b) > 13 {
				copy(b, []byte{byte(20 + rng.IntN(6)), 0xfe, 0xfd, 0, byte(rng.IntN(2))})
				b[11], b[12] = 0, byte(len(b)-13)
			}
		case 2: // of our session
			n := copy(b, good[:min(19, len(b))])
			if n == 19 && len(b) > 21 {
				b[17], b[18] = 0, byte(len(b)-19)
			}
		case 3: // a good one with a changed byte
			b = bytes.Clone(good)
			b[rng.IntN(len(b))] ^= byte(1 + rng.IntN(255))
		}
		x.w.now += time.Millisecond
		x.in(b, addr(1+rng.IntN(20)))
	}
	s := x.stats()
	if s.Malformed == 0 || s.BadMACs == 0 || s.Sessions != 1 || s.HalfOpen != 0 || s.Requests != 0 {
		t.Fatalf("%+v", s)
	}
	if out := x.in(good, d.addr); len(out) != 1 || d.open(out[0].b) != "x" {
		t.Fatal("the session does not work any more")
	}
}

func TestReplaysAndOldAddresses(t *testing.T) {
	x := newWire(t, nil)
	d := x.mustConnect(addr(1), "dev", true)
	one, two := d.seal([]byte("one")), d.seal([]byte("two"))
	x.in(two, addr(2))
	// An older record must not move the session.
	if out := x.in(one, addr(3)); len(out) != 1 || out[0].to != addr(2) {
		t.Fatalf("the answer to an older record goes to %v", out)
	}
	for range 3 {
		if out := x.in(two, addr(4)); len(out) != 0 {
			t.Fatal("a replay is answered")
		}
	}
	if s := x.stats(); s.Replays != 3 || s.AddressChanges != 1 {
		t.Fatalf("%+v", s)
	}
}

// A connection id of zeros is one like any other: clients without one are no duplicates of it.
func TestZeroConnectionID(t *testing.T) {
	x := newWire(t, func(c *Config) {
		c.CIDs = ByteOwnerCIDs(6, 0)
		c.CIDs.Rand = zeros{}
	})
	with := x.mustConnect(addr(1), "dev", true)
	without := x.mustConnect(addr(2), "dev", false)
	for _, d := range []*device{with, without} {
		if out := x.in(d.seal([]byte("hello")), d.addr); len(out) != 1 || d.open(out[0].b) != "hello" {
			t.Errorf("%v is not served", d.addr)
		}
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// Some clients repeat their Finished as the same record, some as a new one.
func TestLostFinalFlight(t *testing.T) {
	for _, same := range []bool{true, false} {
		x := newWire(t, nil)
		c, _ := handshake.NewClient(handshake.ClientConfig{Identity: []byte("dev"), Key: []byte("key"), OfferCID: true})
		s := new(record.Scratch)
		var last []byte
		send := func(b []byte) { last = bytes.Clone(b) }
		c.Start(x.w.now, send)
		for range 2 {
			for _, reply := range x.in(last, addr(1)) {
				c.Receive(s, reply.b, x.w.now, send)
			}
		}
		if out := x.in(last, addr(1)); len(out) != 1 {
			t.Fatalf("%d datagrams for the client's Finished", len(out))
		} // and lost
		x.w.now += time.Second
		if !same {
			c.Timeout(s, x.w.now, send)
		}
		out := x.in(last, addr(1))
		if len(out) != 1 {
			t.Fatalf("same record %t: %d datagrams for the repeated Finished", same, len(out))
		}
		c.Receive(s, bytes.Clone(out[0].b), x.w.now, send)
		if done, err := c.Done(); !done || err != nil {
			t.Fatalf("same record %t: done %t, %v", same, done, err)
		}
		if out := x.in(last, addr(1)); len(out) != 0 {
			t.Error("repeated again at once")
		}
		d := &device{addr: addr(1), a: c.Result().Association, scratch: s}
		x.in(d.seal([]byte("x")), addr(1))
		x.w.now += time.Second
		if out := x.in(last, addr(1)); len(out) != 0 {
			t.Error("repeated after the client has shown that it has it")
		}
		if st := x.stats(); st.Handshakes != 1 || st.Sessions != 1 {
			t.Errorf("%+v", st)
		}
	}
}

func TestNoAllocationPerRequest(t *testing.T) {
	for i, cids := range []bool{true, false, true} {
		x := newWire(t, func(c *Config) {
			if i > 0 {
				c.Arena = newArena(t)
			}
		})
		d := x.mustConnect(addr(1), "dev", cids)
		x.w.out.publicOut = func([]udpio.Message) {}
		const runs = 1000
		payload := make([]byte, 64)
		var batch [][]byte
		for range runs + 1 {
			batch = append(batch, d.seal(payload))
		}
		from := source{addr: d.addr}
		i := 0
		if n := testing.AllocsPerRun(runs, func() {
			x.w.datagram(batch[i], from, false)
			x.w.tick()
			x.w.out.flush()
			x.w.publish()
			i++
		}); n > 0 {
			t.Errorf("connection ids %t: %v allocations per request", cids, n)
		}
		if s := x.stats(); s.Requests != runs+1 || s.RecordsOut < runs {
			t.Errorf("%+v", s)
		}
	}
}

func BenchmarkRequest(b *testing.B) {
	for _, c := range []struct {
		bytes int
		kept  bool // in an arena
	}{{64, false}, {64, true}, {512, false}, {512, true}} {
		b.Run(fmt.Sprintf("%d/kept-%t", c.bytes, c.kept), func(b *testing.B) {
			n := c.bytes
			x := newWire(b, func(cfg *Config) {
				if c.kept {
					cfg.Arena = newArena(b)
				}
			})
			d := x.mustConnect(addr(1), "dev", true)
			x.w.out.publicOut = func([]udpio.Message) {}
			payload := make([]byte, n)
			from := source{addr: d.addr}
			var batch [64][]byte
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if i%64 == 0 {
					b.StopTimer()
					for j := range batch {
						batch[j] = d.seal(payload)
					}
					b.StartTimer()
				}
				x.w.datagram(batch[i%64], from, false)
				if i%64 == 63 {
					x.w.out.flush()
					x.w.publish()
				}
			}
		})
	}
}

// BenchmarkSession: what an idle session costs, in time and memory.
func BenchmarkSession(b *testing.B) {
	for _, offer := range []bool{true, false} {
		b.Run(fmt.Sprintf("connection-ids-%t", offer), func(b *testing.B) {
			x := newWire(b, func(c *Config) { c.MaxSessions = 1 << 20 })
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			i := 0
			for b.Loop() {
				i++
				x.mustConnect(addr(i), "dev", offer)
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(i), "B/session")
			runtime.KeepAlive(x)
		})
	}
}
