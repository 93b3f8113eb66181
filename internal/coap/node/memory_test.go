package node

import (
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

// idleSessions makes sessions with real handshakes, each with an identity, an address and a connection id of its own and one answered
// request, and returns how many bytes of the heap are alive for each, and how many goroutines there are more than before.
func idleSessions(t testing.TB, count int) (bytesPerSession float64, goroutines int) {
	t.Helper()
	cfg := Config{DTLS: []string{":0"}}.WithDefaults()
	l := &listener{cfg: &cfg, secure: true, exponent: 6, extended: newExtended(time.Now, false), diagnosis: new(diagnosis), echo: newEchoKey()}
	l.tree = l.newTree()
	var inbox [][]byte
	e, err := newOfflineEngine(engine.Config{
		CIDs: engine.ByteOwnerCIDs(6, 1), NewHandler: l.newHandler, MaxSessions: 2 * count,
		PSK: func([]byte) ([]byte, bool) { return []byte("sixteen byte key"), true },
	}, func(datagram []byte, _ netip.AddrPort) { inbox = append(inbox, append([]byte(nil), datagram...)) })
	if err != nil {
		t.Fatal(err)
	}
	now := time.Second
	scratch := new(record.Scratch)
	one := func(i int) {
		now += 50 * time.Microsecond
		from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), uint16(1024+i%60000))
		if err := idleSession(e, scratch, &inbox, from, i, now); err != nil {
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
	after := live()
	if s := e.Stats(); int(s.Sessions) != count+1 || s.Handshakes != uint64(count+1) {
		t.Fatalf("%d sessions of %d, %d handshakes", s.Sessions, count+1, s.Handshakes)
	}
	runtime.KeepAlive(l)
	return float64(after-before) / float64(count), runtime.NumGoroutine() - running
}

// idleSession is one client: handshake and GET /myip.
func idleSession(e *offlineEngine, scratch *record.Scratch, inbox *[][]byte, from netip.AddrPort, i int, now time.Duration) error {
	client, err := handshake.NewClient(handshake.ClientConfig{
		Identity: fmt.Appendf(nil, "device-%08d", i), Key: []byte("sixteen byte key"), OfferCID: true,
	})
	if err != nil {
		return err
	}
	send := func(d []byte) { e.Receive(append([]byte(nil), d...), from, now) }
	*inbox = (*inbox)[:0]
	client.Start(now, send)
	for done := false; !done; {
		if len(*inbox) == 0 {
			return fmt.Errorf("the server is silent")
		}
		d := (*inbox)[0]
		*inbox = (*inbox)[1:]
		client.Receive(scratch, d, now, send)
		if done, err = client.Done(); err != nil {
			return err
		}
	}
	*inbox = (*inbox)[:0]
	association := client.Result().Association
	request := append([]byte{0x44, 1, 0x12, 0x34, 't', 'o', 'k', 'n', 0xb4}, "myip"...)
	buf := make([]byte, record.MaxHeadRoom+len(request)+record.MaxTailRoom)
	copy(buf[record.MaxHeadRoom:], request)
	sealed, err := association.Seal(scratch, record.ApplicationData, buf, record.MaxHeadRoom, len(request))
	if err != nil {
		return err
	}
	send(sealed)
	if len(*inbox) == 0 {
		return fmt.Errorf("no answer")
	}
	var r record.Record
	if _, err := record.Next((*inbox)[0], 0, &r); err != nil {
		return err
	}
	_, payload, _, verdict := association.Open(scratch, &r)
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

// maxIdle is the bound, in bytes: two AES key schedules of 512 and the message ids of 32 requests (448) are half of it.
const maxIdle = 2800

// Run with -benchtime 100000x.
func BenchmarkIdleSessions(b *testing.B) {
	bytes, goroutines := idleSessions(b, b.N)
	b.ReportMetric(bytes, "live-B/session")
	b.ReportMetric(float64(goroutines), "goroutines")
}
