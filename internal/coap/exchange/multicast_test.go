package exchange

import (
	"fmt"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
)

func multicastFixture(t *testing.T, cfg Config) *fixture {
	cfg.Multicast = func(m *message.Message) bool { return m.Code == message.GET }
	return newFixture(t, cfg)
}

func (r *fixture) multicast(s *Session, in []byte, now time.Duration) {
	r.t.Helper()
	sent := len(r.outbox.sent)
	if r.ReceiveMulticast(s, in, r.out, now); len(r.outbox.sent) != sent {
		r.t.Errorf("an answer left at once")
	}
}

// RFC 7252 section 8.2: answers leave as NON with a message id of the server, at different points of the leisure, each once.
func TestAnswersToAGroupSpreadOverTheLeisure(t *testing.T) {
	r := multicastFixture(t, Config{Seed: 7})
	const clients = 200
	sessions := make([]Session, clients)
	for i := range sessions {
		r.multicast(&sessions[i], build(t, message.Non, message.GET, uint16(i), "tk"), 0)
	}
	if r.executed != clients || len(r.outbox.sent) != 0 || r.Pending() != clients {
		t.Fatalf("%d executed, %d sent, %d wait", r.executed, len(r.outbox.sent), r.Pending())
	}
	var quarters [4]int
	for {
		due, ok := r.Next()
		if !ok {
			break
		}
		r.Tick(due)
	}
	for i, at := range r.outbox.times {
		if at > 5*time.Second {
			t.Errorf("an answer left after %v, behind the leisure", at)
		}
		quarters[min(3, int(at*4/(5*time.Second)))]++
		var m message.Message
		if err := message.Parse(r.outbox.sent[i], &m); err != nil || m.Type != message.Non || m.Code != message.Content || string(m.Token) != "tk" {
			t.Fatalf("answer %x %v", r.outbox.sent[i], err)
		}
	}
	for _, n := range quarters {
		if n < clients/8 {
			t.Errorf("answers of the quarters of the leisure: %v, want about the same", quarters)
		}
	}
	if c := r.Counters(); c.Multicast != clients || c.MulticastAnswers != clients || c.MulticastIgnored != 0 || len(r.outbox.sent) != clients {
		t.Errorf("%+v, %d sent", c, len(r.outbox.sent))
	}
}

func TestLeisureIsComputedFromTheGroup(t *testing.T) {
	l := Leisure{Default: 5 * time.Second}
	if got := l.Of(1000); got != 5*time.Second {
		t.Errorf("without estimates %v", got)
	}
	// The example of RFC 7252 section 8.2: 100 bytes, 100 servers, 8 kbit/s: 10 s.
	l.GroupSize, l.Rate = 100, 1000
	if got := l.Of(100); got != 10*time.Second {
		t.Errorf("the RFC's example: %v, want 10s", got)
	}
	l.GroupSize = 1000000
	if got := l.Of(1000); got != maxLeisure {
		t.Errorf("a large group: %v, want %v", got, maxLeisure)
	}
}

// What gets no answer from a group, and when the client decides (RFC 7967).
func TestAGroupStaysSilent(t *testing.T) {
	withNoResponse := func(mask byte) []byte {
		var b message.Builder
		b.Reset(make([]byte, 0, 64), message.Non, message.GET, 9, []byte("n"))
		b.Option(message.NoResponse, []byte{mask}[:min(1, int(mask))])
		wire, err := b.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		return wire
	}
	failing := func(_ *message.Message, r *Reply) { r.Text(message.NotFound, "no") }
	empty := func(_ *message.Message, r *Reply) { r.Begin(message.Content) }
	for name, c := range map[string]struct {
		in      []byte
		serve   func(*message.Message, *Reply)
		answers uint64
	}{
		"a request":                  {in: build(t, message.Non, message.GET, 1, "a"), answers: 1},
		"confirmable":                {in: build(t, message.Con, message.GET, 1, "a")},
		"ping":                       {in: message.AppendEmpty(nil, message.Con, 1)},
		"reset":                      {in: message.AppendEmpty(nil, message.Rst, 1)},
		"a response":                 {in: build(t, message.Non, message.Content, 1, "a")},
		"another method":             {in: build(t, message.Non, message.POST, 1, "a")},
		"unknown critical option":    {in: build(t, message.Non, message.GET, 1, "a", message.IfMatch)},
		"an error":                   {in: build(t, message.Non, message.GET, 1, "a"), serve: failing},
		"an empty result":            {in: build(t, message.Non, message.GET, 1, "a"), serve: empty},
		"an error that is wanted":    {in: withNoResponse(0), serve: failing, answers: 1},
		"an error that is unwanted":  {in: withNoResponse(8), serve: failing},
		"a result that is unwanted":  {in: withNoResponse(2)},
		"malformed":                  {in: []byte{0x41, 1}},
		"an empty result, asked for": {in: withNoResponse(0), serve: empty, answers: 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := multicastFixture(t, Config{})
			r.journal.serve = c.serve
			r.multicast(&r.session, c.in, 0)
			r.Tick(time.Minute)
			if got := r.Counters().MulticastAnswers; got != c.answers || uint64(len(r.outbox.sent)) != c.answers {
				t.Errorf("%d answers, %d sent, want %d", got, len(r.outbox.sent), c.answers)
			}
			if got := r.Counters(); got.MulticastIgnored+got.MulticastAnswers+got.Malformed != 1 {
				t.Errorf("not counted once: %+v", got)
			}
		})
	}
}

// The same request by two groups, or two interfaces, is one request.
func TestARequestToTwoGroupsIsAnsweredOnce(t *testing.T) {
	r := multicastFixture(t, Config{})
	in := build(t, message.Non, message.GET, 5, "a")
	r.multicast(&r.session, in, 0)
	r.multicast(&r.session, in, time.Millisecond)
	r.Tick(time.Minute)
	if len(r.outbox.sent) != 1 || r.Counters().Duplicates != 1 {
		t.Errorf("%d answers, %+v", len(r.outbox.sent), r.Counters())
	}
}

// The answers that wait are bounded, and others still have their place.
func TestWaitingAnswersToGroupsAreBounded(t *testing.T) {
	r := multicastFixture(t, Config{MaxPending: 64 * 4})
	for i := range 100 {
		r.multicast(new(Session), build(t, message.Non, message.GET, uint16(i), fmt.Sprint(i)), 0)
	}
	if c := r.Counters(); c.MulticastAnswers != 4 || c.MulticastRefused != 96 || r.executed != 4 || r.Pending() != 4 {
		t.Errorf("%+v, %d executed, %d wait", c, r.executed, r.Pending())
	}
	r.Tick(time.Minute)
	r.multicast(new(Session), build(t, message.Non, message.GET, 1, "a"), time.Minute)
	if c := r.Counters(); c.MulticastAnswers != 5 {
		t.Errorf("no place again after the answers left: %+v", c)
	}
	s := new(Session)
	r.multicast(s, build(t, message.Non, message.GET, 2, "a"), time.Minute)
	r.Forget(s)
	if r.pendings.multicast != 1 {
		t.Errorf("%d count as waiting after one session was forgotten", r.pendings.multicast)
	}
}
