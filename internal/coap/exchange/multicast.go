package exchange

import (
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
)

// Bounds of answers to requests to multicast groups.
const (
	// multicastShare is the share of Config.MaxPending that may be answers waiting for their time: 1/multicastShare of it.
	multicastShare = 64
	// maxLeisure is NON_LIFETIME (RFC 7252 section 4.8.2): after it, the client may use the token for another request.
	maxLeisure = 145 * time.Second
)

// Leisure is the time within which a server answers a request to a multicast group (RFC 7252 section 8.2). Every answer leaves at a
// random point of it, so that the servers of a group do not all answer at once.
type Leisure struct {
	Default   time.Duration // where Rate or GroupSize is 0; default 5 s (DEFAULT_LEISURE)
	GroupSize int           // estimate of the servers in the group
	Rate      int           // bytes per second that the client's network may receive from all of them
}

// Of returns the leisure for an answer of size bytes: size * GroupSize / Rate if both are known, at most 145 s.
func (l Leisure) Of(size int) time.Duration {
	if l.GroupSize <= 0 || l.Rate <= 0 {
		return min(l.Default, maxLeisure)
	}
	seconds := float64(size) * float64(l.GroupSize) / float64(l.Rate)
	return time.Duration(min(seconds*float64(time.Second), float64(maxLeisure)))
}

// ReceiveMulticast handles a datagram that session s sent to a multicast group (RFC 7252 section 8). It executes a non-confirmable
// request that Config.Multicast allows, and sends the answer to s within Config.Leisure. It builds the answer in out[:0:cap(out)].
// Everything else has no answer and is counted: a confirmable message, a request that came before, an error and an empty result,
// unless the request has a No-Response option, which then decides (RFC 7967 section 2.1).
func (e *Endpoint) ReceiveMulticast(s *Session, in, out []byte, now time.Duration) {
	m := &e.request
	if message.Parse(in, m) != nil {
		e.counters.Malformed++
		return
	}
	e.counters.Multicast++
	if m.Type != message.Non || !m.Code.IsRequest() || e.handler == nil || e.cfg.Multicast == nil || !e.cfg.Multicast(m) {
		e.counters.MulticastIgnored++
		return
	}
	if _, bad := m.BadOption(e.cfg.Supported); bad {
		e.counters.MulticastIgnored++
		return
	}
	if s.ring == nil {
		s.ring = new(ring)
	}
	if s.ring.find(m.ID, now) >= 0 { // it also came to another group, or by another interface
		e.counters.Duplicates++
		return
	}
	if _, early := s.ring.add(m.ID, memorySilent, now, e.cfg.NonLifetime); early {
		e.counters.Overwritten++
	}
	if e.pendings.multicast >= max(1, e.cfg.MaxPending/multicastShare) {
		e.counters.MulticastRefused++
		return
	}
	r := &e.reply
	answer := e.execute(s, m, r, out[:0], now)
	if answer == nil || r.silent || !useful(m, answer) {
		e.counters.MulticastIgnored++
		return
	}
	e.answerWithin(s, answer, r, now)
}

// answerWithin schedules an answer at a random point of the leisure.
func (e *Endpoint) answerWithin(s *Session, answer []byte, r *Reply, now time.Duration) {
	r.delay = time.Duration(float64(e.rand()>>11) / (1 << 53) * float64(e.cfg.Leisure.Of(len(answer))))
	slot, i := e.takeFor(s, answer, r)
	if slot == nil {
		e.counters.MulticastRefused++
		return
	}
	slot.kind, slot.unsent, slot.mid, slot.multicast = kindResponse, true, e.NextID(s), true
	setMID(slot.buf, slot.mid)
	e.pendings.multicast++
	e.counters.MulticastAnswers++
	e.pendings.attach(i, s, now+r.delay)
}

// useful reports whether an answer to a request to a group is worth sending (RFC 7252 section 8.2).
func useful(request *message.Message, answer []byte) bool {
	if _, chosen := request.Uint(message.NoResponse); chosen {
		return true
	}
	var m message.Message
	return message.Parse(answer, &m) == nil && m.Code.Class() == 2 && (m.Code != message.Content || len(m.Payload) > 0)
}
