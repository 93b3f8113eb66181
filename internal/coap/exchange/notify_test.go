package exchange

import (
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
)

// RFC 7252 section 5.10.2: this is no proxy. Any other unknown critical option stays 4.02.
func TestProxyOptions(t *testing.T) {
	for id, want := range map[message.OptionID]string{
		message.ProxyURI: "ACK 5.05 mid=1 token=t", message.ProxyScheme: "ACK 5.05 mid=1 token=t",
		message.OptionID(9999): "ACK 4.02 mid=1 token=t critical option 9999 not supported here",
	} {
		r := newFixture(t, Config{})
		r.expect(r.receive(build(t, message.Con, message.GET, 1, "t", id), 0), want)
	}
}

// RFC 7967: a response that the client does not want is not sent; a confirmable request is still acknowledged.
func TestNoResponse(t *testing.T) {
	for _, c := range []struct {
		kind  message.Type
		value uint32
		code  message.Code
		want  string
	}{
		{message.Con, 0, message.Content, "ACK 2.05 mid=1"},
		{message.Con, 2, message.Content, "ACK 0.00 mid=1"},
		{message.Con, 2, message.NotFound, "ACK 4.04 mid=1"},
		{message.Con, 24, message.NotFound, "ACK 0.00 mid=1"},
		{message.Con, 24, message.InternalServerError, "ACK 0.00 mid=1"},
		{message.Con, 24, message.Content, "ACK 2.05 mid=1"},
		{message.Non, 26, message.Content, "nothing"},
	} {
		r := newFixture(t, Config{})
		r.journal.serve = func(_ *message.Message, reply *Reply) { reply.Begin(c.code) }
		var b message.Builder
		b.Reset(make([]byte, 0, 64), c.kind, message.GET, 1, nil)
		b.Uint(message.NoResponse, c.value)
		wire, err := b.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		r.expect(r.receive(wire, 0), c.want)
	}
}

// A notification ends with an acknowledgement, a reset or silence; one that was withdrawn ends without a report.
func TestNotify(t *testing.T) {
	var ends []Outcome
	r := newFixture(t, Config{Notified: func(_ *Session, _ uint16, o Outcome) { ends = append(ends, o) }})
	send := func(kind message.Type) uint16 {
		mid, ok := r.Notify(&r.session, build(t, kind, message.Content, 0, "t"), false, 0)
		if !ok {
			t.Fatal("refused")
		}
		return mid
	}
	r.receive(message.AppendEmpty(nil, message.Ack, send(message.Con)), 0)
	r.receive(message.AppendEmpty(nil, message.Rst, send(message.Con)), 0)
	r.receive(message.AppendEmpty(nil, message.Rst, send(message.Non)), 0)
	send(message.Con)
	run(r, 200*time.Second)
	if !r.Withdraw(&r.session, send(message.Con)) || len(ends) != 4 || ends[0] != NotifyDelivered || ends[1] != NotifyRejected ||
		ends[2] != NotifyRejected || ends[3] != NotifyTimeout || r.Pending() != 0 {
		t.Errorf("%v, %d pending", ends, r.Pending())
	}
	for range PerSession {
		send(message.Con)
	}
	if _, ok := r.Notify(&r.session, build(t, message.Con, message.Content, 0, "t"), false, 0); ok {
		t.Error("more than PerSession are pending")
	}
}
