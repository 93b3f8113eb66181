package exchange

import (
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
)

// Outcome is how a message of Notify ended.
type Outcome uint8

// Outcomes of Config.Notified.
const (
	NotifyDelivered Outcome = iota // acknowledged
	NotifyRejected                 // answered with Rst: the peer does not observe (RFC 7641 section 3.6)
	NotifyTimeout                  // all retransmissions unanswered
)

// Notify sends a response outside of an exchange, such as a notification of RFC 7641: datagram is a Con or Non message with a
// response code, and is copied. It returns the message id that it gave the message. A Con is repeated until its end, which
// Config.Notified reports; a Non is sent once. unproven counts it against the share of Reply.Unproven. It returns false
// when the message is longer than Config.MaxMessage, or when a bound on pending messages is reached.
func (e *Endpoint) Notify(s *Session, datagram []byte, unproven bool, now time.Duration) (mid uint16, ok bool) {
	if len(datagram) < 4 || len(datagram) > e.cfg.MaxMessage {
		e.counters.TooLarge++
		return 0, false
	}
	if message.Type(datagram[0]>>4&3) == message.Non {
		mid = e.NextID(s)
		setMID(datagram, mid)
		e.counters.Sent++
		e.counters.Notifications++
		e.sender.SendTo(s, datagram, now)
		return mid, true
	}
	slot, i := e.takeFor(s, datagram, &Reply{unproven: unproven})
	if slot == nil {
		return 0, false
	}
	mid = e.NextID(s)
	slot.kind, slot.con, slot.mid, slot.first = kindNotify, true, mid, now
	setMID(slot.buf, mid)
	e.counters.Notifications++
	e.pendings.attach(i, s, now)
	e.transmit(i, now)
	return mid, true
}

// Respond sends the response to an earlier request of s, one that Reply.Silent left unanswered, as a message of its own (RFC 7252
// section 5.2.2): datagram is a Con or Non message with the token of the request, and is copied. A Con is repeated until it is
// acknowledged. unproven counts it against the share of Reply.Unproven. It returns false as Notify does.
func (e *Endpoint) Respond(s *Session, datagram []byte, unproven bool, now time.Duration) bool {
	if len(datagram) < 4 {
		return false
	}
	t := message.Type(datagram[0] >> 4 & 3)
	if !e.later(s, datagram, t, &Reply{unproven: unproven}, now) {
		return false
	}
	if t == message.Con {
		e.counters.Separate++
	}
	return true
}

// freshFor is how long the order of sequence numbers is valid (RFC 7641 section 3.4).
const freshFor = 128 * time.Second

// Newer reports whether the notification with this value of its Observe option is newer than the newest one so far, which has last
// and came before (RFC 7641 section 3.4).
func Newer(sequence, last uint32, before time.Duration) bool {
	const half = 1 << 23
	return last < sequence && sequence-last < half || last > sequence && last-sequence > half || before > freshFor
}

// Withdraw ends a pending message of Notify without a call of Config.Notified, and reports whether it was pending.
func (e *Endpoint) Withdraw(s *Session, mid uint16) bool {
	i := e.pendings.byMID(s, mid)
	if i < 0 || e.pendings.slots[i].kind != kindNotify {
		return false
	}
	e.pendings.release(i)
	return true
}

// notified releases slot i, a notification, and reports its outcome.
func (e *Endpoint) notified(i int32, outcome Outcome) {
	s, mid := e.pendings.slots[i].session, e.pendings.slots[i].mid
	e.pendings.release(i)
	if e.cfg.Notified != nil {
		e.cfg.Notified(s, mid, outcome)
	}
}

// Unwanted reports whether the No-Response option of a request wants no response of this code (RFC 7967 section 2.1).
func Unwanted(request *message.Message, code message.Code) bool {
	mask, ok := request.Uint(message.NoResponse)
	return ok && mask <= 0xff && code.Class() > 0 && mask>>(code.Class()-1)&1 != 0
}
