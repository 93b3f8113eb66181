package engine

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/record"
)

// ledger compares what each address got with what came from it.
type ledger struct {
	x             *wire
	received, got map[netip.AddrPort]int
}

func newLedger(x *wire) *ledger {
	return &ledger{x: x, received: map[netip.AddrPort]int{}, got: map[netip.AddrPort]int{}}
}

func (l *ledger) in(d []byte, from netip.AddrPort) []sent {
	l.received[from] += len(d)
	out := l.x.in(d, from)
	for _, o := range out {
		l.got[o.to] += len(o.b)
	}
	return out
}

func (l *ledger) check(t *testing.T, a netip.AddrPort) {
	t.Helper()
	if l.got[a] > 3*l.received[a] {
		t.Errorf("%v: %d bytes for %d, more than three times", a, l.got[a], l.received[a])
	}
}

// A stranger who replays captured records from a victim's address, however many, never gets more than three times their
// bytes sent there: nothing but proof lifts the limit.
func TestCapturedRecordsDoNotLiftTheLimit(t *testing.T) {
	x := newWire(t, func(c *Config) {
		c.NewHandler = func(*Worker) Handler { return &mirror{repeat: 40} }
	})
	d := x.mustConnect(addr(1), "dev", true)
	if len(x.in(d.seal(make([]byte, 20)), addr(1))) != 1 {
		t.Fatal("an address that the handshake has proven is limited")
	}
	l, victim := newLedger(x), addr(2)
	for range 50 {
		l.in(d.seal(make([]byte, 20)), victim)
		l.in(d.seal([]byte{1}), victim)
		l.check(t, victim)
	}
	if l.got[victim] == 0 {
		t.Error("the limit lets nothing through")
	}
	if s := x.stats(); s.Amplified == 0 || s.AddressesProven != 0 {
		t.Errorf("%d withheld, %d proven", s.Amplified, s.AddressesProven)
	}
	// The client's next record has the session back, and its address has to prove itself, too.
	for range 3 {
		l.in(d.seal(make([]byte, 20)), addr(1))
		l.check(t, addr(1))
	}
	p := x.onlyPeer()
	if p.Addr() != addr(1) || p.Proven() {
		t.Fatalf("at %v, proven %t", p.Addr(), p.Proven())
	}
	x.w.Validate(p)
	if out := l.in(d.seal(make([]byte, 20)), addr(1)); len(out) != 1 || len(out[0].b) < 800 {
		t.Error("still limited once proven")
	}
}

func (x *wire) onlyPeer() (p *Peer) {
	for _, p = range x.w.peers.byCID {
	}
	return p
}

// Records that are older than the newest come from where they like: they are no bytes from the session's address.
func TestOlderRecordsFromElsewhereAreNoCredit(t *testing.T) {
	x := newWire(t, nil)
	d := x.mustConnect(addr(1), "dev", true)
	var older [][]byte
	for range 20 {
		older = append(older, d.seal(make([]byte, 200)))
	}
	l, victim := newLedger(x), addr(2)
	l.in(d.seal([]byte("x")), victim)
	for _, r := range older {
		l.in(r, addr(3))
		l.check(t, victim)
	}
}

// The limit is about whole datagrams, whatever is sent, and what Budget promises can be sent.
func TestAmplificationCountsWholeRecords(t *testing.T) {
	x := newWire(t, nil)
	d := x.mustConnect(addr(1), "dev", true)
	l, moved := newLedger(x), addr(2)
	trigger := d.seal(nil)
	l.in(trigger, moved) // an empty answer: nothing is sent, the address has changed
	p := x.onlyPeer()
	x.public = x.public[:0]
	for x.w.Send(p, []byte("x")) {
	}
	x.w.out.flush()
	for _, out := range x.public {
		l.got[moved] += len(out.b)
	}
	if l.check(t, moved); l.got[moved] == 0 {
		t.Error("nothing was sent")
	}
	if s := x.stats(); s.Amplified != 1 {
		t.Errorf("%d counted", s.Amplified)
	}
	p.budget = 500
	if n := p.Budget(); n <= 0 || !x.w.Send(p, make([]byte, n)) || p.budget < 0 {
		t.Errorf("a budget of %d bytes could not be used", n)
	}
}

// The final flight is repeated for replays of the client's Finished, which anybody may send: it counts like all else.
func TestFinalFlightIsLimited(t *testing.T) {
	x := newWire(t, nil)
	var finished []byte
	c, err := handshake.NewClient(handshake.ClientConfig{Identity: []byte("dev"), Key: []byte("key"), OfferCID: true})
	if err != nil {
		t.Fatal(err)
	}
	scratch := new(record.Scratch)
	var queue [][]byte
	send := func(b []byte) { queue = append(queue, bytes.Clone(b)) }
	for c.Start(x.w.now, send); len(queue) > 0; queue = queue[1:] {
		finished = queue[0]
		for _, reply := range x.in(queue[0], addr(1)) {
			c.Receive(scratch, bytes.Clone(reply.b), x.w.now, send)
		}
	}
	d := &device{addr: addr(1), scratch: scratch, cid: true, a: c.Result().Association}
	l, victim := newLedger(x), addr(2)
	// An alert that is only a warning moves the session and leaves the final flight in place.
	l.in(d.sealAs(record.Alert, []byte{1, 100}), victim)
	for range 20 {
		x.w.now += time.Second
		l.in(finished, addr(3)) // a replay: no byte of it came from the victim
	}
	if l.check(t, victim); l.got[victim] == 0 {
		t.Error("no final flight was repeated: the test does not reach what it is for")
	}
}

// sealAs makes a record of any type.
func (d *device) sealAs(typ record.ContentType, payload []byte) []byte {
	buf := make([]byte, record.MaxHeadRoom+len(payload)+record.MaxTailRoom)
	copy(buf[record.MaxHeadRoom:], payload)
	out, err := d.a.Seal(d.scratch, typ, buf, record.MaxHeadRoom, len(payload))
	if err != nil {
		panic(err)
	}
	return out
}

// openAs reads a record of any type.
func (d *device) openAs(t *testing.T, datagram []byte, cid int) (record.ContentType, []byte) {
	t.Helper()
	var r record.Record
	if _, err := record.Next(bytes.Clone(datagram), cid, &r); err != nil {
		t.Fatal(err)
	}
	typ, payload, _, verdict := d.a.Open(d.scratch, &r)
	if verdict != record.Opened {
		t.Fatalf("verdict %d", verdict)
	}
	return typ, bytes.Clone(payload)
}

func (x *wire) routableDevice(t *testing.T, cid []byte) *device {
	t.Helper()
	d, err := x.connectWith(addr(1), handshake.ClientConfig{
		Identity: []byte("dev"), Key: []byte("key"), OfferCID: true, CID: cid, OfferRoutability: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A client that knows the return routability check proves its new address in one round trip, with and without a connection
// id of its own.
func TestReturnRoutabilityCheck(t *testing.T) {
	for _, cid := range [][]byte{nil, []byte("mine")} {
		x := newWire(t, func(c *Config) { c.NewHandler = func(*Worker) Handler { return &mirror{repeat: 40} } })
		d := x.routableDevice(t, cid)
		if out := x.in(d.seal([]byte("hello")), addr(1)); len(out) != 1 {
			t.Fatalf("%d datagrams to an address that has not changed", len(out))
		}
		l, moved := newLedger(x), addr(2)
		out := l.in(d.seal(make([]byte, 50)), moved)
		if len(out) != 1 || out[0].to != moved {
			t.Fatalf("%d datagrams after the move, want a challenge alone", len(out))
		}
		l.check(t, moved)
		typ, challenge := d.openAs(t, out[0].b, len(cid))
		if typ != record.RoutabilityCheck || len(challenge) != 9 || challenge[0] != pathChallenge {
			t.Fatalf("type %d: %x", typ, challenge)
		}
		// A wrong cookie proves nothing, nor does path_drop, nor an unknown message.
		for _, wrong := range [][]byte{
			append([]byte{pathResponse}, "nonsense"...), append([]byte{2}, challenge[1:]...), append([]byte{77}, challenge[1:]...), {pathResponse}, {},
		} {
			l.in(d.sealAs(record.RoutabilityCheck, wrong), moved)
		}
		if x.onlyPeer().Proven() {
			t.Fatal("proven by a wrong cookie")
		}
		l.in(d.sealAs(record.RoutabilityCheck, append([]byte{pathResponse}, challenge[1:]...)), moved)
		if !x.onlyPeer().Proven() {
			t.Fatal("not proven by the cookie")
		}
		if out := l.in(d.seal(make([]byte, 50)), moved); len(out) != 1 || len(out[0].b) < 2000 {
			t.Fatal("still limited once proven")
		}
		if s := x.stats(); s.PathChallenges != 1 || s.AddressesProven != 1 {
			t.Errorf("%d challenges, %d proven", s.PathChallenges, s.AddressesProven)
		}
	}
}

// Lost challenges are repeated at growing distances as records come, each with a cookie of its own, and the cookie of an
// address before counts no more.
func TestChallengesAreRepeated(t *testing.T) {
	x := newWire(t, nil)
	d := x.routableDevice(t, nil)
	x.in(d.seal([]byte("hello")), addr(1))
	cookies := map[string]bool{}
	challenges := func(out []sent) (n int) {
		for _, o := range out {
			if typ, payload := d.openAs(t, o.b, 0); typ == record.RoutabilityCheck {
				cookies[string(payload[1:])] = true
				n++
			}
		}
		return n
	}
	for _, step := range []struct {
		wait time.Duration
		want int
	}{{0, 1}, {0, 0}, {999 * time.Millisecond, 0}, {time.Millisecond, 1}, {time.Second, 0}, {time.Second, 1}} {
		x.w.now += step.wait
		if n := challenges(x.in(d.seal([]byte("x")), addr(2))); n != step.want {
			t.Fatalf("after %v: %d challenges, want %d", step.wait, n, step.want)
		}
	}
	old := x.onlyPeer().path.cookie
	if challenges(x.in(d.seal([]byte("x")), addr(3))) != 1 || len(cookies) != 4 {
		t.Fatalf("%d cookies", len(cookies))
	}
	x.in(d.sealAs(record.RoutabilityCheck, append([]byte{pathResponse}, old[:]...)), addr(3))
	if x.onlyPeer().Proven() {
		t.Error("the cookie of another address proves this one")
	}
}

// The server answers a client's challenge, once, to where it came from.
func TestServerAnswersChallenges(t *testing.T) {
	x := newWire(t, nil)
	d := x.routableDevice(t, nil)
	out := x.in(d.sealAs(record.RoutabilityCheck, []byte("\x00cookie78")), addr(1))
	if len(out) != 1 {
		t.Fatalf("%d answers", len(out))
	}
	if typ, payload := d.openAs(t, out[0].b, 0); typ != record.RoutabilityCheck || string(payload) != "\x01cookie78" {
		t.Errorf("type %d: %q", typ, payload)
	}
	// Who has not negotiated it gets nothing.
	y := newWire(t, nil)
	e := y.mustConnect(addr(1), "dev", true)
	if out := y.in(e.sealAs(record.RoutabilityCheck, []byte("\x00cookie78")), addr(1)); len(out) != 0 {
		t.Error("answered without negotiation")
	}
	if len(y.in(e.seal([]byte("x")), addr(2))) != 1 {
		t.Error("a challenge, or no answer, without negotiation")
	}
}

func newPlainWire(t *testing.T, size int) *wire {
	t.Helper()
	return newWire(t, func(c *Config) { c.Plain, c.MaxSessions = true, size })
}

// A plain peer gets three times what it sends until its address is proven, and again when the proof has expired; loopback
// needs no proof.
func TestPlainPeersProveTheirAddress(t *testing.T) {
	x := newWire(t, func(c *Config) {
		c.Plain = true
		c.NewHandler = func(*Worker) Handler { return &mirror{repeat: 4} }
	})
	roundTrip := func(from netip.AddrPort) int { return len(x.in([]byte("hello"), from)) }
	if roundTrip(netip.MustParseAddrPort("127.0.0.1:1")) != 1 || roundTrip(netip.MustParseAddrPort("[::ffff:127.0.0.1]:1")) != 1 || roundTrip(netip.MustParseAddrPort("[::1]:1")) != 1 {
		t.Error("loopback is limited")
	}
	for _, want := range []int{0, 1, 1, 1, 0} { // four times 5 bytes, of credits of 15
		if got := roundTrip(addr(1)); got != want {
			t.Fatalf("%d answers, want %d", got, want)
		}
	}
	p := x.w.peers.byAddress[addr(1)]
	x.w.Validate(p)
	for range 5 {
		if roundTrip(addr(1)) != 1 {
			t.Fatal("limited once proven")
		}
	}
	x.w.now += provenLife
	if roundTrip(addr(1)) != 0 || p.Proven() {
		t.Error("the proof does not expire")
	}
}

// A flood from a few sources takes no place from proven peers, nor from the unproven one of another source; and a table
// full of proven peers still has places for new ones.
func TestPlainFloodEvictsItself(t *testing.T) {
	x := newPlainWire(t, 64)
	prove := func(i int) {
		x.in([]byte("x"), addr(i))
		x.w.Validate(x.w.peers.byAddress[addr(i)])
	}
	for i := range 40 {
		prove(i)
	}
	x.in([]byte("x"), addr(1000))
	x.w.now += time.Minute
	for i := range 5000 {
		x.in([]byte("x"), netip.AddrPortFrom(addr(2000+i%2).Addr(), uint16(i+1)))
	}
	kept := func(n int) (have int) {
		for i := range n {
			if p := x.w.peers.byAddress[addr(i)]; p != nil && p.Proven() {
				have++
			}
		}
		return have
	}
	if have := kept(40); have != 40 || x.w.peers.byAddress[addr(1000)] == nil {
		t.Errorf("%d of 40 proven peers left, the unproven one of another source: %t", have, x.w.peers.byAddress[addr(1000)] != nil)
	}
	if s := x.stats(); s.Sessions != 64 || s.UnprovenEvicted != 5000-23 || s.Evicted != 0 || s.SessionsFull != 0 || s.UnprovenPeers != 24 {
		t.Errorf("%+v", s)
	}
	for i := range 200 {
		prove(i)
	}
	if have := kept(60); have != 60 {
		t.Errorf("%d of the first 60 that proved themselves are left", have)
	}
	// Proofs that have expired make room.
	x.w.now += provenLife
	for i := range 64 {
		prove(500 + i)
	}
	if s := x.stats(); s.Sessions != 64 || s.Evicted == 0 {
		t.Errorf("%+v", s)
	}
	for i := range 60 {
		if p := x.w.peers.byAddress[addr(500+i)]; p == nil || !p.Proven() {
			t.Fatalf("peer %d found no place", i)
		}
	}
}
