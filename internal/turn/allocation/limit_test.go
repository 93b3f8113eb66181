package allocation

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/pion/stun/v4"
)

// Over UDP no one without credentials gets more than three bytes for one, and everybody gets an answer, whatever the request
// holds and whatever realm and software are called.
func TestNoAmplification(t *testing.T) {
	for _, size := range []int{1, 8, 9, 15, 16, 17, 39, MaxRealm} {
		for _, sha := range []bool{false, true} {
			p := basic()
			p.Realm, p.Software, p.Auth.SHA256 = strings.Repeat("r", size), strings.Repeat("s", 3*size), sha
			w := newWorld(t, p)
			c := w.client(4000, UDP)
			c.path.Client = address("[2001:db8::5]:4000")
			most := 0.0
			for _, c.fingerprint = range []bool{false, true} {
				for _, attributes := range [][]attr{nil, {transport(17)}, {attr{Type: 0x7ff0}}, {attr{Type: stun.AttrSoftware, Value: make([]byte, 40)}}} {
					for _, method := range []stun.Method{
						stun.MethodBinding, allocateMethod, refreshMethod, permitMethod, bindMethod, connectMethod, stun.MethodConnectionBind,
					} {
						c.nonce = ""
						raw := c.message(method, stun.ClassRequest, attributes...)
						m, r := c.send(raw)
						if m == nil || len(m.Raw) > 3*len(raw) {
							t.Fatalf("%v, realm of %d: %v after %d bytes", method, size, r, len(raw))
						}
						most = max(most, float64(len(m.Raw))/float64(len(raw)))
						if size <= 16 && method != stun.MethodBinding && method != stun.MethodConnectionBind && r != Challenged {
							t.Errorf("%v, realm of %d: %v", method, size, r)
						}
					}
				}
			}
			if size == 16 && most < 2.99 {
				t.Errorf("realm of %d: at most %.2f bytes for one; these requests do not reach the bound", size, most)
			}
		}
	}
}

// A request of 20 bytes without any attribute is answered: 401 where realm and nonce have room, else 400. The client then
// goes on with the short nonce that it got.
func TestBareRequests(t *testing.T) {
	for _, test := range []struct {
		realm int
		want  Reason
	}{{4, Challenged}, {8, Challenged}, {16, Challenged}, {17, BadRequest}, {MaxRealm, BadRequest}} {
		p := basic()
		p.Realm = strings.Repeat("r", test.realm)
		for _, method := range []stun.Method{allocateMethod, refreshMethod, permitMethod, bindMethod, connectMethod} {
			w := newWorld(t, p)
			c := w.client(4000, UDP)
			if m := c.must(test.want, method); len(m.Raw) > 60 {
				t.Errorf("realm of %d: %d bytes answer 20", test.realm, len(m.Raw))
			}
			if c.nonce == "" {
				c.must(Challenged, allocateMethod, transport(17))
			}
			c.must(OK, allocateMethod, transport(17))
			w.now += int64(time.Hour) - 10e9
			c.must(OK, refreshMethod) // the nonce still holds
			w.now += 10e9
			c.must(StaleNonce, refreshMethod)
		}
	}
}

// What real clients send first is answered with the usual realms: the bare Allocate of 28 bytes.
func TestShortestChallenge(t *testing.T) {
	p := basic()
	p.Realm = "stunner.l7mp.io"
	w := newWorld(t, p)
	c := w.client(4000, UDP)
	raw := c.message(allocateMethod, stun.ClassRequest, transport(17))
	if m, r := c.send(raw); r != Challenged || len(m.Raw) > 3*len(raw) {
		t.Errorf("%v to a request of %d bytes", r, len(raw))
	}
	p.Realm = strings.Repeat("r", MaxRealm)
	w.set(p)
	c.nonce, c.realm = "", p.Realm
	raw = c.message(allocateMethod, stun.ClassRequest, transport(17))
	if m, r := c.send(raw); r != Challenged || len(m.Raw) != 3*len(raw) {
		t.Errorf("%v to a request of %d bytes with the longest realm", r, len(raw))
	}
	c.path.Transport = DTLS // its cookie has proven the address
	c.nonce, c.realm = "", p.Realm
	c.must(Challenged, allocateMethod, transport(17))
}

// An unproven source gets its burst, then its rate, and others are not touched; a request with credentials costs nothing.
func TestRateLimit(t *testing.T) {
	p := basic()
	p.Unauthenticated = RateLimit{PerPrefix: 10, PrefixBurst: 5, Total: -1}
	w := newWorld(t, p)
	victim, _ := w.allocated(3000)
	count := func(c *client, n int) (answered int) {
		for range n {
			c.nonce = ""
			if m, r := c.do(allocateMethod, transport(17)); m != nil {
				answered++
			} else if r != RateLimited {
				t.Errorf("dropped: %v", r)
			}
		}
		return answered
	}
	c := w.client(4000, UDP)
	c.path.Client = address("198.51.100.2:4000")
	if got := count(c, 100); got != 5 {
		t.Errorf("%d answers of a burst of 5", got)
	}
	victim.must(OK, refreshMethod)
	w.now += 1e9
	if got := count(c, 100); got != 5 {
		t.Errorf("%d answers a second later, a burst is 5", got)
	}
	w.now += 3e8
	if got := count(c, 100); got != 3 {
		t.Errorf("%d answers after 300 ms at 10/s", got)
	}
	v6 := w.client(4000, UDP)
	got := 0
	for i := range 20 { // one /64
		v6.path.Client = netip.AddrPortFrom(netip.AddrFrom16([16]byte{0: 0x20, 1: 1, 15: byte(i)}), 4000)
		got += count(v6, 1)
	}
	if got != 5 {
		t.Errorf("%d answers to one IPv6 /64", got)
	}
	v6.path.Client = address("[2001:0:0:1::1]:4000")
	if got := count(v6, 10); got != 5 {
		t.Errorf("%d answers to another /64", got)
	}
}

// A flood from a hundred thousand addresses: answers bounded in all, the table does not grow, and says what it forgot.
func TestRateLimitInAll(t *testing.T) {
	p := basic()
	p.Unauthenticated = RateLimit{PerPrefix: 1, PrefixBurst: 1, Total: 1000, TotalBurst: 500, PrefixesAtOnce: 1024}
	w := newWorld(t, p)
	msg := w.client(4000, UDP).message(allocateMethod, stun.ClassRequest, transport(17))
	answered := 0
	var out []byte
	for i := range 100_000 {
		path := Path{Client: flooder(i), Transport: UDP}
		answer, r := w.table.Request(path, msg, out[:0], w.now+int64(i)*1e4) // within a second
		if out = answer; len(answer) > 0 {
			answered++
		} else if r != RateLimited {
			t.Fatal(r)
		}
	}
	if answered < 700 || answered > 751 {
		t.Errorf("%d answers to strangers in a second, half of 1000/s with a burst of 500 allow 750", answered)
	}
	if s := w.shared.Stats(); s.Displaced < 90_000 || len(w.shared.rates.sets) != 128 {
		t.Errorf("%+v in %d sets", s, len(w.shared.rates.sets))
	}
}

// A real client is served while a hundred thousand invented addresses a second use up every answer for strangers: at the
// latest when it asks again, after the half second that RFC 8489 has it wait.
func TestRealClientsInAFlood(t *testing.T) {
	p := basic()
	p.Unauthenticated = RateLimit{Total: 1000, TotalBurst: 100}
	w := newWorld(t, p)
	r := w.shared.rates
	served := map[int]bool{}
	for i := range 200_000 { // two seconds; the clients begin in the second half second
		w.now += 1e4
		r.allow(challenges, flooder(i).Addr(), false, w.now)
		for c := range 50 {
			if i < 50_000 || (i-50_000-c*500)%50_000 != 0 {
				continue
			}
			if r.allow(challenges, flooder(-1-c).Addr(), false, w.now) {
				served[c] = true
			}
		}
	}
	if len(served) != 50 {
		t.Errorf("%d of 50 clients were served", len(served))
	}
}

// A NAT with three thousand clients: each is challenged and allocates, all within a second and with the limits as they are
// by default. The first of them proves the address.
func TestSetUpsFromOneAddress(t *testing.T) {
	w := newWorld(t, basic())
	c := w.client(0, UDP)
	for i := range 3000 {
		c.path.Client = netip.AddrPortFrom(c.path.Client.Addr(), uint16(10_000+i))
		c.nonce = ""
		c.must(Challenged, allocateMethod, transport(17))
		c.must(OK, allocateMethod, transport(17))
		w.now += 333_000
	}
	if w.table.Len() != 3000 || w.shared.Stats().Withheld != (WithheldStats{}) {
		t.Errorf("%d allocations, withheld %+v", w.table.Len(), w.shared.Stats().Withheld)
	}
}

// What somebody sends in the name of a proven source is bounded, too.
func TestProvenSourceIsBounded(t *testing.T) {
	p := basic()
	p.Unauthenticated = RateLimit{PerPrefix: 10, PrefixBurst: 5, Proven: 100, Total: 1, TotalBurst: 2}
	w := newWorld(t, p)
	c, _ := w.allocated(3000) // which takes the one answer that Total has
	answered := 0
	for range 1000 {
		c.nonce = ""
		if m, _ := c.do(allocateMethod, transport(17)); m != nil {
			answered++
		}
	}
	if answered != 100 || w.shared.Stats().Withheld != (WithheldStats{Proven: 900}) {
		t.Errorf("%d answers to a proven source, want 100; withheld %+v", answered, w.shared.Stats().Withheld)
	}
	w.now += int64(provenTime)
	answered = 0
	for range 100 {
		c.nonce = ""
		if m, _ := c.do(allocateMethod, transport(17)); m != nil {
			answered++
		}
	}
	if answered < 1 || answered > 2 {
		t.Errorf("%d answers after the proof ran out, want what Total leaves", answered)
	}
}

// Binding requests and challenges do not use up each other's answers, of one source or of all.
func TestBindingsHaveTheirOwnBudget(t *testing.T) {
	for name, limits := range map[string]RateLimit{
		"of a source": {PerPrefix: 10, PrefixBurst: 10, Bindings: 20, Total: -1},
		"of all":      {Total: 1, TotalBurst: 10},
	} {
		p := basic()
		p.Unauthenticated = limits
		w := newWorld(t, p)
		c := w.client(4000, UDP)
		count := func(method stun.Method) (answered int) {
			for range 1000 {
				c.nonce = ""
				if m, _ := c.do(method, transport(17)); m != nil {
					answered++
				}
			}
			return answered
		}
		if first, got := count(stun.MethodBinding), count(allocateMethod); first < 5 || first > 40 || got < 5 || got > 10 {
			t.Errorf("%s: %d answers to Binding requests, then %d challenges", name, first, got)
		}
	}
}

// A flood of a million requests a second, from ten thousand invented addresses that come again and again, does not keep
// a client that comes for the first time waiting.
func TestNewClientsInAFloodOfRepeatedSources(t *testing.T) {
	w := newWorld(t, basic())
	r := w.shared.rates
	answered, served := 0, 0
	for i := range 3_000_000 {
		w.now += 1000
		if r.allow(challenges, flooder(i%10_000).Addr(), false, w.now) {
			answered++
		}
		if i >= 500_000 && i%25_000 == 0 { // forty a second, when the burst is used up
			if r.allow(challenges, flooder(-1-i).Addr(), false, w.now) {
				served++
			}
		}
	}
	if served != 100 {
		t.Errorf("%d of 100 new clients were answered at once", served)
	}
	if answered > 50_000+3*50_000 {
		t.Errorf("%d answers in three seconds", answered)
	}
}

// A million unproven sources take the place of each other, but of no proven one; a proven one loses its place to others
// that prove themselves, and then only.
func TestUnprovenSourcesEvictNoProvenOne(t *testing.T) {
	p := basic()
	p.Unauthenticated = RateLimit{PerPrefix: 1, PrefixBurst: 1, Total: -1, PrefixesAtOnce: 1024}
	w := newWorld(t, p)
	r := w.shared.rates
	for i := range 100 {
		r.prove(flooder(-1-i).Addr(), w.now)
	}
	for i := range 1_000_000 {
		r.allow(challenges, flooder(i).Addr(), false, w.now+int64(i)*1000)
	}
	lost := 0
	for i := range 100 {
		for range 3 { // more than an unproven source gets
			if !r.allow(challenges, flooder(-1-i).Addr(), false, w.now+2e9) {
				lost++
			}
		}
	}
	if lost != 0 {
		t.Errorf("%d answers to proven sources withheld after the flood", lost)
	}
	for i := range 100_000 {
		r.prove(flooder(i).Addr(), w.now+2e9)
	}
	for i := range r.sets {
		proven := 0
		for _, s := range r.sets[i].sources {
			if s.proven > w.now+2e9 {
				proven++
			}
		}
		if proven != rateSlots-1 {
			t.Fatalf("%d proven sources in a set of %d, want all but one", proven, rateSlots)
		}
	}
	if !r.allow(challenges, flooder(-5000).Addr(), false, w.now+2e9) {
		t.Error("no place for a source that is new")
	}
}

func flooder(i int) netip.AddrPort {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], 0x0b000000+uint32(i))
	return netip.AddrPortFrom(netip.AddrFrom4(b), 4000)
}

// While the table of rates has room, no one is forgotten.
func TestRateTableHolds(t *testing.T) {
	r := newRates(1<<16, rand.NewChaCha8([32]byte{}))
	r.set(RateLimit{PerPrefix: 1, PrefixBurst: 1})
	refused := 0
	for range 2 {
		for i := range 4096 {
			if !r.allow(challenges, flooder(i).Addr(), false, start) {
				refused++
			}
		}
	}
	if refused != 4096 || r.displaced.Load() != 0 {
		t.Errorf("%d refused, %d displaced", refused, r.displaced.Load())
	}
}

// The clock may be set back without locking anybody out.
func TestRateClockBack(t *testing.T) {
	r := newRates(8, rand.NewChaCha8([32]byte{}))
	r.set(RateLimit{PerPrefix: 1, PrefixBurst: 2, Total: 1, TotalBurst: 2})
	a := flooder(0).Addr()
	r.allow(challenges, a, false, start+int64(time.Hour))
	if r.allow(challenges, a, false, start); !r.allow(challenges, a, false, start+3e9) {
		t.Error("locked out after the clock was set back")
	}
}

// Bandwidth: burst, rate, and a policy that changes it.
func TestBandwidth(t *testing.T) {
	p := basic()
	w := newWorld(t, p)
	_, a := w.allocated(4000)
	if !a.Allow(w.now, 1<<40) {
		t.Error("no limit, and refused")
	}
	p.Quotas.Bandwidth, p.Quotas.Burst = 1000, 3000
	w.set(p)
	sent := 0
	for i := range 100 {
		if a.Allow(w.now+int64(i)*1e8, 500) { // 5000 bytes per second are requested, ten seconds long
			sent += 500
		}
	}
	if sent < 12_500 || sent > 13_000 {
		t.Errorf("%d bytes in ten seconds, 3000 + 10 × 1000 are allowed", sent)
	}
	p.Quotas.Bandwidth = -1
	w.set(p)
	if !a.Allow(w.now, 1<<30) {
		t.Error("still limited")
	}
}
