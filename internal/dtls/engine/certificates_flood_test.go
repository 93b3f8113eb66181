package engine

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/handshake/handshaketest"
	"github.com/weir-lb/weir/internal/dtls/record"
)

// withCertificates is a worker that asks its clients for certificates, and the configuration of a client that has one.
func withCertificates(t testing.TB, auth handshake.ClientAuth) (*wire, handshake.ClientConfig) {
	t.Helper()
	a := handshaketest.NewAuthority(t, "test")
	own, device := a.Issue(t, "P-256", "server.test", nil), a.Issue(t, "P-256", "device", nil)
	x := newWire(t, func(c *Config) {
		c.ClientAuth = auth
		c.Credentials = handshaketest.Store(handshake.Credentials{Certificates: []*handshake.Certificate{own.Certificate}, Roots: a.Roots})
	})
	return x, handshake.ClientConfig{
		Config: handshake.Config{Credentials: handshaketest.Store(handshake.Credentials{
			Certificates: []*handshake.Certificate{device.Certificate}, Roots: a.Roots,
		})},
		OfferCID: true,
	}
}

// Handshakes with certificates take more memory than others. All of them together stay within handshake.MaxHeld, and a flood that
// fills it, of sources that hold most of it, keeps no one out.
func TestCertificateFloodIsBounded(t *testing.T) {
	x, cfg := withCertificates(t, handshake.ClientAuthNeeded)
	claim := func(sequence byte) []byte { // the first fragment of a certificate of 8192 bytes
		m := []byte{11, 0, 0x20, 0, 0, sequence, 0, 0, 0, 0, 0, 1, 0}
		return record.AppendPlain(nil, record.Handshake, 9, m)
	}
	x.w.now = time.Second
	most := 0
	for i := range 3000 {
		from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{203, 0, 113, byte(i % 4)}), uint16(1024+i))
		c, err := handshake.NewClient(cfg)
		if err != nil {
			t.Fatal(err)
		}
		var hello []byte
		send := func(d []byte) { hello = bytes.Clone(d) }
		c.Start(x.w.now, send)
		c.Receive(new(record.Scratch), x.in(hello, from)[0].b, x.w.now, send)
		x.in(hello, from)
		for _, reply := range [][]byte{claim(2), claim(2)} {
			x.in(reply, from)
		}
		most = max(most, x.w.server.Held())
	}
	held := 0
	for _, h := range x.w.halfOpens.byAddress {
		held += h.pending.Held()
	}
	s := x.stats()
	if held != x.w.server.Held() || most > handshake.MaxHeld+handshake.MaxMessage*2 || most < handshake.MaxHeld-20000 || s.HalfOpenEvicted < 1000 {
		t.Errorf("%d bytes held, %d by all handshakes, %d at most, %+v", x.w.server.Held(), held, most, s)
	}
	x.w.stats.HandshakesFailed = 0
	for i := range 10 {
		if _, err := x.connectWith(addr(i+1), cfg); err != nil {
			t.Fatal(err)
		}
	}
	if s := x.stats(); s.Sessions != 10 {
		t.Errorf("%+v", s)
	}
	x.w.now += x.w.halfOpens.life
	x.w.tick()
	if n := x.w.server.Held(); n != 0 {
		t.Errorf("%d bytes are held by nobody", n)
	}
}

// A flood of hellos costs nothing with certificates either: no signature, no memory, no amplification.
func TestHelloFloodWithCertificates(t *testing.T) {
	x, cfg := withCertificates(t, handshake.ClientAuthNeeded)
	c, err := handshake.NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var hello []byte
	c.Start(0, func(d []byte) { hello = bytes.Clone(d) })
	for i := range 5000 {
		replies := x.in(hello, addr(i))
		if len(replies) != 1 || len(replies[0].b) > len(hello) {
			t.Fatalf("%d replies", len(replies))
		}
	}
	if s := x.stats(); s.HelloVerifies != 5000 || s.HalfOpen != 0 || x.w.server.Held() != 0 {
		t.Errorf("%+v", s)
	}
	if n := testing.AllocsPerRun(100, func() { x.w.datagram(hello, source{addr: addr(1)}, false); x.w.out.flush() }); n > 2 {
		t.Errorf("%v allocations for each hello", n) // the test's socket copies the reply
	}
}

// Clients without a certificate have no identity to share: one source cannot take the places of all others.
func TestAnonymousClientsHaveTheirSourcesShare(t *testing.T) {
	x, cfg := withCertificates(t, handshake.ClientAuthWanted)
	cfg.Credentials.Load().Certificates = nil
	x.w.cfg.MaxSessions = 20
	for i := range 10 {
		if _, err := x.connectWith(addr(i+1), cfg); err != nil {
			t.Fatal(err)
		}
	}
	flood := netip.MustParseAddr("203.0.113.9")
	for i := range 100 {
		_, _ = x.connectWith(netip.AddrPortFrom(flood, uint16(1024+i)), cfg)
	}
	for i := range 5 { // more sources come, and take of the share of the one that holds most
		if _, err := x.connectWith(addr(i+100), cfg); err != nil {
			t.Fatal(err)
		}
	}
	others := 0
	for p := x.w.peers.newest; p != nil; p = p.older {
		if p.addr.Addr() != flood {
			others++
		}
	}
	if s := x.stats(); others != 15 || s.Sessions != 20 || s.SessionsFull != 90 || s.EvictedOverShare != 5 {
		t.Errorf("%d of 15 clients are left: %+v", others, s)
	}
}
