package resource

import (
	"time"

	"github.com/weir-lb/weir/internal/coap/exchange"
	"github.com/weir-lb/weir/internal/coap/message"
)

// Deferred is a request that is answered after its method has returned. It belongs to the goroutine of the Server, and must not be
// used once its session was forgotten.
type Deferred struct {
	server     *Server
	session    *Session
	resource   *Resource
	request    []byte // a Non message without a payload
	kind       message.Type
	block1     int // value of Block1 in the answer; -1: none
	noResponse uint32
	protection exchange.Protection
}

// Defer acknowledges the request without an answer, which Deferred.Answer gives later. A method calls it in the place of Answer. The method of
// a GET or FETCH is called again for each further block of a long answer, and defers that one too.
func (r *Request) Defer() *Deferred {
	d := &Deferred{server: r.server, session: r.Session, resource: r.resource, request: withoutPayload(r.Message), kind: message.Non, block1: r.block1}
	if r.Message.Type == message.Con {
		d.kind = message.Con
	}
	if mask, ok := r.Message.Uint(message.NoResponse); ok && mask <= 0xff {
		d.noResponse = mask
	}
	d.protection = keep(r.Protection)
	r.reply.Silent()
	r.Session.deferred++
	return d
}

// withoutPayload returns a request as a Non message with the options that decide about its answer. Observe is not among them: a deferred
// answer is no registration.
func withoutPayload(m *message.Message) []byte {
	size := 8 + len(m.Token)
	for options := m.Options(); options.Next(); {
		size += 5 + len(options.Value())
	}
	var b message.Builder
	b.Reset(make([]byte, 0, size), message.Non, m.Code, 0, m.Token)
	copyOptions(&b, m)
	wire, _ := b.Bytes() // it fits
	return wire
}

// Answer sends the response, once: with a representation of this format, in blocks if it is long or the client requests them, or without
// one where body is nil. body is copied. A response for which there is no room is dropped.
func (d *Deferred) Answer(code message.Code, format message.Format, body []byte, now time.Duration) {
	d.session.deferred--
	if d.noResponse>>(code.Class()-1)&1 != 0 { // RFC 7967
		return
	}
	datagram := protected(d.protection, d.build(code, format, body, now))
	if datagram == nil {
		return
	}
	datagram[0] = datagram[0]&^0x30 | byte(d.kind)<<4
	d.server.endpoint.Respond(&d.session.Session, datagram, !d.server.cfg.Guard.Proven(d.session), now)
}

// build returns the response as a Non message; nil if there is no room for it. It uses nothing of the Server that a request in progress uses.
func (d *Deferred) build(code message.Code, format message.Format, body []byte, now time.Duration) []byte {
	s := d.server
	room := min(cap(s.out), s.cfg.Guard.Room(d.session))
	if d.protection != nil {
		room -= s.cfg.Overhead
	}
	var request message.Message
	if room <= 0 || message.Parse(d.request, &request) != nil {
		return nil
	}
	var reply exchange.Reply
	reply.Reset(&request, s.out[:0:room])
	r := &Request{
		Message: &request, Session: d.session, Now: now, Protection: d.protection,
		server: s, resource: d.resource, reply: &reply, block1: d.block1, observe: -1,
	}
	if body == nil {
		r.Done(code)
	} else {
		r.Answer(code, format, body)
	}
	return reply.Message()
}
