package exchange

import (
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
)

// Congestion control of requests (RFC 7252 section 4.7). At most Config.NStart requests of a session are outstanding: sent, and neither
// acknowledged nor answered. A further one waits for its turn, in the order of Send. A peer that has let a non-confirmable request run
// into its time-out, and from which nothing has arrived since, does not respond: until something arrives, non-confirmable requests to it leave at
// Config.ProbingRate, counted from the first one without an answer. Pings, responses and notifications do not count: a ping and a
// confirmable message have their own back-off, a response follows a message of the peer, and notifications have the limits of RFC
// 7641 section 4.5.

// pace is the part of a Session for this.
type pace struct {
	since       time.Duration // when the first of the unanswered bytes left
	unanswered  uint32        // bytes of non-confirmable requests since the last message of the peer
	outstanding int32         // requests
	silent      bool          // the peer does not respond
}

// received notes that a message of the peer has arrived.
func (e *Endpoint) received(s *Session) {
	s.unanswered = 0
	if !s.silent {
		return
	}
	s.silent = false
	for i := s.head(); i >= 0; i = e.pendings.slots[i].next {
		if slot := &e.pendings.slots[i]; slot.kind == kindRequest && slot.unsent && !slot.held {
			e.pendings.reschedule(i, 0)
		}
	}
}

// timedOut notes that request i ran into its time-out.
func (e *Endpoint) timedOut(i int32) {
	slot := &e.pendings.slots[i]
	if s := slot.session; slot.kind == kindRequest && !slot.con && !slot.unsent && s.unanswered > 0 && s.since <= slot.first {
		s.silent = true
	}
}

// probing returns when a non-confirmable request of n bytes may leave, and counts it.
func (e *Endpoint) probing(s *Session, n int) (at time.Duration) {
	if e.cfg.ProbingRate < 0 {
		return e.now
	}
	if s.unanswered == 0 {
		s.since = e.now
	}
	at = e.now
	if s.silent {
		at = max(at, s.since+time.Duration(s.unanswered)*time.Second/time.Duration(e.cfg.ProbingRate))
	}
	s.unanswered += uint32(n)
	return at
}

// begin sends request i, in its session's list, or lets it wait for its turn.
func (e *Endpoint) begin(i int32, request *message.Message) {
	slot := &e.pendings.slots[i]
	if slot.kind != kindRequest || e.cfg.NStart < 0 && e.cfg.ProbingRate < 0 || unwantedAlways(request) {
		e.transmit(i, e.now)
		return
	}
	slot.unsent = true
	if e.cfg.NStart >= 0 && slot.session.outstanding >= int32(e.cfg.NStart) {
		slot.held = true
		e.held++
		e.pendings.due.Remove(i)
		return
	}
	if at := e.take(i); at <= e.now {
		slot.unsent = false
		e.transmit(i, e.now)
	}
}

// take makes request i outstanding and returns when it leaves.
func (e *Endpoint) take(i int32) (at time.Duration) {
	slot := &e.pendings.slots[i]
	if slot.held {
		e.held--
	}
	slot.held, slot.outstanding = false, true
	slot.session.outstanding++
	if at = e.now; !slot.con {
		at = e.probing(slot.session, len(slot.buf))
	}
	e.pendings.reschedule(i, at)
	return at
}

// completed ends that request i is outstanding, and lets the next one of its session leave with the next Tick.
func (e *Endpoint) completed(i int32) {
	slot := &e.pendings.slots[i]
	if !slot.outstanding {
		return
	}
	slot.outstanding = false
	s := slot.session
	s.outstanding--
	next := int32(-1)
	for j := s.head(); j >= 0; j = e.pendings.slots[j].next {
		if e.pendings.slots[j].held && j != i {
			next = j // the list begins with the newest
		}
	}
	if next >= 0 {
		e.take(next)
	}
}

// release frees slot i.
func (e *Endpoint) release(i int32) {
	if e.pendings.slots[i].held {
		e.held--
	}
	e.completed(i)
	e.pendings.release(i)
}

// unwantedAlways reports whether a request wants no response of any class, so that nothing of it is outstanding (RFC 7967).
func unwantedAlways(request *message.Message) bool {
	const all = 1<<1 | 1<<3 | 1<<4
	mask, ok := request.Uint(message.NoResponse)
	return ok && mask&all == all && request.Type == message.Non
}

// GiveUp is Cancel by a caller that has waited long enough: the peer did not respond.
func (e *Endpoint) GiveUp(id ID) bool {
	i, ok := e.pendings.lookup(id)
	if ok {
		e.timedOut(i)
		e.release(i)
	}
	return ok
}

// Waiting reports whether a request of Send has not been sent yet, since others are outstanding or the peer does not respond.
func (e *Endpoint) Waiting(id ID) bool {
	i, ok := e.pendings.lookup(id)
	return ok && e.pendings.slots[i].unsent
}
