package engine

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/record"
	"github.com/weir-lb/weir/internal/udpio"
)

// pair is a minimal cluster of two nodes: kind, port, IPv4 address, a byte, datagram: as long as Californium's header.
type pair struct {
	owner uint32
	other netip.AddrPort
}

const pairHeader = 8

func (c *pair) header(b []byte, kind byte, client netip.AddrPort) {
	b[0] = kind
	binary.BigEndian.PutUint16(b[1:], client.Port())
	a := client.Addr().As4()
	copy(b[3:], a[:])
}

func (c *pair) Foreign(w *Worker, owner uint32, d []byte, from netip.AddrPort, _ time.Duration) bool {
	if owner != c.owner {
		return false
	}
	b := w.LinkBuffer()
	c.header(b, 63, from)
	w.LinkSend(pairHeader+copy(b[pairHeader:], d), c.other)
	return true
}

func (c *pair) Frame(w *Worker, f []byte, from netip.AddrPort, _ time.Duration) {
	if len(f) < pairHeader {
		return
	}
	client := netip.AddrPortFrom(netip.AddrFrom4([4]byte(f[3:])), binary.BigEndian.Uint16(f[1:]))
	if f[0] == 63 {
		w.Inject(f[pairHeader:], client, from)
	} else {
		w.SendRaw(f[pairHeader:], client)
	}
}

func (c *pair) Return(_ *Worker, b []byte, end int, _ []byte, client, _ netip.AddrPort) (int, bool) {
	c.header(b[end-pairHeader:], 62, client)
	return end - pairHeader, true
}

func (c *pair) Tick(*Worker, time.Duration) time.Duration { return Never }

// carry takes what one wire has sent on the link to the other.
func carry(from, to *wire, fromAddr netip.AddrPort) {
	frames := from.link
	from.link = nil
	for _, f := range frames {
		to.w.cfg.Cluster.Frame(to.w, f.b, fromAddr, to.w.now)
	}
	to.w.out.flush()
}

func TestForeignRecordsGoToTheirOwnerAndBack(t *testing.T) {
	linkOne, linkTwo := netip.MustParseAddrPort("192.0.2.1:1"), netip.MustParseAddrPort("192.0.2.2:2")
	one := newWire(t, func(c *Config) { c.Cluster = &pair{owner: 2, other: linkTwo} })
	two := newWire(t, func(c *Config) {
		c.CIDs = ByteOwnerCIDs(6, 2)
		c.Cluster = &pair{owner: 1, other: linkOne}
	})
	d := two.mustConnect(addr(1), "dev", true)
	// A burst of twenty reaches the wrong node.
	for range 20 {
		one.w.datagram(d.seal([]byte("hello")), source{addr: addr(2)}, false)
	}
	one.w.out.flush()
	if len(one.link) != 20 || one.batches != 1 || len(one.public) != 0 {
		t.Fatalf("%d frames in %d batches, %d to the public", len(one.link), one.batches, len(one.public))
	}
	two.public = nil
	carry(one, two, linkOne)
	if len(two.link) != 20 || len(two.public) != 0 {
		t.Fatalf("%d frames back, %d to the public", len(two.link), len(two.public))
	}
	carry(two, one, linkTwo)
	if len(one.public) != 20 {
		t.Fatalf("%d answers", len(one.public))
	}
	for _, s := range one.public {
		if s.to != addr(2) || d.open(s.b) != "hello" {
			t.Fatalf("an answer to %v does not open", s.to)
		}
	}
	for _, p := range two.w.peers.byCID {
		if i := p.Info(); i.Router != linkOne || i.Addr != addr(2) {
			t.Errorf("info %+v", i)
		}
	}
	// A newer record that comes directly ends the detour.
	if out := two.in(d.seal([]byte("direct")), addr(3)); len(out) != 1 || out[0].to != addr(3) || len(two.link) != 0 {
		t.Error("the answer to a direct record takes the detour")
	}
	if s := one.stats(); s.Foreign != 20 || s.ForeignUnknown != 0 {
		t.Errorf("first node %+v", s)
	}
	if s := two.stats(); s.Injected != 20 || s.Returned != 20 || s.Requests != 21 {
		t.Errorf("second node %+v", s)
	}
	// An owner no one knows: counted, dropped, not answered.
	alien := d.seal([]byte("x"))
	alien[11] = 9
	if out := one.in(alien, addr(2)); len(out) != 0 {
		t.Error("a record of no one is answered")
	}
	// A frame with a foreign record is not sent on a second time.
	one.w.Inject(d.seal([]byte("x")), addr(2), linkTwo)
	one.w.out.flush()
	if s := one.stats(); s.ForeignUnknown != 1 || s.UnknownCIDs != 2 || len(one.link) != 0 {
		t.Errorf("first node %+v, %d frames", s, len(one.link))
	}
}

func TestForwardingDoesNotAllocate(t *testing.T) {
	linkTwo := netip.MustParseAddrPort("192.0.2.2:2")
	one := newWire(t, func(c *Config) { c.Cluster = &pair{owner: 2, other: linkTwo} })
	two := newWire(t, func(c *Config) { c.CIDs = ByteOwnerCIDs(6, 2); c.Cluster = &pair{owner: 1} })
	d := two.mustConnect(addr(1), "dev", true)
	var frame [512]byte
	n := 0
	one.w.out.linkOut = func(m []udpio.Message) { n = copy(frame[:], m[0].Buf[:m[0].N]) }
	two.w.out.linkOut = func([]udpio.Message) {}
	const runs = 200
	var batch [][]byte
	for range runs + 1 {
		batch = append(batch, d.seal([]byte("hello")))
	}
	i := 0
	if a := testing.AllocsPerRun(runs, func() {
		one.w.datagram(batch[i], source{addr: addr(2)}, false)
		one.w.out.flush()
		two.w.cfg.Cluster.Frame(two.w, frame[:n], linkTwo, two.w.now)
		two.w.out.flush()
		i++
	}); a > 0 {
		t.Errorf("%v allocations per forwarded record", a)
	}
	if s := two.stats(); s.Returned != runs+1 {
		t.Errorf("%+v", s)
	}
}

func TestRecordsOfAnotherWorkerAreHandedOver(t *testing.T) {
	a, b := newWire(t, func(c *Config) { c.Workers = 2 }), newWire(t, func(c *Config) { c.Workers = 2 })
	b.w.id = 1
	workers := []*Worker{a.w, b.w}
	a.w.workers, b.w.workers = workers, workers
	d := b.mustConnect(addr(1), "dev", true)
	var payloads [][]byte
	for range maxHandedOver + 10 {
		payloads = append(payloads, d.seal([]byte("x")))
	}
	for _, p := range payloads {
		a.w.datagram(p, source{addr: addr(2)}, false)
	}
	items, data := b.w.inbox.Take()
	if len(items) != maxHandedOver {
		t.Fatalf("%d handed over", len(items))
	}
	b.public = nil
	for _, it := range items {
		b.w.datagram(data[:it.bytes], it.from, true)
		data = data[it.bytes:]
	}
	b.w.out.flush()
	if len(b.public) != maxHandedOver {
		t.Fatalf("%d answers", len(b.public))
	}
	if s := a.stats(); s.HandedOver != maxHandedOver || s.QueueFull != 10 {
		t.Errorf("%+v", s)
	}
	// Nobody's: handed over once, then counted.
	alien := d.seal([]byte("x"))
	alien[16] ^= 1
	a.w.datagram(bytes.Clone(alien), source{addr: addr(2)}, false)
	items, data = b.w.inbox.Take()
	for _, it := range items {
		b.w.datagram(data[:it.bytes], it.from, true)
	}
	if s := b.stats(); len(items) != 1 || s.UnknownCIDs != 1 || s.HandedOver != 0 {
		t.Errorf("%d items, %+v", len(items), s)
	}
}

// FuzzDatagram: nothing that arrives can break a worker or its session.
func FuzzDatagram(f *testing.F) {
	seedWire := newWire(f, nil)
	d := seedWire.mustConnect(addr(1), "dev", true)
	f.Add(d.seal([]byte("seed")), uint8(1))
	c, _ := handshake.NewClient(handshake.ClientConfig{Identity: []byte("dev"), Key: []byte("key"), OfferCID: true})
	c.Start(0, func(b []byte) { f.Add(bytes.Clone(b), uint8(2)) })
	f.Add(record.AppendPlain(record.AppendPlain(nil, record.ChangeCipherSpec, 3, []byte{1}), record.Alert, 4, []byte{2, 0}), uint8(3))
	f.Add([]byte{25, 0xfe, 0xfd, 0, 1, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 0, 0}, uint8(1))
	f.Fuzz(func(t *testing.T, b []byte, who uint8) {
		x := newWire(t, func(c *Config) { c.MaxSessions, c.Batch = 4, 2 })
		d := x.mustConnect(addr(1), "dev", true)
		x.halfOpenClient(addr(2))
		in := 0
		for range 3 {
			for _, o := range x.in(b, addr(int(who))) {
				if in += len(b); len(o.b) > 3*in+200 && int(who) > 2 {
					t.Fatalf("%d bytes for %d from an address not proven", len(o.b), in)
				}
			}
		}
		if out := x.in(d.seal([]byte("alive")), addr(1)); len(out) != 1 || d.open(out[0].b) != "alive" {
			t.Fatal("the session does not work any more")
		}
	})
}

// A client that has not got the final flight and repeats its Finished by way of
// another node gets it the way that its datagram came.
func TestFinalFlightReturnsThroughTheRouter(t *testing.T) {
	linkOne, linkTwo := netip.MustParseAddrPort("192.0.2.1:1"), netip.MustParseAddrPort("192.0.2.2:2")
	one := newWire(t, func(c *Config) { c.Cluster = &pair{owner: 2, other: linkTwo} })
	two := newWire(t, func(c *Config) {
		c.CIDs = ByteOwnerCIDs(6, 2)
		c.Cluster = &pair{owner: 1, other: linkOne}
	})
	c, err := handshake.NewClient(handshake.ClientConfig{Identity: []byte("dev"), Key: []byte("key"), OfferCID: true})
	if err != nil {
		t.Fatal(err)
	}
	s := new(record.Scratch)
	var last []byte
	send := func(b []byte) { last = bytes.Clone(b) }
	c.Start(two.w.now, send)
	for range 2 {
		for _, reply := range two.in(last, addr(1)) {
			c.Receive(s, reply.b, two.w.now, send)
		}
	}
	if out := two.in(last, addr(1)); len(out) != 1 { // and lost
		t.Fatalf("%d datagrams for the client's Finished", len(out))
	}
	two.w.now += time.Second
	c.Timeout(s, two.w.now, send)
	var r record.Record
	finished := last
	for rest := last; len(rest) > 0; { // alone in its datagram: only the first record's connection id counts
		finished = rest
		if rest, err = record.Next(rest, 6, &r); err != nil {
			t.Fatal(err)
		}
	}
	one.in(finished, addr(1))
	two.public = nil
	carry(one, two, linkOne)
	if len(two.public) != 0 || len(two.link) != 1 {
		t.Fatalf("%d datagrams from the owner itself, %d by the router", len(two.public), len(two.link))
	}
	one.public = nil
	carry(two, one, linkTwo)
	if len(one.public) != 1 || one.public[0].to != addr(1) {
		t.Fatalf("%d datagrams to the client", len(one.public))
	}
	c.Receive(s, one.public[0].b, two.w.now, send)
	if done, err := c.Done(); !done || err != nil {
		t.Fatalf("done %t, %v", done, err)
	}
}
