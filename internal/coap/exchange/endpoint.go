package exchange

import (
	"crypto/rand"
	"errors"
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
)

// Session is one peer. The zero value is ready; it must not be copied once used and be given to Endpoint.Forget at its end.
type Session struct {
	// Peer belongs to the owner of the Session: Sender, Handler and Events identify the peer with it.
	Peer any

	ring    *ring
	pending int32 // 1 + first pending message, 0 for none
	count   int32 // pending messages
	mid     uint16
	started bool
	pace

	probing bool // a probe is pending

	// Proofs is how many probes in a row were answered (Reply.Probe). An acknowledgement or reset that matches nothing,
	// which may have been a guess, sets it to 0; so may the owner.
	Proofs uint8
}

// PerSession is how many separate responses of a session may be pending: finding one of them is a search.
const PerSession = 32

func (s *Session) head() int32 { return s.pending - 1 }

// Idle reports whether nothing of the session is pending and no message id must be remembered any longer: a new Session may take its
// place.
func (s *Session) Idle(now time.Duration) bool {
	return s.pending == 0 && s.outstanding == 0 && !s.probing && (s.ring == nil || !s.ring.live(now))
}

// Errors of Send.
var (
	// ErrFull: Config.MaxPending messages are pending.
	ErrFull = errors.New("coap exchange: too many pending messages")
	// ErrMessage: Send takes a Con or Non request or an empty Con, up to Config.MaxMessage bytes.
	ErrMessage = errors.New("coap exchange: neither a request nor a ping, or too long")
)

// Endpoint serves the sessions of one worker. Not for concurrent use.
type Endpoint struct {
	cfg      Config
	sender   Sender
	handler  Handler
	events   Events
	log      answerLog
	pendings pendings
	counters Counters
	random   uint64
	now      time.Duration   // of the newest call that has it
	held     int             // requests that wait until others are no longer outstanding
	request  message.Message // here, not on the stack, because interfaces get pointers to them
	sent     message.Message
	reply    Reply
}

// New returns an Endpoint. handler may be nil for a pure client (requests get Rst), events for a pure server.
func New(cfg Config, sender Sender, handler Handler, events Events) *Endpoint {
	cfg = cfg.withDefaults()
	e := &Endpoint{cfg: cfg, sender: sender, handler: handler, events: events, pendings: newPendings(cfg.MaxPending)}
	e.random = cfg.Seed*0x9e3779b97f4a7c15 + 0x6a09e667f3bcc909
	if handler != nil {
		e.log = newAnswerLog(max(cfg.LogBytes, logUnit))
		if cfg.Log != nil {
			e.log = answerLogIn(cfg.Log)
		}
	}
	return e
}

// Counters returns the counters since New.
func (e *Endpoint) Counters() Counters { return e.counters }

// Pending returns how many messages wait for an acknowledgement, a response or their time.
func (e *Endpoint) Pending() int { return e.pendings.due.Len() + e.held }

// Receive handles one datagram of session s and returns the datagram to send back at once, built in out[:0:cap(out)], or an empty
// slice. in and out must not overlap.
func (e *Endpoint) Receive(s *Session, in, out []byte, now time.Duration) []byte {
	out = out[:0]
	m := &e.request
	if err := message.Parse(in, m); err != nil {
		e.counters.Malformed++
		if !errors.Is(err, message.ErrHeader) && m.Type == message.Con {
			return appendEmpty(out, message.Rst, m.ID)
		}
		return out
	}
	e.now = now
	e.received(s)
	switch {
	case m.Code == message.Empty:
		return e.receiveEmpty(s, m, out, now)
	case m.Code.IsRequest() && m.Type <= message.Non:
		return e.receiveRequest(s, m, out, now)
	case m.Code.IsResponse() && m.Type != message.Rst:
		return e.receiveResponse(s, m, out, now)
	}
	e.counters.Malformed++ // reserved class, or a code that the type cannot carry
	if m.Type == message.Con {
		return appendEmpty(out, message.Rst, m.ID)
	}
	return out
}

func appendEmpty(out []byte, t message.Type, id uint16) []byte {
	if cap(out)-len(out) < 4 {
		return out
	}
	return message.AppendEmpty(out, t, id)
}

func (e *Endpoint) receiveEmpty(s *Session, m *message.Message, out []byte, now time.Duration) []byte {
	switch m.Type {
	case message.Con:
		e.counters.Pings++
		return appendEmpty(out, message.Rst, m.ID)
	case message.Non:
		return out
	}
	i := e.pendings.byMID(s, m.ID)
	if i < 0 || (m.Type == message.Ack && e.pendings.slots[i].kind == kindPing) {
		e.counters.Stray++
		s.Proofs = 0
		if m.Type == message.Rst && e.cfg.Notified != nil {
			e.cfg.Notified(s, m.ID, NotifyRejected)
		}
		return out
	}
	slot := &e.pendings.slots[i]
	if m.Type == message.Rst {
		e.counters.Resets++
		if slot.kind == kindNotify {
			e.notified(i, NotifyRejected)
			return out
		}
		proof := slot.proof
		e.end(i, Rejected)
		if proof && e.cfg.Proven != nil {
			s.Proofs += min(1, 255-s.Proofs)
			e.cfg.Proven(s)
		}
		return out
	}
	if slot.acked {
		return out
	}
	e.counters.Acks++
	switch slot.kind {
	case kindResponse:
		e.release(i)
		return out
	case kindNotify:
		e.notified(i, NotifyDelivered)
		return out
	}
	slot.acked = true
	e.pendings.reschedule(i, now+e.cfg.ResponseTimeout)
	e.completed(i)
	if e.cfg.Acknowledged != nil {
		e.cfg.Acknowledged(s, slot.id)
	}
	return out
}

func (e *Endpoint) receiveRequest(s *Session, m *message.Message, out []byte, now time.Duration) []byte {
	if e.handler == nil {
		e.counters.Stray++
		return appendEmpty(out, message.Rst, m.ID)
	}
	if id, bad := m.BadOption(e.cfg.Supported); bad {
		return e.rejectOption(m, id, out)
	}
	if s.ring == nil {
		s.ring = new(ring)
	}
	if slot := s.ring.find(m.ID, now); slot >= 0 {
		e.counters.Duplicates++
		if m.Type == message.Non {
			return out
		}
		switch s.ring.how[slot] {
		case memoryStored:
			if answer := e.stored(s, slot); answer != nil && len(answer) <= cap(out) {
				return append(out, answer...)
			}
			e.counters.Forgotten++
			return out
		case memoryAck:
			return appendEmpty(out, message.Ack, m.ID)
		case memorySilent, memoryBegun:
			e.counters.Forgotten++
			return out
		}
		return e.serve(s, m, slot, out, now)
	}
	lifetime := e.cfg.ExchangeLifetime
	if m.Type == message.Non {
		lifetime = e.cfg.NonLifetime
	}
	slot, early := s.ring.add(m.ID, memoryBegun, now, lifetime)
	if early {
		e.counters.Overwritten++
	}
	return e.serve(s, m, slot, out, now)
}

// rejectOption answers an unknown or broken critical option (RFC 7252 section 5.4.1).
func (e *Endpoint) rejectOption(m *message.Message, id message.OptionID, out []byte) []byte {
	e.counters.BadOptions++
	if m.Type == message.Non {
		return appendEmpty(out, message.Rst, m.ID)
	}
	return optionError(m, message.Ack, id, out)
}

// optionError is the response to a critical option that is not supported, or is malformed.
func optionError(m *message.Message, t message.Type, id message.OptionID, out []byte) []byte {
	var b message.Builder
	if id == message.ProxyURI || id == message.ProxyScheme { // RFC 7252 section 5.10.2
		b.Reset(out, t, message.ProxyingNotSupported, m.ID, m.Token)
		out, _ = b.Bytes()
		return out
	}
	b.Reset(out, t, message.BadOption, m.ID, m.Token)
	var text [48]byte
	if why := appendOptionText(text[:0], id); len(why) <= b.Room() {
		b.Payload(why)
	}
	out, _ = b.Bytes()
	return out
}

func appendOptionText(dst []byte, id message.OptionID) []byte {
	dst = append(dst, "critical option "...)
	var digits [5]byte
	i := len(digits)
	for n := id; ; n /= 10 {
		i--
		digits[i] = byte('0' + n%10)
		if n < 10 {
			break
		}
	}
	return append(append(dst, digits[i:]...), " not supported here"...)
}

// ReceiveReliable handles a message of session s that came over TCP or TLS, which deliver once and in order: a request that is
// executed, or a response to a Non of Send (RFC 8323 section 3.4). It returns the answer, a message of type Non, as Receive does.
// All messages of such a session leave as Non, and Config.Notified is never called for it.
func (e *Endpoint) ReceiveReliable(s *Session, m *message.Message, out []byte, now time.Duration) []byte {
	out = out[:0]
	if m.Code.IsResponse() {
		return e.receiveResponse(s, m, out, now)
	}
	if !m.Code.IsRequest() || e.handler == nil {
		e.counters.Stray++
		return out
	}
	if id, bad := m.BadOption(e.cfg.Supported); bad {
		e.counters.BadOptions++
		return optionError(m, message.Non, id, out)
	}
	r := &e.reply
	answer := e.execute(s, m, r, out, now)
	if answer == nil || r.silent || r.separate && r.delay > 0 && e.later(s, answer, message.Non, r, now) {
		return out
	}
	return answer
}

// execute lets the handler answer a request; nil if not even an error response fits.
func (e *Endpoint) execute(s *Session, m *message.Message, r *Reply, out []byte, now time.Duration) []byte {
	e.counters.Requests++
	*r = Reply{request: m, out: out}
	e.handler.Serve(s, m, r, now)
	if r.replaced {
		return r.sealed
	}
	if !r.begun {
		r.Begin(message.InternalServerError)
	}
	answer, err := r.builder.Bytes()
	if err != nil {
		e.counters.TooLarge++
		r.Begin(message.InternalServerError)
		if answer, err = r.builder.Bytes(); err != nil {
			return nil
		}
	}
	if Unwanted(m, message.Code(answer[1])) {
		r.silent = true
	}
	return answer
}

// serve executes a request and stores in its slot of the ring how a duplicate is answered.
func (e *Endpoint) serve(s *Session, m *message.Message, slot int, out []byte, now time.Duration) []byte {
	r := &e.reply
	answer := e.execute(s, m, r, out, now)
	remember := &s.ring.how[slot] // set once: see Adopt
	if answer == nil {
		*remember = memorySilent
		return out
	}
	if r.probe {
		e.probe(s, r, now)
	}
	switch {
	case r.silent && m.Type == message.Con:
		*remember = memoryAck
		return appendEmpty(out, message.Ack, m.ID)
	case r.silent:
		*remember = memorySilent
		return out
	case m.Type == message.Non:
		*remember = memorySilent
		setMID(answer, e.NextID(s))
		if r.separate {
			e.later(s, answer, message.Non, r, now)
			return out
		}
		return answer
	case r.separate && e.later(s, answer, message.Con, r, now): // otherwise it is sent at once: an early answer is better than a second execution
		e.counters.Separate++
		*remember = memoryAck
		return appendEmpty(out, message.Ack, m.ID)
	case m.Code.IsSafe() && !r.replaced:
		*remember = memoryRepeat
		return answer
	}
	if pos, ok := e.log.put(answer); ok {
		s.ring.pos[slot], s.ring.size[slot] = pos, uint16(len(answer))
		*remember = memoryStored
	} else {
		*remember = memorySilent
		e.counters.TooLarge++
	}
	return answer
}

func setMID(datagram []byte, mid uint16) { datagram[2], datagram[3] = byte(mid>>8), byte(mid) }

// later schedules answer as a message of its own.
func (e *Endpoint) later(s *Session, answer []byte, t message.Type, r *Reply, now time.Duration) bool {
	if len(answer) > e.cfg.MaxMessage {
		e.counters.TooLarge++
		return false
	}
	var slot *pending
	var i int32
	if slot, i = e.takeFor(s, answer, r); slot == nil {
		return false
	}
	slot.kind, slot.unsent, slot.con, slot.first = kindResponse, true, t == message.Con, now
	slot.mid = e.NextID(s)
	slot.buf[0] = slot.buf[0]&^0x30 | byte(t)<<4
	setMID(slot.buf, slot.mid)
	e.pendings.attach(i, s, now+r.delay)
	return true
}

// takeFor returns a slot with datagram for a message of the server to s, or nil if a bound is reached.
func (e *Endpoint) takeFor(s *Session, datagram []byte, r *Reply) (slot *pending, i int32) {
	if s.count < PerSession && (!r.unproven || e.pendings.unproven < e.cfg.MaxPending/2) {
		slot, i = e.pendings.take(datagram)
	}
	if slot == nil {
		e.counters.PendingFull++
		return nil, -1
	}
	if slot.unproven = r.unproven; r.unproven {
		e.pendings.unproven++
	}
	return slot, i
}

// probe schedules a ping to prove the session's address.
func (e *Endpoint) probe(s *Session, r *Reply, now time.Duration) {
	if s.probing {
		return
	}
	var random [2]byte
	_, _ = rand.Read(random[:]) // crypto/rand never fails
	mid := uint16(random[0])<<8 | uint16(random[1])
	var ping [4]byte
	slot, i := e.takeFor(s, message.AppendEmpty(ping[:0], message.Con, mid), r)
	if slot == nil {
		return
	}
	e.counters.Probes++
	slot.kind, slot.unsent, slot.con, slot.first, slot.mid = kindPing, true, true, now, mid
	slot.repeats = uint8(e.cfg.MaxRetransmit)
	slot.proof, s.probing = true, true
	e.pendings.attach(i, s, now)
}

func (e *Endpoint) receiveResponse(s *Session, m *message.Message, out []byte, now time.Duration) []byte {
	i := e.pendings.byToken(s, m)
	if i >= 0 && m.Type == message.Ack && (!e.pendings.slots[i].con || e.pendings.slots[i].mid != m.ID) {
		i = -1
	}
	if m.Type == message.Con && s.ring != nil && s.ring.find(m.ID, now) >= 0 {
		e.counters.Duplicates++
		return appendEmpty(out, message.Ack, m.ID)
	}
	if i >= 0 && m.Type != message.Ack && e.cfg.Answers != nil && !e.cfg.Answers(s, e.pendings.slots[i].id, m) {
		i = -1
	}
	if i < 0 && e.expected(s, m) {
		e.counters.Responses++
		return e.acknowledge(s, m, out, now)
	}
	if i < 0 {
		e.counters.Stray++
		if m.Type == message.Con {
			return appendEmpty(out, message.Rst, m.ID)
		}
		return out
	}
	if _, bad := m.BadOption(e.cfg.Supported); bad {
		e.counters.BadOptions++
		e.end(i, Rejected)
		if m.Type == message.Con {
			return appendEmpty(out, message.Rst, m.ID)
		}
		return out
	}
	out = e.acknowledge(s, m, out, now)
	e.counters.Responses++
	slot := &e.pendings.slots[i]
	id, rtt, repeats := slot.id, now-slot.first, int(slot.repeats)
	e.release(i)
	if e.events != nil {
		e.events.Response(s, id, m, rtt, repeats)
	}
	return out
}

// expected reports whether a response that matches no request is one to take nevertheless.
func (e *Endpoint) expected(s *Session, m *message.Message) bool {
	if e.cfg.Unmatched == nil {
		return false
	}
	_, bad := m.BadOption(e.cfg.Supported)
	return !bad && e.cfg.Unmatched(s, m)
}

// acknowledge acknowledges a response, and remembers that it did.
func (e *Endpoint) acknowledge(s *Session, m *message.Message, out []byte, now time.Duration) []byte {
	if m.Type != message.Con {
		return out
	}
	if s.ring == nil {
		s.ring = new(ring)
	}
	s.ring.add(m.ID, memoryAck, now, e.cfg.ExchangeLifetime)
	return appendEmpty(out, message.Ack, m.ID)
}
