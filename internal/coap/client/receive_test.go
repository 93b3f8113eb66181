package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/coap/stream"
)

func history(start int64, whole bool, ids ...int) *History {
	h := &History{Start: start, Whole: whole}
	for _, id := range ids {
		h.Requests = append(h.Requests, HistoryEntry{ID: fmt.Sprintf("RID%013d", id)})
	}
	return h
}

func TestLedger(t *testing.T) {
	at := time.Unix(1_000_000, 0)
	id := func(n int) string { return fmt.Sprintf("RID%013d", n) }
	for _, test := range []struct {
		name string
		run  func(l *Ledger)
		want ReceiveCounts
	}{
		{"lost on the way there", func(l *Ledger) {
			l.Send(id(1), at)
			l.Send(id(2), at)
			l.Answer(id(2), time.Millisecond, history(7, true, 2))
			l.Fail(id(1))
		}, ReceiveCounts{Sent: 2, Answered: 1, LostRequests: 1}},
		{"lost on the way back", func(l *Ledger) {
			l.Send(id(1), at)
			l.Fail(id(1))
			l.Send(id(2), at)
			l.Answer(id(2), time.Millisecond, history(7, true, 2, 1))
		}, ReceiveCounts{Sent: 2, Answered: 1, LostResponses: 1}},
		{"late on the way there", func(l *Ledger) {
			l.Send(id(1), at)
			l.Send(id(2), at)
			l.Send(id(3), at)
			l.Answer(id(2), time.Millisecond, history(7, true, 2))
			l.Answer(id(3), time.Millisecond, history(7, true, 3, 1, 2))
			l.Fail(id(1))
		}, ReceiveCounts{Sent: 3, Answered: 2, LostResponses: 1}},
		{"late on the way back", func(l *Ledger) {
			l.Send(id(1), at)
			l.Fail(id(1))
			l.Answer(id(1), time.Millisecond, history(7, true, 1))
		}, ReceiveCounts{Sent: 1, LostResponses: 1}},
		{"beyond the history", func(l *Ledger) {
			l.Send(id(1), at)
			l.Fail(id(1))
			l.Send(id(4), at)
			l.Answer(id(4), time.Millisecond, history(7, false, 4, 3, 2))
		}, ReceiveCounts{Sent: 2, Answered: 1, Unknown: 1}},
		{"a restart of the server", func(l *Ledger) {
			l.Send(id(1), at)
			l.Answer(id(1), time.Millisecond, history(7, true, 1))
			l.Send(id(2), at)
			l.Fail(id(2))
			l.Send(id(3), at)
			l.Answer(id(3), time.Millisecond, history(8, true, 3))
		}, ReceiveCounts{Sent: 3, Answered: 2, Unknown: 1}},
		{"not known yet", func(l *Ledger) { l.Send(id(1), at); l.Fail(id(1)) }, ReceiveCounts{Sent: 1}},
	} {
		l := NewLedger("device", time.Minute)
		test.run(l)
		if l.Totals != test.want || l.Buckets[0].ReceiveCounts != test.want {
			t.Errorf("%s: %+v, bucket %+v, want %+v", test.name, l.Totals, l.Buckets[0], test.want)
		}
	}
}

// A year of requests takes as much memory as a day, loses no count, and comes back from disk as it was.
func TestLedgerIsBounded(t *testing.T) {
	l := NewLedger("device", time.Minute)
	at := time.Unix(1_000_000, 0)
	const requests = 40_000
	for n := range requests {
		id := fmt.Sprintf("RID%013d", n)
		l.Send(id, at)
		if n%7 == 0 {
			l.Fail(id)
		} else {
			l.Answer(id, time.Millisecond, history(7, false, n, n-1, n-2))
		}
		at = at.Add(800 * time.Second) // a year in all
	}
	var sum ReceiveCounts
	for _, b := range l.Buckets {
		sum.Sent += b.Sent
		sum.Answered += b.Answered
		sum.LostResponses += b.LostResponses
	}
	if sum != l.Totals || l.Totals.Sent != requests || len(l.Buckets) > MaxBuckets || len(l.Buckets) < MaxBuckets/2 || len(l.Open) > 1 {
		t.Errorf("%d buckets of %v with %+v, totals %+v, %d open", len(l.Buckets), l.Length, sum, l.Totals, len(l.Open))
	}
	text, err := json.Marshal(l)
	if err != nil || len(text) > 1<<19 {
		t.Fatalf("%d bytes, %v", len(text), err)
	}
	again := new(Ledger)
	if err := json.Unmarshal(text, again); err != nil || again.Validate() != nil || again.Totals != l.Totals || len(again.Buckets) != len(l.Buckets) {
		t.Errorf("%v: %+v", err, again)
	}
	for n := range maxOpen + 10 {
		l.Send(fmt.Sprintf("RID%013d", requests+n), at)
	}
	if len(l.Open) > maxOpen || l.Totals.Unknown == 0 {
		t.Errorf("%d open", len(l.Open))
	}
}

func TestParseHistory(t *testing.T) {
	parse := func(payload string, format message.Format) (*History, error) {
		datagram, err := build(message.Ack, message.Changed, nil, []Option{UintOption(message.ContentFormat, uint32(format))}, []byte(payload))
		var m message.Message
		if err != nil || message.Parse(datagram, &m) != nil {
			t.Fatal(err)
		}
		return ParseHistory(&m)
	}
	h, err := parse(`[{"systemstart":17},{"rid":"RID2","time":5,"ep":"127.0.0.1","port":40000},{"rid":"RID1","time":4}]`, message.JSON)
	want := &History{Start: 17, Whole: true, Requests: []HistoryEntry{{"RID2", 5, "127.0.0.1:40000"}, {"RID1", 4, ""}}}
	if err != nil || !reflect.DeepEqual(h, want) {
		t.Errorf("%+v, %v", h, err)
	}
	for _, broken := range []string{`[]`, `{}`, `[{"rid":"x"}]`, `[{"systemstart":1},{"time":3}]`, `[{"systemstart":1},{"rid":"` + strings.Repeat("x", 200) + `"}]`} {
		if h, err := parse(broken, message.JSON); err == nil {
			t.Errorf("%s is read as %+v", broken, h)
		}
	}
	if _, err := parse("systemstart:17", message.Text); err == nil {
		t.Error("text is read as JSON")
	}
	const inCBOR = "\x83\xa1\x6bsystemstart\x11" + "\xa4\x63rid\x64RID2\x64time\x05\x62ep\x44\x7f\x00\x00\x01\x64port\x39\x63\xbf" + "\xa2\x63rid\x64RID1\x64time\x04"
	if h, err := parse(inCBOR, message.CBOR); err != nil || !reflect.DeepEqual(h, want) { // the port is -25536
		t.Errorf("%+v, %v", h, err)
	}
	for n := range inCBOR {
		if h, err := parse(inCBOR[:n], message.CBOR); err == nil {
			t.Errorf("%d bytes are read as %+v", n, h)
		}
	}
}

// receiveServer remembers requests, loses some on the way, and counts which.
type receiveServer struct {
	mu        sync.Mutex
	ids       []string
	lose      func(n int64) (there, back bool)
	count     atomic.Int64
	lostThere atomic.Int64
	lostBack  atomic.Int64
}

func (s *receiveServer) serve(t *testing.T, m *message.Message, send func([]byte)) {
	if !m.Code.IsRequest() {
		return
	}
	there, back := s.lose(s.count.Add(1))
	if there {
		s.lostThere.Add(1)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var id string
	for options := m.Options(); options.Next(); {
		if text, ok := strings.CutPrefix(string(options.Value()), "rid="); ok && options.ID() == message.URIQuery {
			id = text
		}
	}
	s.ids = append([]string{id}, s.ids[:min(len(s.ids), 7)]...)
	list := []map[string]any{{"systemstart": 17}}
	for _, id := range s.ids {
		list = append(list, map[string]any{"rid": id, "time": 1, "ep": strings.Repeat("x", 60), "port": 1})
	}
	text, err := json.Marshal(list)
	if err != nil {
		t.Error(err)
	}
	if back {
		s.lostBack.Add(1)
		return
	}
	send(answerTo(t, m, message.Non, m.ID^0x8000, message.Changed, text, UintOption(message.ContentFormat, uint32(message.JSON))))
}

// What the test says was lost is what was lost, both ways, and it can be interrupted and go on.
func TestReceive(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	s := &receiveServer{lose: func(n int64) (there, back bool) { return n%10 == 3, n%10 == 6 }}
	uri := scripted(t, func(m *message.Message, send func([]byte)) { s.serve(t, m, send) })
	l := NewLedger("device", time.Minute)
	cfg := ReceiveConfig{URI: uri, Interval: 2 * time.Millisecond, Timeout: 500 * time.Millisecond, Count: 100}
	for range 2 {
		changes := 0
		if err := Receive(t.Context(), cfg, l, func(*Ledger) { changes++ }); err != nil || changes < 100 {
			t.Fatalf("%d changes, %v", changes, err)
		}
	}
	c := l.Totals
	if len(l.Open) != 0 || c.Unknown != 0 || c.Sent != uint64(s.count.Load()) || c.LostRequests != uint64(s.lostThere.Load()) || c.LostResponses != uint64(s.lostBack.Load()) ||
		c.Sent != c.Answered+c.LostRequests+c.LostResponses {
		t.Errorf("%+v with %d open; lost were %d there and %d back of %d", c, len(l.Open), s.lostThere.Load(), s.lostBack.Load(), s.count.Load())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cfg.Count = 0
	if err := Receive(ctx, cfg, l, func(*Ledger) { cancel() }); err != nil {
		t.Error(err)
	}
}

// Over TCP a request or a response is lost with its connection, which is opened again: the server has what was answered and what lost its
// response, and nothing else.
func TestReceiveOverTCP(t *testing.T) {
	s := &receiveServer{lose: func(n int64) (there, back bool) { return n%10 == 3, n%10 == 6 }}
	uri := "coap+tcp://" + accepting(t, listenTCP(t), func(raw net.Conn) {
		requestsOf(raw, func(conn *stream.Conn, m *message.Message) (answered bool) {
			s.serve(t, m, func(b []byte) { answered = conn.Send(b) == nil })
			return answered
		})
	}) + "/requests"
	l := NewLedger("device", time.Minute)
	cfg := ReceiveConfig{URI: uri, Interval: 10 * time.Millisecond, Timeout: 20 * time.Second, Count: 100}
	if err := Receive(t.Context(), cfg, l, func(*Ledger) {}); err != nil {
		t.Fatal(err)
	}
	c, processed := l.Totals, uint64(s.count.Load()-s.lostThere.Load())
	if c.Sent < 100 || c.Unknown != 0 || len(l.Open) != 0 || c.Answered+c.LostResponses != processed || c.Sent != processed+c.LostRequests ||
		c.LostRequests < uint64(s.lostThere.Load()) || c.LostResponses < uint64(s.lostBack.Load()) || s.lostThere.Load() < 5 || s.lostBack.Load() < 5 {
		t.Errorf("%+v with %d open; the server has processed %d, and lost %d there and %d back", c, len(l.Open), processed, s.lostThere.Load(), s.lostBack.Load())
	}
}

func TestReceiveRefusesAnotherResource(t *testing.T) {
	uri := scripted(t, func(m *message.Message, send func([]byte)) {
		send(answerTo(t, m, message.Non, 1, message.NotFound, nil))
	})
	err := Receive(t.Context(), ReceiveConfig{URI: uri, Interval: time.Millisecond}, NewLedger("d", time.Minute), func(*Ledger) {})
	if err == nil || !strings.Contains(err.Error(), "it is no resource for receive tests") {
		t.Error(err)
	}
	for want, cfg := range map[string]ReceiveConfig{
		"no path":  {URI: "coap://h"},
		"too long": {URI: "coap://h/requests", Interval: time.Millisecond, Timeout: time.Hour},
	} {
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

func FuzzParseHistory(f *testing.F) {
	f.Add([]byte(`[{"systemstart":17},{"rid":"RID2","time":5,"ep":"127.0.0.1","port":40000}]`))
	f.Add([]byte("\x82\xa1\x6bsystemstart\x11\xa3\x63rid\x64RID2\x62ep\x44\x7f\x00\x00\x01\x64port\x39\x63\xbf"))
	f.Fuzz(func(t *testing.T, payload []byte) {
		format := message.JSON
		if len(payload) > 0 && payload[0]>>5 == 4 { // a list in CBOR
			format = message.CBOR
		}
		datagram, err := build(message.Ack, message.Changed, nil, []Option{UintOption(message.ContentFormat, uint32(format))}, payload)
		var m message.Message
		if err != nil || message.Parse(datagram, &m) != nil {
			return
		}
		h, err := ParseHistory(&m)
		if err != nil {
			return
		}
		l := NewLedger("device", time.Minute)
		l.Send("RID1", time.Unix(1, 0))
		l.Send("RID2", time.Unix(1, 0))
		l.Answer("RID2", 0, h)
		l.Fail("RID1")
		if c := l.Totals; c.Sent != c.Answered+c.LostRequests+c.LostResponses+c.Unknown+uint64(len(l.Open)) {
			t.Errorf("%+v with %d open", c, len(l.Open))
		}
	})
}
