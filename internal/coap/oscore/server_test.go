package oscore

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/coap/exchange"
	"github.com/weir-lb/weir/internal/coap/message"
)

// fixture is a Server in front of a handler, behind an endpoint in virtual time, and its client.
type fixture struct {
	*pair
	server   *Server
	session  exchange.Session
	endpoint *exchange.Endpoint
	serve    func(m *message.Message, reply *exchange.Reply) // the handler
	served   int
	peers    map[uint64]bool // of the requests
	echo     string          // the value of Echo that counts as fresh
	mid      uint16
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{pair: newPair(t, &withSalt), peers: map[uint64]bool{}, echo: "fresh"}
	f.serve = func(m *message.Message, reply *exchange.Reply) { reply.Text(message.Content, "for "+string(m.Payload)) }
	f.server = NewServer(ServerConfig{
		Contexts: f.table, Handler: f,
		Supported: func(id message.OptionID) bool { return id == message.URIPath || id == message.Observe },
		Echo:      func(*exchange.Session, time.Duration) []byte { return []byte(f.echo) },
		Echoed:    func(_ *exchange.Session, value []byte, _ time.Duration) bool { return string(value) == f.echo },
	})
	f.endpoint = exchange.New(exchange.Config{Supported: func(id message.OptionID) bool { return id == message.ProxyScheme || f.server.Supported(id) }}, f, f.server, nil)
	return f
}

// SendTo implements exchange.Sender.
func (f *fixture) SendTo(*exchange.Session, []byte, time.Duration) {
	f.t.Error("a message outside of an answer")
}

// Serve implements exchange.Handler.
func (f *fixture) Serve(_ *exchange.Session, m *message.Message, reply *exchange.Reply, _ time.Duration) {
	f.served++
	if p := reply.Protection(); p != nil {
		f.peers[p.Peer()] = true
	}
	f.serve(m, reply)
}

// request returns a confirmable request with a message id of its own.
func (f *fixture) request(payload string, options ...any) []byte {
	f.t.Helper()
	wire := built(f.t, message.POST, payload, options...)
	f.mid++
	wire[2], wire[3] = byte(f.mid>>8), byte(f.mid)
	return wire
}

// send gives a datagram to the endpoint and returns its answer; nil: none.
func (f *fixture) send(datagram []byte) []byte {
	f.t.Helper()
	return bytes.Clone(f.endpoint.Receive(&f.session, datagram, make([]byte, 0, 1280), time.Second))
}

// exchange seals a request, sends it and opens the answer.
func (f *fixture) exchange(payload string, options ...any) *message.Message {
	f.t.Helper()
	sealed, b := f.seal(f.request(payload, options...))
	plain, err := f.openResponse(f.send(sealed), b)
	if err != nil {
		f.t.Fatal(err)
	}
	return parsed(f.t, plain)
}

func parsed(t testing.TB, datagram []byte) *message.Message {
	t.Helper()
	m := new(message.Message)
	if err := message.Parse(datagram, m); err != nil {
		t.Fatalf("%x: %v", datagram, err)
	}
	return m
}

// shows reports whether a message has a code and a payload.
func shows(t *testing.T, what string, m *message.Message, code message.Code, payload string) {
	t.Helper()
	if m.Code != code || string(m.Payload) != payload {
		t.Errorf("%s: %s %q, want %s %q", what, m.Code, m.Payload, code, payload)
	}
}

// The handler sees the request as it was before, and its answer is protected; what is not protected passes.
func TestServerOpensAndProtects(t *testing.T) {
	f := newFixture(t)
	f.serve = func(m *message.Message, reply *exchange.Reply) {
		path, _ := m.Option(message.URIPath)
		if _, protected := m.Option(message.OSCORE); protected || m.Code != message.POST || string(path) != "x" {
			t.Errorf("the handler got %s of %q", m.Code, path)
		}
		reply.Text(message.Content, "for "+string(m.Payload))
	}
	shows(t, "protected", f.exchange("me", message.URIPath, "x"), message.Content, "for me")
	if len(f.peers) != 1 || !f.peers[f.table.Contexts()[0].number] {
		t.Errorf("peers %v", f.peers)
	}
	if c := f.server.protection.Context(); c != f.table.Contexts()[0] {
		t.Errorf("context %v", c)
	}
	shows(t, "not protected", parsed(t, f.send(f.request("you", message.URIPath, "x"))), message.Content, "for you")
	if len(f.peers) != 1 {
		t.Errorf("an unprotected request has a peer: %v", f.peers)
	}
	if got := f.server.Counters(); f.served != 2 || got != (Counters{Requests: 1}) {
		t.Errorf("%d served, %+v", f.served, got)
	}
}

// Each refusal has the code and the text of RFC 8613 section 8.2, Max-Age 0, its counter, and does not reach the handler.
func TestServerRefuses(t *testing.T) {
	f := newFixture(t)
	once, _ := f.seal(f.request("once", message.URIPath, "x"))
	f.send(once)
	again := bytes.Clone(once)
	f.mid++
	again[3] = byte(f.mid) // else the stored answer comes
	forged, _ := f.seal(f.request("forged", message.URIPath, "x"))
	forged[len(forged)-1] ^= 1
	for _, c := range []struct {
		what    string
		request []byte
		code    message.Code
		text    string
		count   Counters
	}{
		{"an option with a reserved bit", f.request("0123456789", message.OSCORE, "\x89\x01"), message.BadOption, "Failed to decode COSE", Counters{Requests: 1, Malformed: 1}},
		{"no Partial IV", f.request("0123456789", message.OSCORE, "\x08"), message.BadOption, "Failed to decode COSE", Counters{Requests: 1, Malformed: 2}},
		{"no kid", f.request("0123456789", message.OSCORE, "\x01\x05"), message.BadOption, "Failed to decode COSE", Counters{Requests: 1, Malformed: 3}},
		{"no room for a tag", f.request("01234567", message.OSCORE, "\x09\x05"), message.BadOption, "Failed to decode COSE", Counters{Requests: 1, Malformed: 4}},
		{"an unknown kid", f.request("0123456789", message.OSCORE, "\x09\x05other"), message.Unauthorized, "Security context not found", Counters{Requests: 1, Malformed: 4, Unknown: 1}},
		{"a replay", again, message.Unauthorized, "Replay detected", Counters{Requests: 1, Malformed: 4, Unknown: 1, Replays: 1}},
		{"a changed byte", forged, message.BadRequest, "Decryption failed", Counters{Requests: 1, Malformed: 4, Unknown: 1, Replays: 1, Forged: 1}},
	} {
		m := parsed(t, f.send(c.request))
		shows(t, c.what, m, c.code, c.text)
		if age, ok := m.Uint(message.MaxAge); !ok || age != 0 {
			t.Errorf("%s: Max-Age %d, %v", c.what, age, ok)
		}
		if got := f.server.Counters(); got != c.count {
			t.Errorf("%s: %+v, want %+v", c.what, got, c.count)
		}
	}
	if f.served != 1 {
		t.Errorf("%d requests reached the handler", f.served)
	}
}

// After a restart a request is executed only with the Echo value of the challenge, which is protected (Appendix B.1.2).
func TestServerChallengesAfterARestart(t *testing.T) {
	f := newFixture(t)
	f.table.Contexts()[0].lost = true
	for _, echo := range []string{"", "stale"} {
		var options []any
		if echo != "" {
			options = []any{message.Echo, echo}
		}
		m := f.exchange("first", options...)
		if value, _ := m.Option(message.Echo); m.Code != message.Unauthorized || string(value) != "fresh" {
			t.Errorf("with Echo %q: %s with Echo %q", echo, m.Code, value)
		}
	}
	if f.served != 0 || !f.table.Contexts()[0].Lost() {
		t.Errorf("%d served before the proof", f.served)
	}
	shows(t, "with the Echo of the challenge", f.exchange("second", message.Echo, "fresh"), message.Content, "for second")
	shows(t, "the next request", f.exchange("third"), message.Content, "for third")
	shows(t, "one with an Echo that is not needed any more", f.exchange("fourth", message.Echo, "fresh"), message.Content, "for fourth")
	if got := f.server.Counters(); f.served != 3 || got != (Counters{Requests: 3, Challenges: 2}) || f.table.Contexts()[0].Lost() {
		t.Errorf("%d served, %+v", f.served, got)
	}
	if got := f.table.Contexts()[0].Expected(); got != 5 {
		t.Errorf("the next sequence number expected is %d, want 5", got)
	}
}

// A client that has lost its context agrees on a new one (Appendix B.2): its first request is answered 4.01, protected, and does not
// reach the handler; the second one does, as the same peer for the new context only, and each is counted once.
func TestServerRenews(t *testing.T) {
	f := newFixture(t)
	r := newRenewing(t)
	f.server.cfg.Contexts, f.codec = r.table, r.codec
	id1 := []byte("firstID1")
	first, own := r.seal(r.context(id1), bstr(id1))
	for round := range uint64(2) { // the same request again: another R2, and nothing is executed
		answer := f.send(withID(first, byte(round)))
		o := optionOf(t, answer)
		if len(o.KIDContext) != kidContextR2 {
			t.Fatalf("option with a kid context of %d bytes", len(o.KIDContext))
		}
		if got := f.server.Counters(); f.served != 0 || got != (Counters{Renewals: round + 1}) {
			t.Fatalf("%d served, %+v", f.served, got)
		}
		verify := r.context(o.KIDContext[1:], id1)
		verify.iv = own.context.iv // the nonce is that of the request
		plain, err := f.openResponse(answer, &Binding{context: verify, kid: own.kid, kids: own.kids, piv: own.piv, pivs: own.pivs})
		if err != nil {
			t.Fatal(err)
		}
		shows(t, "response 1", parsed(t, plain), message.Unauthorized, "")
		id := append(bytes.Clone(o.KIDContext[1:]), "randomR3"...)
		second, b := r.seal(r.context(id), bstr(id))
		if plain, err = f.openResponse(f.send(withID(second, byte(10+round))), b); err != nil {
			t.Fatal(err)
		}
		shows(t, "response 2", parsed(t, plain), message.Content, "for ")
		f.served = 0
		f.server.counters.Requests = 0
	}
	if len(f.peers) != 2 || f.peers[r.server.number] {
		t.Errorf("peers %v, want one for each new context", f.peers)
	}
}

// withID returns a datagram with another message id, since the endpoint answers a repeated one with the stored answer.
func withID(datagram []byte, id byte) []byte {
	datagram = bytes.Clone(datagram)
	datagram[2], datagram[3] = 1, id
	return datagram
}

// optionOf returns the OSCORE option of a message.
func optionOf(t *testing.T, datagram []byte) Option {
	t.Helper()
	value, _ := parsed(t, datagram).Option(message.OSCORE)
	o, ok := ParseOption(value)
	if !ok {
		t.Fatalf("option %x", value)
	}
	return o
}

// Critical options inside are judged by what the handler supports; the answer says so, protected.
func TestServerRefusesCriticalOptions(t *testing.T) {
	f := newFixture(t)
	shows(t, "an unknown critical option", f.exchange("x", message.OptionID(65001), "?"), message.BadOption, "critical option 65001 not supported here")
	shows(t, "a proxy's scheme", f.exchange("x", message.ProxyScheme, "coap"), message.ProxyingNotSupported, "critical option 39 not supported here")
	if f.served != 0 {
		t.Errorf("%d served", f.served)
	}
	for id, want := range map[message.OptionID]bool{message.OSCORE: true, message.URIPath: true, message.IfMatch: false} {
		if f.server.Supported(id) != want {
			t.Errorf("%s is supported: %v", id, !want)
		}
	}
}

// A handler without an answer, one whose answer does not fit, and one that the client does not want.
func TestServerAnswersThatAreMissing(t *testing.T) {
	f := newFixture(t)
	f.serve = func(*message.Message, *exchange.Reply) {}
	shows(t, "no answer", f.exchange("x"), message.InternalServerError, "")
	f.serve = func(_ *message.Message, reply *exchange.Reply) {
		reply.Begin(message.Content).Payload(make([]byte, reply.Room()))
	}
	shows(t, "an answer that does not fit", f.exchange("x"), message.InternalServerError, "")
	f.serve = func(_ *message.Message, reply *exchange.Reply) {
		b := reply.Begin(message.Content)
		b.Payload(make([]byte, b.Room()))
	}
	if m := f.exchange("x"); m.Code != message.Content || len(m.Payload) < 1200 {
		t.Errorf("an answer that fits: %s, %d bytes", m.Code, len(m.Payload))
	}
	f.serve = func(_ *message.Message, reply *exchange.Reply) { reply.Text(message.Content, "unwanted") }
	sealed, _ := f.seal(f.request("x", message.NoResponse, 2))
	if answer := f.send(sealed); len(answer) != 4 || answer[1] != 0 {
		t.Errorf("No-Response got %x, want an empty acknowledgement", answer)
	}
	shows(t, "a No-Response of errors", f.exchange("x", message.NoResponse, 8), message.Content, "unwanted")
	if got := f.server.Counters(); got != (Counters{Requests: 5}) {
		t.Errorf("%+v", got)
	}
}

// An answer that cannot be protected, for want of a sequence number, is not sent and counted.
func TestServerSendsNothingUnprotected(t *testing.T) {
	f := newFixture(t)
	context := f.table.Contexts()[0]
	context.lost, context.next = true, maxSequence+1
	sealed, _ := f.seal(f.request("x"))
	if answer := f.send(sealed); len(answer) > 4 {
		t.Errorf("answer %x without a number to protect it", answer)
	}
	if got := f.server.Counters(); got != (Counters{Challenges: 1, Unsent: 1}) {
		t.Errorf("%+v", got)
	}
}

// What is kept of a request protects later answers with numbers of their own, and leaves the nonce of the request to the first one.
func TestProtectionOutlivesTheRequest(t *testing.T) {
	f := newFixture(t)
	var kept exchange.Protection
	f.serve = func(_ *message.Message, reply *exchange.Reply) {
		kept = reply.Protection().Keep()
		reply.Begin(message.Content).Uint(message.Observe, 1)
	}
	sealed, b := f.seal(f.request("", message.Observe, 0, message.URIPath, "x"))
	first := f.send(sealed)
	second := bytes.Clone(kept.Protect(built(t, message.Content, "second", message.Observe, 2)))
	third := bytes.Clone(kept.Protect(built(t, message.Content, "third", message.Observe, 3)))
	for i, n := range [][]byte{first, second, third} {
		plain, err := f.openResponse(n, b)
		if err != nil {
			t.Fatalf("answer %d: %v", i, err)
		}
		want := []string{"", "second", "third"}[i]
		if m := parsed(t, plain); string(m.Payload) != want {
			t.Errorf("answer %d: %q", i, m.Payload)
		}
	}
	if kept.Peer() != f.table.Contexts()[0].number {
		t.Errorf("peer %d", kept.Peer())
	}
	if got := kept.Protect([]byte("no message")); got != nil || f.server.Counters().Unsent != 1 {
		t.Errorf("%x, %d unsent", got, f.server.Counters().Unsent)
	}
}

// A Client protects requests and opens answers of a Server; what is not protected is named, and an old notification is none.
func TestClient(t *testing.T) {
	f := newFixture(t)
	c := NewClient(f.client, 1280)
	f.serve = func(m *message.Message, reply *exchange.Reply) {
		b := reply.Begin(message.Content)
		if _, observes := m.Option(message.Observe); observes {
			b.Uint(message.Observe, 7)
		}
		b.Payload(bytes.Repeat([]byte("x"), 1000))
	}
	sealed, open, err := c.Protect(f.request(strings.Repeat("y", 1000), message.URIPath, "x"))
	if err != nil {
		t.Fatal(err)
	}
	answer := f.send(sealed)
	plain, err := open(answer)
	if err != nil || len(parsed(t, plain).Payload) != 1000 {
		t.Errorf("%v, %d bytes", err, len(plain))
	}
	if plain, err = open(built(t, message.NotFound, "go away")); plain != nil || err == nil || !strings.Contains(err.Error(), `so anybody may have sent it: 4.04 NOT FOUND "go away"`) {
		t.Errorf("unprotected: %v", err)
	}
	if plain, err = open([]byte("no message")); plain != nil || err == nil {
		t.Errorf("no message: %x, %v", plain, err)
	}
	answer[len(answer)-1] ^= 1
	if plain, err = open(answer); len(plain) != 0 || err == nil {
		t.Errorf("changed: %x, %v", plain, err)
	}
	sealed, open, err = c.Protect(f.request("", message.Observe, 0, message.URIPath, "x"))
	if err != nil {
		t.Fatal(err)
	}
	answer = f.send(sealed)
	if plain, err = open(answer); err != nil || len(plain) == 0 {
		t.Errorf("the first notification: %v", err)
	}
	if plain, err = open(answer); err != nil || plain != nil {
		t.Errorf("the same notification again: %x, %v", plain, err)
	}
	if _, _, err := c.Protect(built(t, message.Content, "a response")); err == nil {
		t.Error("a response was protected as a request")
	}
}
