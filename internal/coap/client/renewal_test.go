package client

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/dtls/record"
)

// Silence is told from loss by three messages without an answer and 2.5 times ACK_TIMEOUT; attempts that fail come at growing intervals.
func TestSilence(t *testing.T) {
	const ack = 2 * time.Second
	s := newSilence(ack)
	for _, c := range []struct {
		at    time.Duration
		begin bool
	}{{0, false}, {2 * time.Second, false}, {6 * time.Second, true}, {7 * time.Second, false}} {
		if got := s.ask(c.at); got != c.begin {
			t.Errorf("%v: %v", c.at, got)
		}
	}
	s.trying = false
	attempts := 0
	for at := 8 * time.Second; at < time.Hour; at += time.Second {
		if s.ask(at) {
			attempts++
			s.trying = false
		}
	}
	if attempts < 8 || attempts > 16 { // 10 s, 20 s, 40 s ... and then each 5 minutes
		t.Errorf("%d attempts in an hour", attempts)
	}
	s.answered()
	for at := time.Hour; at < time.Hour+5*time.Second; at += time.Second {
		if s.ask(at) {
			t.Errorf("an attempt after %v of silence", at-time.Hour)
		}
	}
	few := newSilence(ack)
	if few.ask(0) || few.ask(time.Hour) {
		t.Error("an attempt after a request and one retransmission")
	}
}

// severed is a socket whose datagrams the server drops from some time on.
type severed struct {
	RawLink
	lost    *atomic.Bool
	written chan struct{} // a record was dropped
}

func (s *severed) Write(b []byte) (int, error) {
	if !s.lost.Load() {
		return s.RawLink.Write(b)
	}
	select {
	case s.written <- struct{}{}:
	default:
	}
	return len(b), nil
}

// renewing is a connection whose first socket is severed when lost is set, and the second when blocked is.
type renewing struct {
	*Conn
	peer          *peer
	lost, blocked atomic.Bool
	sockets       atomic.Int32
	dropped       chan struct{} // by the second one
}

func newRenewing(t *testing.T) *renewing {
	t.Helper()
	r := &renewing{peer: newPeer(t, true), dropped: make(chan struct{}, 1)}
	conn, err := Dial(t.Context(), r.peer.uri, DialConfig{AckTimeout: 100 * time.Millisecond, Timeout: 20 * time.Second, Under: func(l RawLink) RawLink {
		if r.sockets.Add(1) == 1 {
			return &severed{RawLink: l, lost: &r.lost, written: make(chan struct{}, 1)}
		}
		return &severed{RawLink: l, lost: &r.blocked, written: r.dropped}
	}})
	if err != nil {
		t.Fatal(err)
	}
	r.Conn = conn
	t.Cleanup(func() { conn.Close() })
	r.get(t)
	return r
}

func (r *renewing) get(t *testing.T) {
	t.Helper()
	if x, err := r.Do(t.Context(), &Request{}); err != nil || len(x.Response) == 0 {
		t.Fatalf("%v", err)
	}
}

// When the server has lost the session, the request is answered in another one, long before it would have timed out. One that must not be
// executed twice ends instead.
func TestLostSessionIsReplaced(t *testing.T) {
	for _, method := range []message.Code{message.GET, message.POST} {
		r := newRenewing(t)
		before := r.Session()
		r.lost.Store(true)
		begun := time.Now()
		x, err := r.Do(t.Context(), &Request{Method: method})
		if method == message.GET && (err != nil || len(x.Response) == 0) || method == message.POST && !errors.Is(err, errUncertain) {
			t.Errorf("%s: %v", method.Name(), err)
		}
		t.Logf("%s: after %v", method.Name(), time.Since(begun))
		after := r.Session()
		r.get(t) // in the session that is there; the server has counted that session before it answers
		if r.peer.accepted.Load() != 2 || r.sockets.Load() != 2 || after.ID == before.ID || after.WriteCID == before.WriteCID || after.Authority != before.Authority {
			t.Errorf("%d sessions at the server, %d sockets; %+v after %+v", r.peer.accepted.Load(), r.sockets.Load(), after, before)
		}
	}
}

// A server that is silent for a while keeps its session: an answer in it ends the attempt.
func TestSilentServerKeepsItsSession(t *testing.T) {
	r := newRenewing(t)
	before := r.Session()
	r.blocked.Store(true)
	r.peer.silent.Store(true)
	done := make(chan error, 1)
	go func() {
		_, err := r.Do(t.Context(), &Request{})
		done <- err
	}()
	<-r.dropped // its ClientHello
	r.peer.silent.Store(false)
	if err := <-done; err != nil {
		t.Error(err)
	}
	r.get(t)
	if after := r.Session(); after.ID != before.ID || r.peer.accepted.Load() != 1 {
		t.Errorf("%d sessions at the server; %+v after %+v", r.peer.accepted.Load(), after, before)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.renewal.silence.asked != 0 {
		t.Errorf("%+v", r.renewal.silence)
	}
}

// What anybody could send is no answer, and no reason for another session: neither does it end the silence, nor does it begin an attempt.
func TestForgedRecordsAreSilence(t *testing.T) {
	r := newRenewing(t)
	first := r.renewal.link.now()
	r.lost.Store(true)
	for i, forged := range [][]byte{
		record.AppendPlain(nil, record.Alert, 1<<20, []byte{1, 0}), record.AppendPlain(nil, record.Alert, 1<<20+1, []byte{2, 80}),
		record.AppendPlain(nil, record.Handshake, 1<<20+2, make([]byte, 12)),
	} {
		if err := first.Open(forged, func([]byte) { t.Error("a message") }, func([]byte) { t.Error("a reply") }); err != nil {
			t.Errorf("forgery %d ends the session: %v", i, err)
		}
	}
	if r.sockets.Load() != 1 {
		t.Error("another session")
	}
	r.get(t)
	if r.sockets.Load() != 2 {
		t.Errorf("%d sockets", r.sockets.Load())
	}
}
