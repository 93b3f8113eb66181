package replica

import (
	"fmt"
	"maps"
	"slices"
)

// queue is numbers of sessions, in the order in which they came. A session is in one queue at most once.
type queue struct {
	numbers []uint64
	first   int
}

func (q *queue) push(number uint64) { q.numbers = append(q.numbers, number) }

// peek returns the first number; ok is false if there is none.
func (q *queue) peek() (number uint64, ok bool) {
	if q.first == len(q.numbers) {
		return 0, false
	}
	return q.numbers[q.first], true
}

func (q *queue) drop() {
	if q.first++; q.first == len(q.numbers) {
		q.numbers, q.first = q.numbers[:0], 0
	} else if q.first > 1024 && q.first > len(q.numbers)/2 {
		q.numbers = append(q.numbers[:0], q.numbers[q.first:]...)
		q.first = 0
	}
}

// enqueue has a session sent, unless it is going to be.
func (n *Node) enqueue(q *queue, s *session) {
	if s.queued || n.flying[s.number] != nil || n.line.buddy == (Process{}) {
		return
	}
	s.queued = true
	q.push(s.number)
}

// restart begins with a buddy that has no copies yet. What earlier ones have cannot be restored any more.
func (n *Node) restart(o *Output) {
	n.urgent, n.later, n.refused = queue{}, queue{}, queue{}
	clear(n.flying)
	for _, number := range slices.Sorted(maps.Keys(n.sessions)) {
		s := n.sessions[number]
		s.sentIn, s.offeredIn, s.stored, s.refused, s.queued, s.changed, s.inherited = 0, 0, false, false, false, true, false
		if s.removing {
			n.removed(s, o)
			continue
		}
		if n.halfUsed(s) { // and so no limit is needed for them
			s.usable = max(s.usable, n.ahead(s.used))
			s.offered = max(s.offered, s.usable)
			o.Limits = append(o.Limits, Limit{s.number, s.usable})
		}
		n.enqueue(&n.later, s)
	}
}

// repeat sends what has no Ack once more, and what was refused a while ago.
func (n *Node) repeat() {
	for _, number := range slices.Sorted(maps.Keys(n.flying)) {
		if s := n.flying[number]; n.now-s.sentAt >= repeatEvery {
			delete(n.flying, number)
			n.enqueue(&n.urgent, s)
		}
	}
	if n.now < n.retryAt {
		return
	}
	for number, ok := n.refused.peek(); ok; number, ok = n.refused.peek() {
		n.refused.drop()
		if s := n.sessions[number]; s != nil && s.refused {
			n.enqueue(&n.later, s)
		}
	}
}

// transmit sends batches, as long as there is something to send and few sessions are without an Ack.
func (n *Node) transmit(o *Output) {
	l := &n.line
	if l.fenced || l.buddy == (Process{}) {
		return
	}
	for len(n.flying) < window {
		m := n.next()
		if len(m.items) == 0 && n.now-l.sentAt < heartbeatEvery && l.sentAt > 0 {
			return
		}
		l.serial = m.serial
		l.sent[l.serial%sentRing], l.sentAt = n.now, max(n.now, 1)
		o.Send = append(o.Send, Send{l.buddy.Node, m.append(make([]byte, 0, maxBatch))})
		if len(m.items) == 0 {
			return
		}
	}
}

// next makes the next batch of what is queued.
func (n *Node) next() batch {
	l := &n.line
	m := batch{boot: n.cfg.Self.Boot, to: l.buddy.Boot, term: l.term, serial: l.serial + 1}
	size := batchHeader
	if l.resuming { // the buddy has copies by the numbers of the process before
		return m
	}
	for _, q := range []*queue{&n.urgent, &n.later} {
		for number, ok := q.peek(); ok; number, ok = q.peek() {
			s := n.sessions[number]
			if s == nil || !s.queued {
				q.drop()
				continue
			}
			i := n.item(s)
			if size += i.size(); size > maxBatch || len(n.flying) >= window {
				return m
			}
			q.drop()
			n.sent(s, &i, m.serial)
			m.items = append(m.items, i)
		}
	}
	return m
}

// item makes what a batch says of a session, but for its limit.
func (n *Node) item(s *session) item {
	if s.removing {
		return item{number: s.number, op: opRemove}
	}
	static, changing := n.cfg.Slot(s.number)
	if len(static) > MaxStatic || len(changing) > MaxChanging {
		panic(fmt.Sprintf("replica: a session of %d and %d bytes", len(static), len(changing)))
	}
	if s.stored {
		return item{number: s.number, op: opChange, changing: changing}
	}
	return item{number: s.number, op: opPut, static: static, changing: changing}
}

// sent notes that an item is in a batch, and sets the limit that it offers.
func (n *Node) sent(s *session, i *item, serial uint64) {
	if limit := n.ahead(s.used); limit > s.offered && s.offered == s.usable && !s.removing {
		s.offered, s.offeredIn = limit, 0
	}
	if s.offeredIn == 0 {
		s.offeredIn = serial
	}
	if s.removing && s.removedIn == 0 {
		s.removedIn = serial
	}
	s.sentIn, s.sentAt, s.queued, s.changed, s.refused = serial, n.now, false, false, false
	n.flying[s.number] = s
	i.limit = s.offered
}

// acknowledged handles an Ack.
func (n *Node) acknowledged(from uint8, m *ack, o *Output) {
	l := &n.line
	if l.fenced || m.owner != n.cfg.Self.Boot || m.term != l.term || l.buddy != (Process{from, m.boot}) || m.serial == 0 || m.serial > l.serial {
		return
	}
	if at := l.sent[m.serial%sentRing]; l.serial-m.serial < sentRing && at > 0 {
		l.heard = n.now
		l.sealUntil = max(l.sealUntil, at+Hold-margin)
	}
	for _, a := range m.answers {
		if s := n.sessions[a.number]; s != nil && s.sentIn > 0 {
			n.answered(s, m.serial, a.result, o)
		}
	}
}

// answered handles what has become of a session in a batch.
func (n *Node) answered(s *session, serial uint64, r result, o *Output) {
	newest := serial == s.sentIn
	if newest {
		delete(n.flying, s.number)
	}
	switch {
	case s.removing:
		if s.removedIn > 0 && serial >= s.removedIn { // earlier batches had the session itself
			n.removed(s, o)
		} else if newest {
			n.enqueue(&n.urgent, s)
		}
		return
	case s.refused: // a repeated answer
		return
	case r == resultStored:
		s.stored = true
		if serial >= s.offeredIn && s.offered > s.usable {
			s.usable = s.offered
			o.Limits = append(o.Limits, Limit{s.number, s.usable})
		}
	case !newest: // a later batch may be stored
		return
	default:
		s.stored, s.refused, s.changed = false, true, true
		n.refused.push(s.number)
		n.retryAt = n.now + retryAfter
		return
	}
	switch {
	case newest && s.changed && n.halfUsed(s):
		n.enqueue(&n.urgent, s)
	case newest && s.changed:
		n.enqueue(&n.later, s)
	}
}
