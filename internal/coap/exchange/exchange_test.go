package exchange

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
)

// outbox is the Sender of the tests: it keeps what was sent and when.
type outbox struct {
	sent  [][]byte
	times []time.Duration
}

func (o *outbox) SendTo(_ *Session, datagram []byte, now time.Duration) {
	o.sent = append(o.sent, bytes.Clone(datagram))
	o.times = append(o.times, now)
}

// journal is Handler and Events of the tests.
type journal struct {
	serve    func(*message.Message, *Reply)
	executed int
	events   []string
}

func (j *journal) Serve(_ *Session, m *message.Message, r *Reply, _ time.Duration) {
	j.executed++
	if j.serve != nil {
		j.serve(m, r)
		return
	}
	r.Text(message.Content, fmt.Sprintf("execution %d", j.executed))
}

func (j *journal) Response(_ *Session, _ ID, m *message.Message, rtt time.Duration, repeats int) {
	j.events = append(j.events, fmt.Sprintf("%s %s rtt=%s repeats=%d", m.Code, m.Payload, rtt, repeats))
}

func (j *journal) Failed(_ *Session, _ ID, reason Failure) {
	j.events = append(j.events, reason.String())
}

func known(id message.OptionID) bool { return id == message.URIPath || id == message.Accept }

func build(t testing.TB, kind message.Type, code message.Code, mid uint16, token string, options ...message.OptionID) []byte {
	t.Helper()
	var b message.Builder
	b.Reset(make([]byte, 0, 128), kind, code, mid, []byte(token))
	for _, id := range options {
		b.Option(id, []byte("x"))
	}
	wire, err := b.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return wire
}

// show renders a datagram as "ACK 2.05 mid=1 token=ab payload".
func show(t testing.TB, datagram []byte) string {
	t.Helper()
	if len(datagram) == 0 {
		return "nothing"
	}
	var m message.Message
	if err := message.Parse(datagram, &m); err != nil {
		t.Fatalf("reply %x: %v", datagram, err)
	}
	text := fmt.Sprintf("%s %s mid=%d", m.Type, m.Code, m.ID)
	if len(m.Token) > 0 {
		text += " token=" + string(m.Token)
	}
	if len(m.Payload) > 0 {
		text += " " + string(m.Payload)
	}
	return text
}

type fixture struct {
	t testing.TB
	*outbox
	*journal
	*Endpoint
	session Session
	out     []byte
}

func newFixture(t testing.TB, cfg Config) *fixture {
	cfg.Supported = known
	r := &fixture{t: t, outbox: &outbox{}, journal: &journal{}, out: make([]byte, 0, 2048)}
	r.Endpoint = New(cfg, r.outbox, r.journal, r.journal)
	return r
}

func (r *fixture) receive(in []byte, now time.Duration) string {
	r.t.Helper()
	return show(r.t, r.Endpoint.Receive(&r.session, in, r.out, now))
}

func (r *fixture) expect(got, want string) {
	r.t.Helper()
	if got != want {
		r.t.Errorf("got  %s\nwant %s", got, want)
	}
}

// RFC 7252 section 4.2, 4.3, 5.2.1 and 5.4.1: the answers to single datagrams.
func TestAnswers(t *testing.T) {
	for _, c := range []struct {
		name string
		in   []byte
		want string
	}{
		{"confirmable request", build(t, message.Con, message.GET, 1, "ab"), "ACK 2.05 mid=1 token=ab execution 1"},
		{"ping", message.AppendEmpty(nil, message.Con, 2), "RST 0.00 mid=2"},
		{"empty non-confirmable", message.AppendEmpty(nil, message.Non, 2), "nothing"},
		{"unknown critical option, confirmable", build(t, message.Con, message.GET, 3, "ab", 65001), "ACK 4.02 mid=3 token=ab critical option 65001 not supported here"},
		{"unknown critical option, non-confirmable", build(t, message.Non, message.GET, 4, "ab", 65001), "RST 0.00 mid=4"},
		{"unknown elective option", build(t, message.Con, message.GET, 5, "", 65000), "ACK 2.05 mid=5 execution 1"},
		{"malformed confirmable", []byte{0x40, 1, 0, 6, 0xff}, "RST 0.00 mid=6"},
		{"malformed non-confirmable", []byte{0x50, 1, 0, 6, 0xff}, "nothing"},
		{"malformed acknowledgement", []byte{0x60, 1, 0, 6, 0xff}, "nothing"},
		{"token length 15", []byte{0x4f, 1, 0, 7}, "RST 0.00 mid=7"},
		{"version 2", []byte{0x80, 1, 0, 6}, "nothing"},
		{"two bytes", []byte{0x40, 1}, "nothing"},
		{"reserved class, confirmable", []byte{0x40, 0x20, 0, 8}, "RST 0.00 mid=8"},
		{"reserved class, non-confirmable", []byte{0x50, 0xe1, 0, 8}, "nothing"},
		{"request in an acknowledgement", build(t, message.Ack, message.GET, 9, ""), "nothing"},
		{"response that was not requested, confirmable", build(t, message.Con, message.Content, 10, "zz"), "RST 0.00 mid=10"},
		{"response that was not requested, non-confirmable", build(t, message.Non, message.Content, 10, "zz"), "nothing"},
		{"acknowledgement of nothing", message.AppendEmpty(nil, message.Ack, 11), "nothing"},
		{"reset of nothing", message.AppendEmpty(nil, message.Rst, 11), "nothing"},
		{"empty with content", []byte{0x40, 0, 0, 12, 0xff, 1}, "RST 0.00 mid=12"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newFixture(t, Config{})
			r.expect(r.receive(c.in, 0), c.want)
			if len(r.outbox.sent) != 0 {
				t.Errorf("sent %x besides", r.outbox.sent)
			}
		})
	}
}

// RFC 7252 section 4.5: duplicates.
func TestDuplicates(t *testing.T) {
	t.Run("unsafe: same answer, one execution", func(t *testing.T) {
		r := newFixture(t, Config{})
		request := build(t, message.Con, message.POST, 1, "ab")
		want := "ACK 2.05 mid=1 token=ab execution 1"
		r.expect(r.receive(request, 0), want)
		r.expect(r.receive(request, 3*time.Second), want)
		r.expect(r.receive(request, 246*time.Second), want)
		if r.executed != 1 || r.Counters().Duplicates != 2 {
			t.Errorf("%d executions, %+v", r.executed, r.Counters())
		}
		r.expect(r.receive(request, 248*time.Second), "ACK 2.05 mid=1 token=ab execution 2") // EXCHANGE_LIFETIME is over
	})
	t.Run("safe: executed again", func(t *testing.T) {
		r := newFixture(t, Config{})
		request := build(t, message.Con, message.GET, 1, "ab")
		r.expect(r.receive(request, 0), "ACK 2.05 mid=1 token=ab execution 1")
		r.expect(r.receive(request, time.Second), "ACK 2.05 mid=1 token=ab execution 2")
	})
	t.Run("non-confirmable: dropped", func(t *testing.T) {
		r := newFixture(t, Config{})
		request := build(t, message.Non, message.POST, 1, "ab")
		if got := r.receive(request, 0); got == "nothing" {
			t.Error("no answer to the first")
		}
		r.expect(r.receive(request, 144*time.Second), "nothing")
		if r.receive(request, 146*time.Second) == "nothing" {
			t.Error("still dropped after NON_LIFETIME")
		}
	})
	t.Run("other peer, same id", func(t *testing.T) {
		r := newFixture(t, Config{})
		request := build(t, message.Con, message.POST, 1, "ab")
		r.receive(request, 0)
		r.session = Session{}
		r.expect(r.receive(request, 0), "ACK 2.05 mid=1 token=ab execution 2")
	})
	t.Run("ring keeps the newest", func(t *testing.T) {
		r := newFixture(t, Config{})
		for mid := range uint16(Ring + 1) {
			r.receive(build(t, message.Con, message.POST, mid, ""), 0)
		}
		r.receive(build(t, message.Con, message.POST, 1, ""), time.Second) // the oldest remembered
		if r.executed != Ring+1 {
			t.Errorf("%d executions", r.executed)
		}
		r.receive(build(t, message.Con, message.POST, 0, ""), time.Second) // forgotten
		if r.executed != Ring+2 || r.Counters().Overwritten != 2 {
			t.Errorf("%d executions, %+v", r.executed, r.Counters())
		}
	})
	t.Run("answer no longer stored: neither executed nor answered", func(t *testing.T) {
		r := newFixture(t, Config{LogBytes: 64})
		r.receive(build(t, message.Con, message.POST, 1, "ab"), 0)
		r.receive(build(t, message.Con, message.POST, 2, "ab"), 0)
		r.receive(build(t, message.Con, message.POST, 3, "ab"), 0)
		r.expect(r.receive(build(t, message.Con, message.POST, 1, "ab"), time.Second), "nothing")
		if r.executed != 3 || r.Counters().Forgotten != 1 {
			t.Errorf("%d executions, %+v", r.executed, r.Counters())
		}
		r.expect(r.receive(build(t, message.Con, message.POST, 3, "ab"), time.Second), "ACK 2.05 mid=3 token=ab execution 3")
	})
}

// RFC 7252 section 5.2.2: empty acknowledgement, then the response as a confirmable message of its own.
func TestSeparateResponse(t *testing.T) {
	separate := func(_ *message.Message, r *Reply) {
		r.Separate(time.Second)
		r.Text(message.Content, "late")
	}
	t.Run("acknowledged", func(t *testing.T) {
		r := newFixture(t, Config{})
		r.journal.serve = separate
		request := build(t, message.Con, message.POST, 1, "ab")
		r.expect(r.receive(request, 0), "ACK 0.00 mid=1")
		r.expect(r.receive(request, 500*time.Millisecond), "ACK 0.00 mid=1") // duplicate: acknowledged again, not executed
		r.Tick(999 * time.Millisecond)
		if len(r.outbox.sent) != 0 {
			t.Fatal("sent before its time")
		}
		r.Tick(time.Second)
		if len(r.outbox.sent) != 1 {
			t.Fatal("not sent")
		}
		var m message.Message
		if err := message.Parse(r.outbox.sent[0], &m); err != nil || m.Type != message.Con || string(m.Token) != "ab" || string(m.Payload) != "late" || m.ID == 1 {
			t.Fatalf("%s %v", show(t, r.outbox.sent[0]), err)
		}
		r.expect(r.receive(message.AppendEmpty(nil, message.Ack, m.ID), 1100*time.Millisecond), "nothing")
		if due, ok := r.Next(); ok {
			t.Errorf("still pending, due %s", due)
		}
		if r.executed != 1 || r.Counters().Acks != 1 {
			t.Errorf("%d executions, %+v", r.executed, r.Counters())
		}
	})
	t.Run("repeated until acknowledged", func(t *testing.T) {
		r := newFixture(t, Config{})
		r.journal.serve = separate
		r.receive(build(t, message.Con, message.GET, 1, "ab"), 0)
		run(r, 300*time.Second)
		if len(r.outbox.sent) != 5 || r.Counters().Timeouts != 1 || r.Pending() != 0 {
			t.Errorf("%d transmissions, %+v", len(r.outbox.sent), r.Counters())
		}
	})
	t.Run("reset ends it", func(t *testing.T) {
		r := newFixture(t, Config{})
		r.journal.serve = separate
		r.receive(build(t, message.Con, message.GET, 1, "ab"), 0)
		r.Tick(time.Second)
		r.receive(message.AppendEmpty(nil, message.Rst, uint16(r.outbox.sent[0][2])<<8|uint16(r.outbox.sent[0][3])), 2*time.Second)
		if r.Pending() != 0 || r.Counters().Resets != 1 {
			t.Errorf("%d pending, %+v", r.Pending(), r.Counters())
		}
	})
	t.Run("non-confirmable request, non-confirmable response", func(t *testing.T) {
		r := newFixture(t, Config{})
		r.journal.serve = separate
		r.expect(r.receive(build(t, message.Non, message.GET, 1, "ab"), 0), "nothing")
		r.Tick(time.Second)
		if len(r.outbox.sent) != 1 || message.Type(r.outbox.sent[0][0]>>4&3) != message.Non || r.Pending() != 0 {
			t.Errorf("%x, %d pending", r.outbox.sent, r.Pending())
		}
	})
	t.Run("table full: at once, and once", func(t *testing.T) {
		r := newFixture(t, Config{MaxPending: 1})
		r.journal.serve = separate
		r.expect(r.receive(build(t, message.Con, message.POST, 1, "a"), 0), "ACK 0.00 mid=1")
		for i := range 3 { // the first one and its repetitions
			r.expect(r.receive(build(t, message.Con, message.POST, 2, "b"), time.Duration(i)), "ACK 2.05 mid=2 token=b late")
		}
		if r.executed != 2 || r.Counters().PendingFull != 1 || r.Counters().Separate != 1 {
			t.Errorf("%d executions, %+v", r.executed, r.Counters())
		}
		r.Tick(time.Second)
		r.receive(message.AppendEmpty(nil, message.Ack, uint16(r.outbox.sent[0][2])<<8|uint16(r.outbox.sent[0][3])), time.Second)
		r.expect(r.receive(build(t, message.Con, message.POST, 3, "c"), 2*time.Second), "ACK 0.00 mid=3")
	})
}

// Addresses that may be forged take half of the table at most, and what is sent to them fits with its acknowledgement.
func TestUnprovenSeparateResponses(t *testing.T) {
	r := newFixture(t, Config{MaxPending: 8})
	unproven := true
	r.journal.serve = func(_ *message.Message, reply *Reply) {
		if unproven {
			reply.Unproven(5)
		}
		reply.Separate(time.Second)
		reply.Begin(message.Content).Payload([]byte("late"))
	}
	var sessions [20]Session
	newRequest := func(i int) string {
		return show(t, r.Endpoint.Receive(&sessions[i], build(t, message.Con, message.POST, 1, "a"), r.out, 0))
	}
	for i := range 10 {
		want := "ACK 0.00 mid=1"
		if i >= 4 {
			want = "ACK 2.05 mid=1 token=a late"
		}
		r.expect(newRequest(i), want)
	}
	unproven = false
	for i := 10; i < 14; i++ {
		r.expect(newRequest(i), "ACK 0.00 mid=1")
	}
	run(r, 300*time.Second)
	if r.pendings.unproven != 0 || r.Pending() != 0 {
		t.Errorf("%d of the share taken, although nothing is pending", r.pendings.unproven)
	}
	// 4 + 1 + 1 + 4 bytes, and 5 for the acknowledgement.
	unproven = true
	for room, want := range map[int]string{15: "ACK 0.00 mid=1", 14: "ACK 0.00 mid=1"} {
		r.outbox.sent = nil
		r.expect(show(t, r.Endpoint.Receive(new(Session), build(t, message.Con, message.POST, 1, "a"), make([]byte, 0, room), 0)), want)
		r.Tick(time.Second)
		if code := message.Code(r.outbox.sent[0][1]); (code == message.Content) != (room == 15) {
			t.Errorf("%d bytes of room: %s", room, code)
		}
	}
}

// A critical option is refused in whatever room there is.
func TestBadOptionInLittleRoom(t *testing.T) {
	r := newFixture(t, Config{})
	var b message.Builder
	b.Reset(make([]byte, 0, 64), message.Con, message.GET, 7, []byte("a"))
	b.Option(9, []byte("x"))
	request, err := b.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	if got := show(t, r.Endpoint.Receive(new(Session), request, make([]byte, 0, 3*len(request)), 0)); got != "ACK 4.02 mid=7 token=a" {
		t.Error(got)
	}
}

// One peer cannot fill the table, nor make the search in its own list long.
func TestSeparateResponsesOfOneSession(t *testing.T) {
	r := newFixture(t, Config{})
	r.journal.serve = func(_ *message.Message, reply *Reply) {
		reply.Separate(time.Second)
		reply.Text(message.Content, "late")
	}
	for i := range uint16(1000) {
		want := "ACK 0.00 mid=" + fmt.Sprint(i)
		if i >= PerSession {
			want = fmt.Sprintf("ACK 2.05 mid=%d token=ab late", i)
		}
		r.expect(r.receive(build(t, message.Con, message.POST, i, "ab"), 0), want)
	}
	if r.Pending() != PerSession || r.Counters().PendingFull != 1000-PerSession {
		t.Errorf("%d pending, %+v", r.Pending(), r.Counters())
	}
	var other Session
	if got := show(t, r.Endpoint.Receive(&other, build(t, message.Con, message.POST, 1, "ab"), r.out, 0)); got != "ACK 0.00 mid=1" {
		t.Errorf("another session gets %s", got)
	}
	// As they end there is room again.
	run(r, 300*time.Second)
	r.expect(r.receive(build(t, message.Con, message.POST, 2000, "ab"), 300*time.Second), "ACK 0.00 mid=2000")
}

// Reply.Probe: the id cannot be guessed from others, only its reset proves the address, and there is one at a time.
func TestProbe(t *testing.T) {
	proofs, inRow := 0, uint8(0)
	r := newFixture(t, Config{Proven: func(s *Session) { proofs, inRow = proofs+1, s.Proofs }})
	r.journal.serve = func(_ *message.Message, reply *Reply) {
		reply.Probe()
		reply.Text(message.Content, "small")
	}
	newRequest := func(id uint16, now time.Duration) (probe []byte) {
		r.outbox.sent = nil
		r.expect(r.receive(build(t, message.Con, message.GET, id, "ab"), now), fmt.Sprintf("ACK 2.05 mid=%d token=ab small", id))
		r.Tick(now)
		if len(r.outbox.sent) == 0 {
			return nil
		}
		return r.outbox.sent[len(r.outbox.sent)-1]
	}
	previous, sequential := uint16(0), 0
	for i := range uint16(20) {
		now := time.Duration(i) * time.Second
		probe := newRequest(i, now)
		if len(probe) != 4 || probe[0] != 0x40 || probe[1] != 0 || newRequest(100+i, now) != nil {
			t.Fatalf("probe %x, or two at a time", probe)
		}
		mid := uint16(probe[2])<<8 | uint16(probe[3])
		if mid == previous+1 {
			sequential++
		}
		previous = mid
		if i%2 == 0 { // a guess, which begins the count again
			r.receive(message.AppendEmpty(nil, message.Rst, mid+1), now)
		}
		r.receive(message.AppendEmpty(nil, message.Ack, mid), now) // a ping is not acknowledged
		if proofs != int(i) {
			t.Fatalf("%d proofs after a wrong answer", proofs)
		}
		r.receive(message.AppendEmpty(nil, message.Rst, mid), now)
		if proofs != int(i)+1 || inRow != 1 || r.Pending() != 0 {
			t.Fatalf("%d proofs, %d in a row, %d pending", proofs, inRow, r.Pending())
		}
	}
	if sequential > 2 {
		t.Errorf("%d of 20 ids follow the one before", sequential)
	}
	// Without wrong answers in between they count up; a probe that gets lost is not repeated, and makes room for the next.
	r.Tick(time.Hour)
	for i := range uint16(3) {
		probe := newRequest(200+i, time.Hour)
		r.receive(message.AppendEmpty(nil, message.Rst, uint16(probe[2])<<8|uint16(probe[3])), time.Hour)
	}
	if inRow != 4 {
		t.Errorf("%d in a row", inRow)
	}
	if newRequest(300, time.Hour) == nil {
		t.Error("no probe")
	}
	r.outbox.sent = nil
	run(r, 2*time.Hour)
	if len(r.outbox.sent) != 0 || r.Pending() != 0 || newRequest(301, 2*time.Hour) == nil {
		t.Errorf("%d repetitions, %d pending", len(r.outbox.sent), r.Pending())
	}
}

// run ticks r at its own due times until nothing is due before end.
func run(r *fixture, end time.Duration) {
	for due, ok := r.Next(); ok && due <= end; due, ok = r.Next() {
		r.Tick(due)
	}
}

// RFC 7252 section 4.2: exponential back-off from a random first time-out, MAX_RETRANSMIT repetitions, then giving up.
func TestBackOff(t *testing.T) {
	firsts := map[time.Duration]bool{}
	for seed := range uint64(50) {
		r := newFixture(t, Config{Seed: seed})
		request := build(t, message.Con, message.GET, r.NextID(&r.session), "ab")
		if _, err := r.Send(&r.session, request, 10*time.Second); err != nil {
			t.Fatal(err)
		}
		run(r, time.Hour)
		if len(r.outbox.sent) != 5 {
			t.Fatalf("%d transmissions, want 1 and 4 repetitions", len(r.outbox.sent))
		}
		first := r.times[1] - r.times[0]
		if first < 2*time.Second || first > 3*time.Second {
			t.Errorf("first time-out %s is not between 2 and 3 s", first)
		}
		for i := 2; i < 5; i++ {
			if gap := r.times[i] - r.times[i-1]; gap != first<<(i-1) {
				t.Errorf("repetition %d after %s, want %s", i, gap, first<<(i-1))
			}
			if !bytes.Equal(r.outbox.sent[i], request) {
				t.Error("a repetition differs from the first transmission")
			}
		}
		if !slices.Equal(r.journal.events, []string{"timeout"}) {
			t.Errorf("events %q", r.journal.events)
		}
		firsts[first] = true
	}
	if len(firsts) < 40 {
		t.Errorf("only %d different first time-outs in 50 seeds", len(firsts))
	}
}

// The client's side of every kind of answer.
func TestRequests(t *testing.T) {
	const at = time.Second
	for _, c := range []struct {
		name   string
		answer func(mid uint16) []byte
		reply  string
		event  string
	}{
		{"piggybacked", func(mid uint16) []byte { return build(t, message.Ack, message.Content, mid, "ab") }, "nothing", "2.05  rtt=1s repeats=0"},
		{"separate, acknowledgement lost", func(uint16) []byte { return build(t, message.Con, message.Content, 7, "ab") }, "ACK 0.00 mid=7", "2.05  rtt=1s repeats=0"},
		{"non-confirmable response", func(uint16) []byte { return build(t, message.Non, message.Content, 7, "ab") }, "nothing", "2.05  rtt=1s repeats=0"},
		{"reset", func(mid uint16) []byte { return message.AppendEmpty(nil, message.Rst, mid) }, "nothing", "rejected by reset"},
		{"other token", func(mid uint16) []byte { return build(t, message.Ack, message.Content, mid, "xx") }, "nothing", ""},
		{"other id", func(mid uint16) []byte { return build(t, message.Ack, message.Content, mid+1, "ab") }, "nothing", ""},
		{"unknown critical option", func(mid uint16) []byte { return build(t, message.Ack, message.Content, mid, "ab", 65001) }, "nothing", "rejected by reset"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newFixture(t, Config{})
			mid := r.NextID(&r.session)
			if _, err := r.Send(&r.session, build(t, message.Con, message.GET, mid, "ab"), 0); err != nil {
				t.Fatal(err)
			}
			r.expect(r.receive(c.answer(mid), at), c.reply)
			r.expect(fmt.Sprint(r.journal.events), fmt.Sprint(slices.DeleteFunc([]string{c.event}, func(s string) bool { return s == "" })))
		})
	}
	t.Run("empty acknowledgement stops repetition, response by its own message once", func(t *testing.T) {
		r := newFixture(t, Config{})
		mid := r.NextID(&r.session)
		_, _ = r.Send(&r.session, build(t, message.Con, message.GET, mid, "ab"), 0)
		r.receive(message.AppendEmpty(nil, message.Ack, mid), at)
		run(r, 60*time.Second)
		if len(r.outbox.sent) != 1 {
			t.Fatalf("%d transmissions after the acknowledgement", len(r.outbox.sent))
		}
		response := build(t, message.Con, message.Content, 99, "ab")
		r.expect(r.receive(response, 61*time.Second), "ACK 0.00 mid=99")
		r.expect(r.receive(response, 62*time.Second), "ACK 0.00 mid=99") // our acknowledgement was lost
		r.expect(fmt.Sprint(r.journal.events), "[2.05  rtt=1m1s repeats=0]")
	})
	t.Run("acknowledged and never answered", func(t *testing.T) {
		r := newFixture(t, Config{ResponseTimeout: 20 * time.Second})
		mid := r.NextID(&r.session)
		_, _ = r.Send(&r.session, build(t, message.Con, message.GET, mid, "ab"), 0)
		r.receive(message.AppendEmpty(nil, message.Ack, mid), at)
		run(r, 21*time.Second)
		r.expect(fmt.Sprint(r.journal.events), "[timeout]")
	})
	t.Run("ping", func(t *testing.T) {
		r := newFixture(t, Config{})
		mid := r.NextID(&r.session)
		_, err := r.Send(&r.session, message.AppendEmpty(nil, message.Con, mid), 0)
		if err != nil {
			t.Fatal(err)
		}
		r.receive(message.AppendEmpty(nil, message.Rst, mid), at)
		r.expect(fmt.Sprint(r.journal.events), "[rejected by reset]")
	})
	t.Run("closing the session", func(t *testing.T) {
		r := newFixture(t, Config{})
		for i := range 5 {
			_, _ = r.Send(&r.session, build(t, message.Con, message.GET, r.NextID(&r.session), fmt.Sprint(i)), 0)
		}
		r.Forget(&r.session)
		if len(r.journal.events) != 5 || r.Pending() != 0 {
			t.Errorf("%q, %d pending", r.journal.events, r.Pending())
		}
	})
	t.Run("not a request", func(t *testing.T) {
		r := newFixture(t, Config{})
		for _, bad := range [][]byte{nil, build(t, message.Con, message.Content, 1, "a"), message.AppendEmpty(nil, message.Rst, 1), message.AppendEmpty(nil, message.Non, 1)} {
			if _, err := r.Send(&r.session, bad, 0); err != ErrMessage {
				t.Errorf("%x: %v", bad, err)
			}
		}
	})
}

// A buffer too small for any answer is no reason to fall over.
func TestNoRoom(t *testing.T) {
	r := newFixture(t, Config{})
	for _, kind := range []message.Type{message.Con, message.Non} {
		if out := r.Endpoint.Receive(&r.session, build(t, kind, message.POST, 1, "token"), make([]byte, 0, 6), 0); len(out) != 0 {
			t.Errorf("%s: %x", kind, out)
		}
	}
}

func TestSilentAndMissingReply(t *testing.T) {
	r := newFixture(t, Config{})
	r.journal.serve = func(_ *message.Message, reply *Reply) { reply.Silent() }
	r.expect(r.receive(build(t, message.Con, message.POST, 1, "a"), 0), "ACK 0.00 mid=1")
	r.expect(r.receive(build(t, message.Non, message.POST, 2, "a"), 0), "nothing")
	r.journal.serve = func(*message.Message, *Reply) {}
	r.expect(r.receive(build(t, message.Con, message.POST, 3, "a"), 0), "ACK 5.00 mid=3 token=a")
	r.journal.serve = func(_ *message.Message, reply *Reply) {
		reply.Begin(message.Content).Payload(make([]byte, 5000)) // more than the buffer has
	}
	r.expect(r.receive(build(t, message.Con, message.POST, 4, "a"), 0), "ACK 5.00 mid=4 token=a")
}

func TestNoAllocation(t *testing.T) {
	r := newFixture(t, Config{})
	payload := bytes.Repeat([]byte("*"), 64)
	r.journal.serve = func(_ *message.Message, reply *Reply) { reply.Begin(message.Changed).Payload(payload) }
	request := build(t, message.Con, message.POST, 1, "abcd", message.URIPath)
	r.Receive(&r.session, request, r.out, 0)
	mid := uint16(1)
	if n := testing.AllocsPerRun(500, func() {
		mid++
		setMID(request, mid)
		if len(r.Receive(&r.session, request, r.out, time.Duration(mid)*time.Millisecond)) == 0 {
			t.Fatal("no answer")
		}
	}); n != 0 {
		t.Errorf("%v allocations per request", n)
	}
}

func BenchmarkReceive(b *testing.B) {
	r := newFixture(b, Config{})
	payload := bytes.Repeat([]byte("*"), 64)
	r.journal.serve = func(_ *message.Message, reply *Reply) { reply.Begin(message.Changed).Payload(payload) }
	request := build(b, message.Con, message.POST, 1, "abcd", message.URIPath)
	b.ReportAllocs()
	mid, now := uint16(0), time.Duration(0)
	for b.Loop() {
		mid++
		now += 10 * time.Microsecond
		setMID(request, mid)
		r.Receive(&r.session, request, r.out, now)
	}
}
