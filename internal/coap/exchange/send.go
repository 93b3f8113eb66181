package exchange

import (
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
)

// NextID returns the next message id towards the session's peer; the first one is random (RFC 7252 section 4.4).
func (e *Endpoint) NextID(s *Session) uint16 {
	if !s.started {
		s.started, s.mid = true, uint16(e.rand()>>48)
	}
	s.mid++
	if s.ring != nil {
		s.ring.started, s.ring.mid = true, s.mid
	}
	return s.mid
}

// rand is splitmix64, which is good enough to spread timeouts and message ids; tokens are chosen by the caller.
func (e *Endpoint) rand() uint64 {
	e.random += 0x9e3779b97f4a7c15
	z := e.random
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Send sends a request (Con or Non, with a message id of NextID and a token unique among the session's requests) or a ping (an
// empty Con), repeats it as needed, and reports its end to Events. datagram is copied. A request may leave later: see Config.NStart and
// Config.ProbingRate.
func (e *Endpoint) Send(s *Session, datagram []byte, now time.Duration) (ID, error) {
	m := &e.sent
	if message.Parse(datagram, m) != nil || len(datagram) > e.cfg.MaxMessage || m.Type > message.Non {
		return 0, ErrMessage
	}
	ping := m.Code == message.Empty && m.Type == message.Con
	if !ping && !m.Code.IsRequest() {
		return 0, ErrMessage
	}
	slot, i := e.pendings.take(datagram)
	if slot == nil {
		e.counters.PendingFull++
		return 0, ErrFull
	}
	slot.mid, slot.con, slot.first = m.ID, m.Type == message.Con, now
	if ping {
		slot.kind = kindPing
	} else { // the token is where it was in datagram, behind header and extended length
		start := 4
		switch datagram[0] & 15 {
		case 13:
			start = 5
		case 14:
			start = 6
		}
		slot.token = slot.buf[start : start+len(m.Token)]
	}
	id := slot.id
	e.now = now
	e.pendings.attach(i, s, now)
	e.begin(i, m)
	return id, nil
}

// Cancel ends a pending request without an event and reports whether there was one.
func (e *Endpoint) Cancel(id ID) bool {
	i, ok := e.pendings.lookup(id)
	if ok {
		e.release(i)
	}
	return ok
}

// Forget ends everything pending of a session that closes, with Failed(Cancelled) for its requests.
func (e *Endpoint) Forget(s *Session) {
	for s.head() >= 0 {
		e.end(s.head(), Cancelled)
	}
	s.ring = nil
}

// Next returns when Tick must be called; ok is false when nothing is pending.
func (e *Endpoint) Next() (due time.Duration, ok bool) {
	_, due, ok = e.pendings.due.First()
	return due, ok
}

// Tick sends the messages that are due and gives up those without an answer.
func (e *Endpoint) Tick(now time.Duration) {
	e.now = now
	for {
		i, due, ok := e.pendings.due.First()
		if !ok || due > now {
			return
		}
		slot := &e.pendings.slots[i]
		switch {
		case slot.unsent:
			slot.unsent, slot.first = false, now
			e.transmit(i, now)
		case slot.acked || int(slot.repeats) >= e.cfg.MaxRetransmit:
			e.counters.Timeouts++
			e.timedOut(i)
			if slot.kind == kindNotify {
				e.notified(i, NotifyTimeout)
				continue
			}
			e.end(i, Timeout)
		default:
			slot.repeats++
			slot.timeout *= 2
			e.counters.Retransmissions++
			e.pendings.reschedule(i, now+slot.timeout)
			e.sender.SendTo(slot.session, slot.buf, now)
		}
	}
}

// transmit sends slot i for the first time and sets its next due time.
func (e *Endpoint) transmit(i int32, now time.Duration) {
	slot := &e.pendings.slots[i]
	e.counters.Sent++
	e.sender.SendTo(slot.session, slot.buf, now)
	switch {
	case slot.con:
		spread := float64(e.rand()>>11) / (1 << 53) * (e.cfg.AckRandomFactor - 1)
		slot.timeout = e.cfg.AckTimeout + time.Duration(float64(e.cfg.AckTimeout)*spread)
		e.pendings.reschedule(i, now+slot.timeout)
	case slot.kind == kindRequest:
		slot.acked = true // no retransmission: only the response is awaited
		e.pendings.reschedule(i, now+e.cfg.ResponseTimeout)
	default:
		e.release(i)
	}
}

// end releases slot i and reports the reason to a client's Events.
func (e *Endpoint) end(i int32, reason Failure) {
	slot := &e.pendings.slots[i]
	s, id, kind := slot.session, slot.id, slot.kind
	e.release(i)
	if e.events != nil && kind <= kindPing && kind != kindResponse {
		e.events.Failed(s, id, reason)
	}
}
