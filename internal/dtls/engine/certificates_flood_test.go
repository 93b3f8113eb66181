package engine

import (
	"bytes"
	"crypto"
	"io"
	"net/netip"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/handshake/handshaketest"
	"github.com/weir-lb/weir/internal/dtls/record"
)

// signer counts the signatures of a server's key.
type signer struct {
	crypto.Signer
	made int
}

func (s *signer) Sign(random io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	s.made++
	return s.Signer.Sign(random, digest, opts)
}

// withCertificates is a worker that asks its clients for certificates, and the configuration of a client that has one.
func withCertificates(t testing.TB, auth handshake.ClientAuth) (*wire, handshake.ClientConfig) {
	t.Helper()
	x, cfg, _ := withSigner(t, auth)
	return x, cfg
}

// withSigner is withCertificates, with the count of the server's signatures.
func withSigner(t testing.TB, auth handshake.ClientAuth) (*wire, handshake.ClientConfig, *signer) {
	t.Helper()
	a := handshaketest.NewAuthority(t, "test")
	own, device := a.Issue(t, "P-256", "server.test", nil), a.Issue(t, "P-256", "device", nil)
	key := &signer{Signer: own.Key}
	counted, err := handshake.NewCertificate(own.Chain, key)
	if err != nil {
		t.Fatal(err)
	}
	x := newWire(t, func(c *Config) {
		c.ClientAuth = auth
		c.Credentials = handshaketest.Store(handshake.Credentials{Certificates: []*handshake.Certificate{counted}, Roots: a.Roots})
	})
	return x, handshake.ClientConfig{
		Config: handshake.Config{Credentials: handshaketest.Store(handshake.Credentials{
			Certificates: []*handshake.Certificate{device.Certificate}, Roots: a.Roots,
		})},
		OfferCID: true,
	}, key
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

// A flood of hellos costs nothing with certificates either, with a cookie of another address too: no signature, no memory, no
// amplification.
func TestHelloFloodWithCertificates(t *testing.T) {
	x, cfg, key := withSigner(t, handshake.ClientAuthNeeded)
	c, err := handshake.NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var hello []byte
	send := func(d []byte) { hello = bytes.Clone(d) }
	flood := func() {
		t.Helper()
		for i := range 5000 {
			replies := x.in(hello, addr(i))
			if len(replies) != 1 || len(replies[0].b) > len(hello) {
				t.Fatalf("%d replies", len(replies))
			}
		}
	}
	c.Start(0, send)
	flood()
	own := addr(6000)
	c.Receive(new(record.Scratch), x.in(hello, own)[0].b, 0, send) // now with the cookie of that address
	flood()
	if s := x.stats(); s.HelloVerifies != 10001 || s.HalfOpen != 0 || x.w.server.Held() != 0 || key.made != 0 || s.Signatures != 0 {
		t.Errorf("%d signatures, %+v", key.made, s)
	}
	if n := testing.AllocsPerRun(100, func() { x.w.datagram(hello, source{addr: addr(1)}, false); x.w.out.flush() }); n > 2 {
		t.Errorf("%v allocations for each hello", n) // the test's socket copies the reply
	}
	for range 100 {
		x.in(hello, own)
	}
	if s := x.stats(); s.HalfOpen != 1 || key.made != 1 || s.Signatures != 1 {
		t.Errorf("%d signatures for one handshake whose cookie has returned, %+v", key.made, s)
	}
}

// A flood of handshakes with certificates that stop half-way does not keep such clients out, and each costs one signature, after its
// cookie has returned.
func TestHalfOpenFloodWithCertificates(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	x, cfg, key := withSigner(t, handshake.ClientAuthNeeded)
	n := &network{wire: x, roundTrip: 500 * time.Millisecond, due: map[time.Duration][]func(){}, clients: map[netip.AddrPort]*newcomer{}}
	sent, clients := 0, 0
	n.run(7*time.Second, func(ms int) {
		for range 3 { // 3000 per second
			n.halfOpenWith(netip.AddrPortFrom(netip.AddrFrom4([4]byte{203, 0, byte(sent % 4), 1}), uint16(1024+sent/4)), cfg)
			sent++
		}
		if ms >= 3000 && ms < 5000 && ms%10 == 0 {
			n.startWith(addr(clients+1), cfg)
			clients++
		}
	})
	s := n.stats()
	if got := n.connected(); got*100 < clients*95 {
		t.Errorf("%d of %d clients connected", got, clients)
	}
	if s.HalfOpenEvicted < 5000 || key.made > sent+clients || key.made < sent || uint64(key.made) > s.HelloVerifies || s.Signatures != uint64(key.made) {
		t.Errorf("%d signatures for %d handshakes of the flood and %d clients: %+v", key.made, sent, clients, s)
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
