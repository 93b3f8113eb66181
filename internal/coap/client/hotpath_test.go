package client

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/dtls/record"
	"github.com/weir-lb/weir/internal/testbed/measure"
)

// echo answers the requests of one simulated client from the other end of its session, by hand.
type echo struct {
	t           testing.TB
	w           *worker
	conn        *net.UDPConn
	association *record.Association
	scratch     *record.Scratch
	in, out     []byte
	from        netip.AddrPort // of the request read last
}

func newEcho(t testing.TB) *echo {
	t.Helper()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	b, err := newBench(BenchConfig{URI: "coaps://" + conn.LocalAddr().String() + "/benchmark?rlen=40", Clients: 1, Workers: 1, Duration: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	w := b.workers[0]
	t.Cleanup(w.close)
	var keys record.Keys
	cid := []byte{1, 2, 3, 4, 5, 6}
	e := &echo{t: t, w: w, conn: conn, scratch: new(record.Scratch), in: make([]byte, 2048), out: make([]byte, 2048)}
	if e.association, err = record.NewAssociation(record.PSKWithAES128CCM8, &keys, record.Server, cid, nil); err != nil {
		t.Fatal(err)
	}
	c := w.clients[0]
	if c.association, err = record.NewAssociation(record.PSKWithAES128CCM8, &keys, record.Client, nil, cid); err != nil {
		t.Fatal(err)
	}
	c.state, w.phase = stateReady, phaseLoad
	c.send(c.w.now)
	return e
}

// read takes a request, where it comes from, and its length.
func (e *echo) read() int {
	n, from, err := e.conn.ReadFromUDPAddrPort(e.in)
	if err != nil {
		e.t.Fatal(err)
	}
	e.from = from
	return n
}

// answer takes the request in flight and hands the client its response, upon which it sends the next.
func (e *echo) answer() { e.respond(message.Changed, nil) }

// respond answers with a code and, if it is not nil, an Echo option. It returns the request, which is valid until the next one.
func (e *echo) respond(code message.Code, value []byte) (m message.Message) {
	n := e.read()
	var r record.Record
	if _, err := record.Next(e.in[:n], 6, &r); err != nil {
		e.t.Fatal(err)
	}
	_, payload, _, verdict := e.association.Open(e.scratch, &r)
	if verdict != record.Opened || message.Parse(payload, &m) != nil {
		e.t.Fatalf("request: verdict %d", verdict)
	}
	head := e.association.HeadRoom()
	var b message.Builder
	b.Reset(e.out[head:head:head+512], message.Ack, code, m.ID, m.Token)
	if value != nil {
		b.Option(message.Echo, value)
	}
	b.Payload(m.Payload)
	reply, err := b.Bytes()
	if err != nil {
		e.t.Fatal(err)
	}
	datagram, err := e.association.Seal(e.scratch, record.ApplicationData, e.out, head, len(reply))
	if err != nil {
		e.t.Fatal(err)
	}
	e.w.now += time.Millisecond
	e.w.clients[0].receive(datagram)
	return m
}

func TestNoAllocationPerRequest(t *testing.T) {
	e := newEcho(t)
	for range 100 {
		e.answer()
	}
	// A request costs the same each time; goroutines of earlier tests that are ending do not.
	answered, allocations := uint64(100), 1.0
	for try := 0; allocations != 0 && try < 10; try++ {
		allocations = testing.AllocsPerRun(200, e.answer)
		answered += 201
	}
	if allocations != 0 {
		t.Errorf("%v allocations per request", allocations)
	}
	if s := e.w.stats; s.Requests != answered || s.Stray != 0 {
		t.Errorf("%+v", s)
	}
}

// What comes from nowhere, twice, or broken changes nothing but a counter.
func TestStrayRecords(t *testing.T) {
	e := newEcho(t)
	e.answer()
	before := e.w.stats
	e.w.clients[0].receive([]byte{22, 254, 253})
	e.w.clients[0].receive(record.AppendPlain(nil, record.Alert, 1, []byte{2, 40})) // no keys, so no proof
	e.w.clients[0].receive(append([]byte(nil), e.out[:60]...))
	if s := e.w.stats; s.Stray != before.Stray+3 || s.Requests != before.Requests || s.LostSessions != 0 || e.w.clients[0].state != stateReady {
		t.Errorf("%+v, before %+v", s, before)
	}
	e.answer()
	if e.w.stats.Requests != before.Requests+1 {
		t.Error("the client stopped")
	}
}

// A client moves between two requests: the answer to one that it repeats may still be sent to its old address.
func TestARepeatedRequestDoesNotMove(t *testing.T) {
	e := newEcho(t)
	e.read()
	first := e.from
	e.w.clients[0].socket.moveDue = true
	e.w.now += 4 * time.Second // more than ACK_TIMEOUT times ACK_RANDOM_FACTOR
	e.w.endpoint.Tick(e.w.now)
	e.answer()
	if e.from != first {
		t.Errorf("asked from %v, again from %v", first, e.from)
	}
	if e.read(); e.from == first || e.w.stats.Rebinds != 1 {
		t.Errorf("the next request comes from %v too, %d changes", first, e.w.stats.Rebinds)
	}
}

func BenchmarkRequest(b *testing.B) {
	e := newEcho(b)
	b.ReportAllocs()
	for b.Loop() {
		e.answer()
	}
}

// The round-trip times of a snapshot are those of its own interval, not of the one before.
func TestSnapshotHasItsOwnLatency(t *testing.T) {
	e := newEcho(t)
	var snapshots []Snapshot
	now := time.Now()
	r := &reporter{b: e.w.b, begun: now, last: now, timeline: measure.NewTimeline(time.Second), live: func(s Snapshot) { snapshots = append(snapshots, s) }}
	for i := range 3 {
		e.answer()
		e.w.publish() // as it does all the time
		for range i {
			e.answer()
		}
		// Nearly over, as usual; or over at once, as after a callback that took long.
		r.last = time.Now().Add(publishEvery - r.b.cfg.LiveEvery - time.Duration(i%2)*publishEvery)
		r.look(false)
		e.w.publish()
		r.last = r.last.Add(-publishEvery)
		r.look(false)
		_, all := r.timeline.End(0)
		if len(snapshots) != i+1 || snapshots[i].Interval.Requests != uint64(i+1) || snapshots[i].P50 == 0 || all.Count() != snapshots[i].Total.Requests {
			t.Fatalf("interval %d: %+v, %d round-trip times of %d", i, snapshots, all.Count(), e.w.stats.Requests)
		}
	}
}
