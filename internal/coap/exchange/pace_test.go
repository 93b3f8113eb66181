package exchange

import (
	"fmt"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
)

// request sends a request of 12 bytes and returns its id.
func (r *fixture) request(kind message.Type, token string, now time.Duration) ID {
	r.t.Helper()
	datagram := append(build(r.t, kind, message.GET, r.NextID(&r.session), token), 0xff)
	for len(datagram) < 12 {
		datagram = append(datagram, '.')
	}
	id, err := r.Send(&r.session, datagram, now)
	if err != nil {
		r.t.Fatal(err)
	}
	return id
}

// run calls Tick when it is due, until end.
func (r *fixture) run(end time.Duration) {
	for {
		due, ok := r.Next()
		if !ok || due > end {
			r.Tick(end)
			return
		}
		r.Tick(max(due, r.now))
	}
}

func (r *fixture) tokens() (all string) {
	r.t.Helper()
	for _, datagram := range r.outbox.sent {
		var m message.Message
		if err := message.Parse(datagram, &m); err != nil {
			r.t.Fatal(err)
		}
		all += string(m.Token)
	}
	return all
}

// RFC 7252 section 4.7: one request to a server is outstanding at a time; the others follow in their order, as soon as it is acknowledged
// or answered, has failed, or was cancelled.
func TestRequestsWaitForTheirTurn(t *testing.T) {
	for name, end := range map[string]func(r *fixture, id ID){
		"answered": func(r *fixture, _ ID) {
			r.receive(build(r.t, message.Non, message.Content, 900, "a"), time.Second)
		},
		"cancelled": func(r *fixture, id ID) { r.Cancel(id) },
		"given up":  func(r *fixture, id ID) { r.GiveUp(id) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newFixture(t, Config{})
			first := r.request(message.Con, "a", 0)
			second, third := r.request(message.Con, "b", 0), r.request(message.Con, "c", 0)
			if r.tokens() != "a" || !r.Waiting(second) || !r.Waiting(third) || r.Waiting(first) || r.Pending() != 3 {
				t.Fatalf("sent %s", r.tokens())
			}
			end(r, first)
			r.run(1500 * time.Millisecond)
			if r.tokens() != "ab" || r.Waiting(second) || !r.Waiting(third) {
				t.Fatalf("after its end: sent %s", r.tokens())
			}
			r.receive(message.AppendEmpty(nil, message.Ack, r.lastMID()), 2*time.Second) // a separate response follows
			r.run(2 * time.Second)
			if r.tokens() != "abc" {
				t.Errorf("after an acknowledgement: sent %s", r.tokens())
			}
			r.Forget(&r.session)
			if r.Pending() != 0 || r.session.outstanding != 0 || r.held != 0 {
				t.Errorf("%d pending, %d outstanding, %d held after all", r.Pending(), r.session.outstanding, r.held)
			}
		})
	}
}

func (r *fixture) lastMID() uint16 {
	last := r.outbox.sent[len(r.outbox.sent)-1]
	return uint16(last[2])<<8 | uint16(last[3])
}

func TestMoreRequestsMayBeOutstanding(t *testing.T) {
	for nstart, want := range map[int]string{2: "ab", -1: "abcd"} {
		r := newFixture(t, Config{NStart: nstart})
		for _, token := range []string{"a", "b", "c", "d"} {
			r.request(message.Con, token, 0)
		}
		if got := r.tokens(); got != want {
			t.Errorf("with %d: %s at once, want %s", nstart, got, want)
		}
	}
}

// RFC 7252 section 4.7: a server that does not respond gets non-confirmable requests at no more than one byte per second on
// average, from the first one on; with its first message that ends.
func TestProbingRate(t *testing.T) {
	r := newFixture(t, Config{ResponseTimeout: 2 * time.Second})
	for i := range 50 {
		r.request(message.Non, fmt.Sprintf("%02d", i), 0)
	}
	r.run(10 * time.Minute)
	if len(r.outbox.sent) != 50 {
		t.Fatalf("%d requests of 50 left within 10 minutes", len(r.outbox.sent))
	}
	bytes := 0
	for i, at := range r.outbox.times {
		if i > 0 && float64(bytes) > at.Seconds()+1e-6 {
			t.Errorf("request %d left after %v, with %d bytes before it", i, at, bytes)
		}
		if want := time.Duration(12*i) * time.Second; at != want {
			t.Errorf("request %d left after %v, want %v", i, at, want)
		}
		bytes += len(r.outbox.sent[i])
	}
	// Three more wait; a message of the server arrives, and they leave one after the other as it answers.
	sent := len(r.outbox.sent)
	now := 10*time.Minute + time.Second
	for _, token := range []string{"x", "y", "z"} {
		r.request(message.Non, token, now)
	}
	r.Tick(now)
	r.receive(message.AppendEmpty(nil, message.Con, 77), now)
	r.run(now)
	for _, token := range []string{"x", "y", "z"} {
		r.receive(build(t, message.Non, message.Content, uint16(token[0]), token), now)
		r.run(now)
	}
	if got := len(r.outbox.sent) - sent; got != 3 {
		t.Errorf("%d of 3 requests left at once to a server that answers", got)
	}
	if r.session.silent || r.session.unanswered != 0 || r.session.outstanding != 0 {
		t.Errorf("%+v", r.session.pace)
	}
}

// A server that answers other messages responds, though one request of it was lost.
func TestALostRequestIsNoSilence(t *testing.T) {
	r := newFixture(t, Config{ResponseTimeout: 2 * time.Second, NStart: -1})
	r.request(message.Non, "a", 0)
	r.request(message.Non, "b", 0)
	r.receive(build(t, message.Non, message.Content, 5, "b"), time.Second)
	r.run(3 * time.Second)
	r.request(message.Non, "c", 3*time.Second)
	if r.tokens() != "abc" {
		t.Errorf("sent %s", r.tokens())
	}
}

// Requests that want no response, pings, and sessions over TCP are not held back.
func TestWhatIsNotPaced(t *testing.T) {
	r := newFixture(t, Config{ResponseTimeout: time.Second})
	r.request(message.Non, "a", 0)
	var b message.Builder
	b.Reset(make([]byte, 0, 64), message.Non, message.PUT, r.NextID(&r.session), []byte("u"))
	b.Option(message.NoResponse, []byte{26})
	datagram, err := b.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Send(&r.session, datagram, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Send(&r.session, message.AppendEmpty(nil, message.Con, r.NextID(&r.session)), 0); err != nil {
		t.Fatal(err)
	}
	if len(r.outbox.sent) != 3 {
		t.Errorf("%d messages left, want 3", len(r.outbox.sent))
	}
	free := newFixture(t, Config{NStart: -1, ProbingRate: -1, ResponseTimeout: time.Second})
	for i := range 5 {
		free.request(message.Non, fmt.Sprint(i), 10*time.Duration(i)*time.Second)
		free.run(10*time.Duration(i)*time.Second + 5*time.Second)
	}
	if free.tokens() != "01234" {
		t.Errorf("without limits: %s", free.tokens())
	}
}
