package node

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/dtls/engine"
	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/record"
)

// newRestingEngine is one worker of a server with room for twice as many sessions. What it sends is appended to inbox.
func newRestingEngine(t testing.TB, sessions int, inbox *[][]byte) *offlineEngine {
	t.Helper()
	cfg := Config{DTLS: []string{":0"}}.WithDefaults()
	l := &listener{cfg: &cfg, secure: true, exponent: 6, extended: newExtended(time.Now, false), diagnosis: new(diagnosis), echo: newEchoKey()}
	l.tree = l.newTree()
	e, err := newOfflineEngine(engine.Config{
		CIDs: engine.ByteOwnerCIDs(6, 1), NewHandler: l.newHandler, MaxSessions: 2 * sessions,
		PSK: func([]byte) ([]byte, bool) { return []byte("sixteen byte key"), true },
	}, func(datagram []byte, _ netip.AddrPort) { *inbox = append(*inbox, append([]byte(nil), datagram...)) })
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// idleSessions makes sessions with real handshakes, each with an identity, an address and a connection id of its own and one answered
// request, waits until they rest, and returns how many bytes of the heap are alive for each, and how many goroutines there are more
// than before.
func idleSessions(t testing.TB, count int) (bytesPerSession float64, goroutines int) {
	t.Helper()
	var inbox [][]byte
	e := newRestingEngine(t, count, &inbox)
	now := time.Second
	one := func(i int) {
		now += 50 * time.Microsecond
		from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), uint16(1024+i%60000))
		c, err := newRestingClient(e, &inbox, from, i, now)
		if err == nil {
			err = c.get(now)
		}
		if err != nil {
			t.Fatalf("session %d: %v", i, err)
		}
	}
	live := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	one(0) // what the server needs once
	before, running := live(), runtime.NumGoroutine()
	for i := range count {
		one(i + 1)
	}
	inbox = nil
	for now += engine.RestAfter; e.Next() <= now; {
		e.Tick(now)
	}
	after := live()
	if s := e.Stats(); int(s.Sessions) != count+1 || s.Handshakes != uint64(count+1) {
		t.Fatalf("%d sessions of %d, %d handshakes", s.Sessions, count+1, s.Handshakes)
	}
	runtime.KeepAlive(e)
	return float64(after-before) / float64(count), runtime.NumGoroutine() - running
}

// restingClient is one client without a socket.
type restingClient struct {
	engine      *offlineEngine
	scratch     *record.Scratch
	inbox       *[][]byte // what the engine sends
	from        netip.AddrPort
	association *record.Association
	requests    uint16
}

// newRestingClient makes a session.
func newRestingClient(e *offlineEngine, inbox *[][]byte, from netip.AddrPort, i int, now time.Duration) (*restingClient, error) {
	client, err := handshake.NewClient(handshake.ClientConfig{
		Identity: fmt.Appendf(nil, "device-%08d", i), Key: []byte("sixteen byte key"), OfferCID: true,
	})
	if err != nil {
		return nil, err
	}
	c := &restingClient{engine: e, scratch: new(record.Scratch), inbox: inbox, from: from}
	send := func(d []byte) { c.send(d, now) }
	*inbox = (*inbox)[:0]
	client.Start(now, send)
	for done := false; !done; {
		if len(*inbox) == 0 {
			return nil, errors.New("the server is silent")
		}
		d := (*inbox)[0]
		*inbox = (*inbox)[1:]
		client.Receive(c.scratch, d, now, send)
		if done, err = client.Done(); err != nil {
			return nil, err
		}
	}
	c.association = client.Result().Association
	return c, nil
}

func (c *restingClient) send(d []byte, now time.Duration) {
	c.engine.Receive(append([]byte(nil), d...), c.from, now)
}

// request is a sealed GET /myip.
func (c *restingClient) request() ([]byte, error) {
	c.requests++
	request := append([]byte{0x44, 1, byte(c.requests >> 8), byte(c.requests), 't', 'o', 'k', 'n', 0xb4}, "myip"...)
	buf := make([]byte, record.MaxHeadRoom+len(request)+record.MaxTailRoom)
	copy(buf[record.MaxHeadRoom:], request)
	return c.association.Seal(c.scratch, record.ApplicationData, buf, record.MaxHeadRoom, len(request))
}

// get sends a request, and checks the answer.
func (c *restingClient) get(now time.Duration) error {
	sealed, err := c.request()
	if err != nil {
		return err
	}
	*c.inbox = (*c.inbox)[:0]
	c.send(sealed, now)
	if len(*c.inbox) == 0 {
		return errors.New("no answer")
	}
	var r record.Record
	if _, err := record.Next((*c.inbox)[0], 0, &r); err != nil {
		return err
	}
	_, payload, _, verdict := c.association.Open(c.scratch, &r)
	if verdict != record.Opened || len(payload) < 4 || message.Code(payload[1]) != message.Content {
		return fmt.Errorf("the answer is %x", payload)
	}
	return nil
}

// An idle session holds no goroutine, and a bounded part of the heap.
func TestMemoryOfIdleSessions(t *testing.T) {
	bytes, goroutines := idleSessions(t, 5000)
	t.Logf("%.0f bytes live per session", bytes)
	if bytes > maxIdle || goroutines > 2 {
		t.Errorf("%.0f bytes live per session and %d more goroutines for 5000", bytes, goroutines)
	}
}

// maxIdle is the bound, in bytes.
const maxIdle = 1000

// A session that rests goes on with its next record. Forged and repeated records change nothing for it.
func TestRestingSessionsAreServed(t *testing.T) {
	var inbox [][]byte
	e := newRestingEngine(t, 10, &inbox)
	now := time.Second
	var clients []*restingClient
	for i := range 3 {
		c, err := newRestingClient(e, &inbox, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 1024), i, now)
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
	}
	for round := range 3 {
		c := clients[round%2] // the third client only rests
		old, err := c.request()
		if err != nil {
			t.Fatal(err)
		}
		old = append([]byte(nil), old...)
		c.send(old, now)
		for now += engine.RestAfter; e.Next() <= now; {
			e.Tick(now)
		}
		before := e.Stats()
		c.send(old, now)
		forged, err := c.request()
		if err != nil {
			t.Fatal(err)
		}
		forged[len(forged)-1] ^= 1
		c.send(forged, now)
		for _, c := range clients[:2] {
			if err := c.get(now); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
		}
		after := e.Stats()
		if after.Replays != before.Replays+1 || after.BadMACs != before.BadMACs+1 || after.Sessions != 3 {
			t.Errorf("round %d: %+v, before %+v", round, after, before)
		}
	}
	if err := clients[2].get(now); err != nil {
		t.Error(err)
	}
}

// Run with -benchtime 100000x.
func BenchmarkIdleSessions(b *testing.B) {
	bytes, goroutines := idleSessions(b, b.N)
	b.ReportMetric(bytes, "live-B/session")
	b.ReportMetric(float64(goroutines), "goroutines")
}
