package node

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/dtls/engine"
	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/record"
)

// offline is a listener without sockets whose clients have any address, and a ledger of UDP payload.
type offline struct {
	t             *testing.T
	listener      *listener
	engine        *engine.Offline
	now           time.Duration
	addresses     int
	received, got map[netip.AddrPort]int
	inbox         map[netip.AddrPort][][]byte
	worst         float64
	routable      bool // clients offer the return routability check, and answer no challenge
}

func newOffline(t *testing.T, secure bool, change func(*Config)) *offline {
	t.Helper()
	cfg := Config{Listen: []string{":0"}, Version: "v1.2.3-0.20261123140000-0123456789ab"}
	if change != nil {
		change(&cfg)
	}
	cfg = cfg.WithDefaults()
	o := &offline{
		t: t, now: time.Second, received: map[netip.AddrPort]int{}, got: map[netip.AddrPort]int{}, inbox: map[netip.AddrPort][][]byte{},
	}
	o.listener = &listener{cfg: &cfg, secure: secure, benchmark: benchmarkBody(), echo: newEchoKey(), exponent: cfg.exponent(cfg.Plugtest)}
	if cfg.Plugtest {
		o.listener.plugtest = newPlugtest(func() time.Time { return time.Unix(0, 0).Add(o.now) }, 5*time.Second)
	}
	o.listener.extended = newExtended(func() time.Time { return time.Unix(0, 0).Add(o.now) }, true)
	o.listener.tree = o.listener.newTree()
	var err error
	o.engine, err = engine.NewOffline(engine.Config{
		Plain: !secure, CIDs: engine.ByteOwnerCIDs(6, 1), NewHandler: o.listener.newHandler, Trusted: cfg.trusts,
		PSK: func([]byte) ([]byte, bool) { return []byte("key"), true },
	}, func(datagram []byte, to netip.AddrPort) {
		o.got[to] += len(datagram)
		o.inbox[to] = append(o.inbox[to], bytes.Clone(datagram))
		o.worst = max(o.worst, float64(o.got[to])/float64(o.received[to]))
	})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// address is one that was never used before.
func (o *offline) address() netip.AddrPort {
	o.addresses++
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(o.addresses >> 8), byte(o.addresses)}), 5683)
}

// send hands a datagram in and returns what its sender got since.
func (o *offline) send(datagram []byte, from netip.AddrPort) [][]byte {
	o.received[from] += len(datagram)
	o.engine.Receive(bytes.Clone(datagram), from, o.now)
	return o.take(from)
}

func (o *offline) take(at netip.AddrPort) [][]byte {
	all := o.inbox[at]
	delete(o.inbox, at)
	return all
}

// pass lets time pass, timers and all.
func (o *offline) pass(span time.Duration) {
	for end := o.now + span; ; {
		next := o.engine.Next()
		if next > end {
			o.now = end
			return
		}
		o.now = max(o.now, next)
		o.engine.Tick(o.now)
	}
}

// client is a connection to the server: plain, or sealed in a session.
type client struct {
	*offline
	at      netip.AddrPort
	a       *record.Association
	scratch *record.Scratch
	mid     uint16
	token   string
	deaf    bool // to pings
}

func (o *offline) client(secure bool) *client {
	o.t.Helper()
	c := &client{offline: o, at: o.address(), token: "tk"}
	if !secure {
		return c
	}
	hs, err := handshake.NewClient(handshake.ClientConfig{Identity: []byte("cali.x"), Key: []byte("key"), OfferCID: true, OfferRoutability: o.routable})
	if err != nil {
		o.t.Fatal(err)
	}
	c.scratch = new(record.Scratch)
	var queue [][]byte
	transmit := func(b []byte) { queue = append(queue, bytes.Clone(b)) }
	for hs.Start(o.now, transmit); len(queue) > 0; queue = queue[1:] {
		for _, reply := range o.send(queue[0], c.at) {
			hs.Receive(c.scratch, reply, o.now, transmit)
		}
	}
	if done, err := hs.Done(); !done || err != nil {
		o.t.Fatal(done, err)
	}
	c.a = hs.Result().Association
	return c
}

func (c *client) seal(payload []byte) []byte {
	if c.a == nil {
		return payload
	}
	buf := make([]byte, record.MaxHeadRoom+len(payload)+record.MaxTailRoom)
	copy(buf[record.MaxHeadRoom:], payload)
	out, err := c.a.Seal(c.scratch, record.ApplicationData, buf, record.MaxHeadRoom, len(payload))
	if err != nil {
		c.t.Fatal(err)
	}
	return out
}

// messages are what datagrams hold.
func (c *client) messages(datagrams [][]byte) (all []message.Message) {
	c.t.Helper()
	for _, d := range datagrams {
		if c.a != nil {
			var r record.Record
			if _, err := record.Next(d, -1, &r); err != nil {
				c.t.Fatal(err)
			}
			_, payload, _, verdict := c.a.Open(c.scratch, &r)
			if verdict != record.Opened {
				c.t.Fatalf("verdict %d", verdict)
			}
			d = payload
		}
		var m message.Message
		if err := message.Parse(d, &m); err != nil {
			c.t.Fatalf("%x: %v", d, err)
		}
		all = append(all, m)
	}
	return all
}

// query is one kind of request, without type, method, id and token.
type query struct {
	path    string
	queries []string
	accept  int // -1: none
	block   int // value of Block2; -1: none
	payload int // bytes
	echo    []byte
	observe bool
}

func (q *query) build(t *testing.T, kind message.Type, code message.Code, id uint16, token []byte) []byte {
	t.Helper()
	var b message.Builder
	b.Reset(make([]byte, 0, 2048), kind, code, id, token)
	if q.observe {
		b.Uint(message.Observe, 0)
	}
	for segment := range strings.SplitSeq(strings.Trim(q.path, "/"), "/") {
		if segment != "" {
			b.Text(message.URIPath, segment)
		}
	}
	for _, s := range q.queries {
		b.Text(message.URIQuery, s)
	}
	if q.accept >= 0 {
		b.Uint(message.Accept, uint32(q.accept))
	}
	if q.block >= 0 {
		b.Uint(message.Block2, uint32(q.block))
	}
	if q.echo != nil {
		b.Option(message.Echo, q.echo)
	}
	b.Payload(make([]byte, q.payload))
	wire, err := b.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return wire
}

// everyQuery walks the server's own list of resources, so that a new one is covered without any program thinking of it.
func everyQuery(l *listener) (all []query) {
	paths := append(l.tree.Paths(), "/nothing/here", "/"+strings.Repeat("x", 200))
	for _, path := range paths {
		for _, queries := range [][]string{nil, {"rlen=8192"}, {"rlen=8192", "ack"}, {"ack"}, {"href=/*"}, {"unknown=" + strings.Repeat("y", 20)}, {"obs=3", "req=3", "res=x"}, {"obs=3", "res=x"}} {
			all = append(all, query{path: path, queries: queries, accept: -1, block: -1})
		}
		for _, accept := range []int{0, 40, 41, 50, 60, 9999} {
			all = append(all, query{path: path, accept: accept, block: -1})
		}
		for _, block := range []int{0, 6, 7, 1<<4 | 2, 100 << 4} {
			all = append(all, query{path: path, queries: []string{"rlen=8192"}, accept: -1, block: block})
		}
		all = append(all, query{path: path, accept: -1, block: -1, payload: 40}, query{path: path, accept: -1, block: -1, echo: []byte("guess1")})
	}
	for _, path := range paths { // last: from here on there are observers, which are notified while time passes
		all = append(all, query{path: path, accept: -1, block: -1, observe: true})
	}
	return all
}

var (
	everyMethod = []message.Code{message.GET, message.POST, message.PUT, message.DELETE, message.FETCH, message.PATCH, message.IPATCH}
	everyType   = []message.Type{message.Con, message.Non, message.Ack, message.Rst}
	everyToken  = [][]byte{nil, []byte("t"), []byte("tokentok")}
)

// Towards an address that has not proven itself at most three bytes of UDP payload go for each that came: for every
// resource, query, method and message type, with repetitions by both sides, without DTLS and for a session that has moved.
func TestAmplification(t *testing.T) {
	for _, name := range []string{"plain", "plugtest", "moved", "moved, challenged"} {
		t.Run(name, func(t *testing.T) {
			plain := name == "plain" || name == "plugtest"
			o := newOffline(t, !plain, func(c *Config) { c.Plugtest = name == "plugtest" })
			o.routable = name == "moved, challenged"
			c := o.client(!plain)
			o.worst = 0
			types, tokens := everyType, everyToken
			if name == "plugtest" { // many resources
				types, tokens = everyType[:2], everyToken[:1]
			}
			for _, q := range everyQuery(o.listener) {
				for _, method := range everyMethod {
					for _, kind := range types {
						for _, token := range tokens {
							c.at = o.address()
							c.mid++
							what := func() string { return fmt.Sprintf("%s %s %+v, token %q", kind, method.Name(), q, token) }
							before := o.worst
							request := q.build(t, kind, method, c.mid, token)
							answered := 0
							for range 2 { // the second one is a duplicate of the message, then of the record, too
								datagram := c.seal(request)
								answered += len(o.send(datagram, c.at))
								answered += len(o.send(datagram, c.at))
							}
							o.pass(300 * time.Second)
							answered += len(o.take(c.at))
							if o.worst > 3 && o.worst > before {
								t.Errorf("%s: %.2f times", what(), o.worst)
							}
							if kind <= message.Non && answered == 0 {
								t.Errorf("%s: no answer", what())
							}
						}
					}
				}
			}
			// What is no request: pings, malformed messages, responses that were not requested.
			for _, datagram := range [][]byte{
				{0x40, 0, 0, 1},
				{0x50, 0, 0, 1},
				{0x60, 0, 0, 1},
				{0x70, 0, 0, 1},
				{0x40},
				{0x4f, 1, 0, 1},
				{0x40, 1, 0, 1, 0xff},
				{0x40, 0x45, 0, 1},
				{0x40, 0xe1, 0, 1},
				{0x40, 1, 0, 1, 0x91, 'x'},
				{0x44, 1, 0, 1, 't', 'o', 'k', 'e', 0xd1, 0, 'x'},
			} {
				c.at = o.address()
				o.send(c.seal(datagram), c.at)
				o.pass(300 * time.Second)
			}
			if o.worst > 3 {
				t.Errorf("%.2f times", o.worst)
			}
			if s := o.engine.Stats(); s.AddressesProven != 0 || (s.PathChallenges > 0) != o.routable {
				t.Errorf("%d addresses proven by nothing, %d challenges", s.AddressesProven, s.PathChallenges)
			}
			t.Logf("%d addresses, at most %.2f times; %d datagrams withheld", o.addresses, o.worst, o.engine.Stats().Amplified)
		})
	}
}

// exchangeRequest sends a request and follows it to its response as RFC 7252 requires of a client, separate responses
// included.
func (c *client) exchangeRequest(q query, kind message.Type, code message.Code) message.Message {
	c.t.Helper()
	c.mid++
	queue := c.messages(c.send(c.seal(q.build(c.t, kind, code, c.mid, []byte(c.token))), c.at))
	for range 10 {
		for _, m := range queue {
			if m.Type == message.Con && m.Code == message.Empty && c.deaf {
				continue
			}
			if m.Type == message.Con {
				kind := message.Ack
				if m.Code == message.Empty {
					kind = message.Rst
				}
				c.send(c.seal(message.AppendEmpty(nil, kind, m.ID)), c.at)
			}
			if m.Code != message.Empty && string(m.Token) == c.token {
				return m
			}
		}
		c.pass(time.Second)
		queue = c.messages(c.take(c.at))
	}
	c.t.Fatalf("no response to %+v", q)
	return message.Message{}
}

// fetch follows the blocks of a response, and answers the demand for an Echo option if it can.
func (c *client) fetch(q query, kind message.Type, code message.Code, knowsEcho bool) (body []byte, requests int) {
	c.t.Helper()
	for requests = 1; requests < 1000; requests++ {
		m := c.exchangeRequest(q, kind, code)
		q.echo = nil
		if value, ok := m.Option(message.Echo); ok && m.Code == message.Unauthorized && knowsEcho {
			q.echo = bytes.Clone(value)
			continue
		}
		if m.Code.Class() != 2 {
			c.t.Fatalf("%s for %+v", m.Code, q)
		}
		body = append(body, m.Payload...)
		value, ok := m.Uint(message.Block2)
		if !ok || value&8 == 0 {
			return body, requests
		}
		q.block = int(value>>4+1)<<4 | int(value&7)
	}
	c.t.Fatal("never ends")
	return nil, 0
}

// Clients get everything, in more steps at first, and in full once a ping or, where not even a block fits, an Echo option has
// proven the address.
func TestUnprovenClientsAreServed(t *testing.T) {
	for _, secure := range []bool{false, true} {
		name := map[bool]string{false: "plain", true: "moved"}[secure]
		for _, kind := range []message.Type{message.Con, message.Non} {
			for path, want := range map[string]int{"/": 0, "/context": 0, "/.well-known/core": 0, "/benchmark": 3000, "/separate": 0} {
				t.Run(fmt.Sprintf("%s %s %s", name, kind, path), func(t *testing.T) {
					o := newOffline(t, secure, nil)
					c := o.client(secure)
					c.at = o.address()
					q := query{path: path, accept: -1, block: -1}
					if want > 0 {
						q.queries = []string{fmt.Sprintf("rlen=%d", want)}
					}
					body, first := c.fetch(q, kind, message.GET, path == "/")
					if len(body) == 0 || want > 0 && len(body) != want {
						t.Fatalf("%d bytes", len(body))
					}
					if want > 0 {
						if _, again := c.fetch(q, kind, message.GET, false); again != 3 || first < 4 {
							t.Errorf("%d requests, then %d, want 3 once proven", first, again)
						}
					}
				})
			}
		}
	}
}

func echoOf(o *offline, address netip.AddrPort, period int64) []byte {
	e := newEchoes(o.listener.echo)
	return e.of(address, period)
}

// The shortest request of a client that knows no Echo option but has tokens of 8 bytes, as Californium's, has an answer, too.
func TestRootWithoutEcho(t *testing.T) {
	for _, kind := range []message.Type{message.Con, message.Non} {
		o := newOffline(t, false, nil)
		c := o.client(false)
		c.token = "8 bytes."
		if body, requests := c.fetch(query{path: "/", accept: -1, block: -1}, kind, message.GET, false); !strings.HasPrefix(string(body), "Weir ") {
			t.Errorf("%s: %q in %d requests", kind, body, requests)
		}
	}
}

// A separate response is one, however short the request.
func TestSeparateWithoutProof(t *testing.T) {
	o := newOffline(t, false, nil)
	c := o.client(false)
	c.token = ""
	if m := c.exchangeRequest(query{path: "/separate", accept: -1, block: -1}, message.Con, message.GET); m.Type != message.Con || string(m.Payload) != "Type: 0 (CON)\nCode: 1 (GET)" {
		t.Errorf("%s %s %q", m.Type, m.Code, m.Payload)
	}
}

// The Echo option of RFC 9175 lifts the limit in one round trip, for its address and for some time only.
func TestEchoProvesTheAddress(t *testing.T) {
	for _, secure := range []bool{false, true} {
		o := newOffline(t, secure, nil)
		c := o.client(secure)
		c.at = o.address()
		plain := query{path: "/", accept: -1, block: -1}
		// A session's record alone is so long that a block always fits: there the value comes from the server's own hand.
		value := echoOf(o, c.at, int64(o.now/echoPeriod))
		if !secure {
			c.mid++
			shortest := plain.build(t, message.Con, message.GET, c.mid, nil)
			answer := c.messages(o.send(shortest, c.at))
			demanded, ok := answer[0].Option(message.Echo)
			if len(shortest) != 4 || len(answer) != 1 || answer[0].Code != message.Unauthorized || !ok || o.got[c.at] != 12 {
				t.Fatalf("%d bytes got %+v, %d bytes", len(shortest), answer, o.got[c.at])
			}
			if !bytes.Equal(demanded, value) {
				t.Errorf("Echo %x, want %x", demanded, value)
			}
		}
		large := query{path: "/benchmark", queries: []string{"rlen=1024"}, accept: -1, block: -1}
		c.deaf = true
		full := func(q query) bool { return len(c.exchangeRequest(q, message.Non, message.GET).Payload) == 1024 }
		if full(large) {
			t.Fatal("a full answer without proof")
		}
		elsewhere := echoOf(o, o.address(), int64(o.now/echoPeriod))
		for _, wrong := range [][]byte{elsewhere, value[:5], append(bytes.Clone(value), 0), []byte("guess!")} {
			with := large
			if with.echo = wrong; full(with) {
				t.Errorf("a full answer for Echo %x", wrong)
			}
		}
		old := large
		old.echo = value
		o.now += 2 * echoPeriod
		if full(old) {
			t.Error("a full answer for an old value")
		}
		fresh := large
		fresh.echo = echoOf(o, c.at, int64((o.now-echoPeriod)/echoPeriod))
		if !full(fresh) || !full(large) {
			t.Error("no full answer for the Echo value")
		}
	}
}

// Answers by guess do not prove a plain address: one hit in 65,536 is not enough, and a miss begins again.
func TestGuessesProveNothing(t *testing.T) {
	o := newOffline(t, false, nil)
	c := o.client(false)
	q := query{path: "/benchmark", queries: []string{"rlen=1024"}, accept: -1, block: -1}
	for round := range 3 {
		c.mid++
		o.send(q.build(t, message.Con, message.GET, c.mid, nil), c.at)
		for guess := range 1 << 16 {
			for _, kind := range []message.Type{message.Ack, message.Rst} {
				o.send(message.AppendEmpty(nil, kind, uint16(guess)), c.at)
			}
		}
		if s := o.engine.Stats(); s.AddressesProven != 0 {
			t.Fatalf("proven by guesses, round %d", round)
		}
	}
	if o.worst > 3 {
		t.Errorf("%.2f times", o.worst)
	}
}

// Sources that cannot be forged are answered in full: loopback, and what the operator trusts.
func TestTrustedSources(t *testing.T) {
	o := newOffline(t, false, func(c *Config) { c.Trusted = []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")} })
	c := o.client(false)
	for address, want := range map[string]bool{
		"127.0.0.1": true, "::1": true, "10.9.1.1": true, "::ffff:10.9.1.1": true, "10.8.1.1": false, "192.168.0.1": false, "203.0.113.1": false, "fd00::1": false,
	} {
		c.at = netip.AddrPortFrom(netip.MustParseAddr(address), 7)
		q := query{path: "/benchmark", queries: []string{"rlen=1024"}, accept: -1, block: -1}
		if got := len(c.exchangeRequest(q, message.Con, message.GET).Payload) == 1024; got != want {
			t.Errorf("%s: full answer %t", address, got)
		}
	}
}
