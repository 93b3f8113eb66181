package resource

import (
	"time"

	"github.com/weir-lb/weir/internal/coap/exchange"
	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/steering/evict"
	"github.com/weir-lb/weir/internal/steering/heap"
)

// Bounds and times of observation.
const (
	ObserversPerPeer = 64
	MaxObserved      = 512 // bytes of a request that is stored

	ConfirmAfter = 100             // notifications; the next one is confirmable
	ConfirmEvery = 2 * time.Minute // RFC 7641 section 4.5 demands it once a day
	// NonInterval is the shortest time between two non-confirmable notifications of an observer (RFC 7641 section 4.5.1).
	NonInterval = 3 * time.Second

	maxNotification = 1280 // bytes
	retryNotify     = time.Second
	notifyBatch     = 1024 // observers that one Tick serves before the worker reads its socket again
)

// observer is one observation: a request that is executed for each notification.
type observer struct {
	session  *Session
	resource *Resource
	request  []byte // a Non message without Observe
	token    []byte // aliases request
	sequence uint32 // of the newest notification; 24 bits are sent
	mid      uint16 // of the newest notification
	sent     bool   // mid is valid
	awaiting bool   // the acknowledgement of mid
	dirty    bool   // there is a state that was not sent
	lastCon  time.Duration
	lastSent time.Duration
	nons     int // since lastCon
	// protection is that of the request; nil: none. Notifications have the same.
	protection exchange.Protection
	next       int32
}

// subscription is the observers of one Topic.
type subscription struct {
	members map[int32]struct{}
	due     time.Duration // of the next change by itself
}

type observers struct {
	slots    []observer
	due      heap.Heap[time.Duration] // dirty ones, by the time of their notification
	topics   map[*Topic]*subscription
	endings  []ending
	unproven evict.Order[evict.Source]
	free     int32
	count    int
}

// next returns when notifyDue has something to do.
func (o *observers) next() time.Duration {
	next := Never
	if _, due, ok := o.due.First(); ok {
		next = due
	}
	for _, t := range o.topics {
		next = min(next, t.due)
	}
	return next
}

// observed serves a request with an Observe option: it registers, registers again, or cancels (RFC 7641 section 4.1).
func (s *Server) observed(r *Request, method func(*Request)) {
	i := s.observing(r)
	if value, ok := r.Message.Uint(message.Observe); !ok || value != 0 {
		if ok && value == 1 && i >= 0 {
			s.unobserve(i)
		}
		method(r)
		return
	}
	if i = s.observe(r, i); i >= 0 {
		r.observe = int(s.sequence(i))
	}
	method(r)
	if i >= 0 && r.code.Class() != 2 {
		s.unobserve(i)
	}
}

// observing returns the observer of a request's session with its token, or -1. One that was registered with a key is not that of
// a request without it.
func (s *Server) observing(r *Request) int32 {
	for _, i := range r.Session.observers {
		o := &s.observers.slots[i]
		if string(o.token) == string(r.Message.Token) && peerOf(o.protection) == peerOf(r.Protection) {
			return i
		}
	}
	return -1
}

// sequence advances the sequence number of observer i. It is as high as the time in milliseconds, so that it also rises
// from one observation to the next one with the same token (RFC 7641 section 4.4).
func (s *Server) sequence(i int32) uint32 {
	o := &s.observers.slots[i]
	o.sequence++
	return o.sequence & 0xffffff
}

// observe enters the observer of r, in slot i or, with -1, in a new one. It returns -1 if there is no room.
func (s *Server) observe(r *Request, i int32) int32 {
	stored, ok := stored(r.Message)
	if i < 0 && ok {
		i = s.takeObserver(r.Session)
	}
	if i < 0 || !ok {
		s.counters.ObserversRefused++
		return -1
	}
	o := &s.observers.slots[i]
	if o.resource != nil {
		s.leave(i)
	}
	o.resource, o.request, o.dirty, o.protection = r.resource, stored, false, keep(r.Protection)
	s.observers.due.Remove(i)
	o.token = stored[len(stored):]
	if message.Parse(stored, &s.stored) == nil { // what Builder wrote is well formed
		o.token = s.stored.Token
	}
	o.sequence = max(o.sequence, uint32(r.Now/time.Millisecond))
	o.lastCon, o.lastSent, o.nons = r.Now, r.Now, 0
	s.join(i, r.Now)
	return i
}

// copyOptions copies the options of a request that decide about its answer.
func copyOptions(b *message.Builder, m *message.Message) {
	for options := m.Options(); options.Next(); {
		switch id := options.ID(); id {
		case message.Observe, message.Echo, message.Block1:
		default:
			b.Option(id, options.Value())
		}
	}
}

// stored returns the request of an observer as a message of its own, if it is not too long.
func stored(m *message.Message) ([]byte, bool) {
	var b message.Builder
	var buf [MaxObserved]byte
	b.Reset(buf[:0], message.Non, m.Code, 0, m.Token)
	copyOptions(&b, m)
	b.Payload(m.Payload)
	wire, err := b.Bytes()
	return append([]byte(nil), wire...), err == nil
}

// takeObserver returns a slot for an observer of a session, or -1.
func (s *Server) takeObserver(session *Session) int32 {
	o := &s.observers
	if len(session.observers) >= ObserversPerPeer {
		return -1
	}
	if o.count >= s.cfg.MaxObservers {
		i, ok := o.unproven.First()
		if !ok {
			return -1
		}
		s.counters.ObserversEvicted++
		s.unobserve(i)
	}
	i := o.free
	if i >= 0 {
		o.free = o.slots[i].next
	} else {
		i = int32(len(o.slots))
		o.slots = append(o.slots, observer{})
	}
	o.slots[i] = observer{session: session}
	o.count++
	session.observers = append(session.observers, i)
	if !s.cfg.Guard.Proven(session) {
		o.unproven.Add(i, s.cfg.Guard.Source(session))
	}
	return i
}

// join enters observer i under the topic of its resource.
func (s *Server) join(i int32, now time.Duration) {
	topic := s.observers.slots[i].resource.Topic
	if s.observers.topics == nil {
		s.observers.topics = map[*Topic]*subscription{}
	}
	t := s.observers.topics[topic]
	if t == nil {
		t = &subscription{members: map[int32]struct{}{}, due: Never}
		s.observers.topics[topic] = t
		topic.join(s)
		if topic.Every > 0 {
			t.due = now + topic.Every
			s.cfg.Wake(t.due)
		}
	}
	t.members[i] = struct{}{}
}

// leave takes observer i from its topic.
func (s *Server) leave(i int32) {
	topic := s.observers.slots[i].resource.Topic
	t := s.observers.topics[topic]
	delete(t.members, i)
	if len(t.members) == 0 {
		delete(s.observers.topics, topic)
		topic.leave(s)
	}
}

// unobserve ends an observation.
func (s *Server) unobserve(i int32) {
	o := &s.observers.slots[i]
	if o.awaiting {
		s.endpoint.Withdraw(&o.session.Session, o.mid)
		o.session.awaiting = false
	}
	if o.resource != nil {
		s.leave(i)
	}
	session := o.session
	session.observers = without(session.observers, i)
	s.observers.due.Remove(i)
	s.observers.unproven.Remove(i)
	s.observers.count--
	*o = observer{next: s.observers.free}
	s.observers.free = i
	s.resumeNotify(session)
}

// resumeNotify makes the observers of a session due that waited for the acknowledgement of another notification.
func (s *Server) resumeNotify(session *Session) {
	if session.awaiting {
		return
	}
	for _, i := range session.observers {
		if s.observers.slots[i].dirty {
			s.schedule(i, 0)
		}
	}
}

// schedule makes the notification of observer i due at a time.
func (s *Server) schedule(i int32, at time.Duration) {
	s.observers.slots[i].dirty = true
	s.observers.due.Set(i, at)
	s.cfg.Wake(at)
}

// changed makes the notifications of a topic due.
func (s *Server) changed(topic *Topic) {
	topic.received(s)
	if t := s.observers.topics[topic]; t != nil {
		for i := range t.members {
			s.schedule(i, 0)
		}
	}
}

// ending is a call of Topic.End.
type ending struct {
	topic *Topic
	code  message.Code
}

// ended makes the end of a topic's observations due.
func (s *Server) ended(topic *Topic, code message.Code) {
	s.observers.endings = append(s.observers.endings, ending{topic, code})
	s.cfg.Wake(0)
}

// finish ends the observations of a topic.
func (s *Server) finish(end ending, now time.Duration) {
	t := s.observers.topics[end.topic]
	if t == nil {
		return
	}
	for i := range t.members {
		o := &s.observers.slots[i]
		session, protection := o.session, o.protection
		var b message.Builder
		kind := message.Con
		if session.Stream {
			kind = message.Non
		}
		b.Reset(s.out[:0], kind, end.code, 0, o.token)
		last, err := b.Bytes()
		s.unobserve(i)
		if end.code == message.Empty || err != nil {
			continue
		}
		if last = protected(protection, last); last != nil {
			s.endpoint.Notify(&session.Session, last, !s.cfg.Guard.Proven(session), now)
		}
	}
}

// notifyDue sends the notifications that are due.
func (s *Server) notifyDue(now time.Duration) {
	for _, end := range s.observers.endings {
		s.finish(end, now)
	}
	s.observers.endings = s.observers.endings[:0]
	for _, t := range s.observers.topics {
		if t.due <= now {
			for i := range t.members {
				s.schedule(i, now)
			}
		}
	}
	for topic, t := range s.observers.topics {
		if t.due <= now {
			t.due += topic.Every * (1 + (now-t.due)/topic.Every)
		}
	}
	for range notifyBatch {
		i, due, ok := s.observers.due.First()
		if !ok || due > now {
			return
		}
		s.observers.due.Remove(i)
		s.notify(i, now)
	}
}

// notify sends observer i the present state, or decides when.
func (s *Server) notify(i int32, now time.Duration) {
	o := &s.observers.slots[i]
	session, topic := o.session, o.resource.Topic
	proven := s.cfg.Guard.Proven(session)
	confirm := !session.Stream && (topic.Confirmable || !proven || o.nons >= ConfirmAfter || now-o.lastCon >= ConfirmEvery)
	if session.awaiting { // RFC 7252 section 4.7: the client may not respond at all
		return // until that is acknowledged; then the state of that time is sent
	}
	if !confirm && !session.Stream && o.sent && now-o.lastSent < NonInterval {
		s.schedule(i, o.lastSent+NonInterval)
		return
	}
	datagram, code := s.execute(i, now)
	if datagram = protected(o.protection, datagram); datagram == nil {
		s.schedule(i, now+retryNotify)
		return
	}
	if confirm {
		datagram[0] &^= 0x30 // Con
	}
	mid, ok := s.endpoint.Notify(&session.Session, datagram, !proven, now)
	switch {
	case code.Class() != 2:
		s.unobserve(i) // RFC 7641 section 4.2
		return
	case !ok:
		s.schedule(i, now+retryNotify)
		return
	}
	s.counters.Notifications++
	o.mid, o.sent, o.dirty, o.lastSent = mid, true, false, now
	o.nons++
	if confirm {
		o.awaiting, session.awaiting, o.lastCon, o.nons = true, true, now, 0
	}
}

// execute executes the request of observer i and returns the answer, a Non message; nil if there is no room for it.
func (s *Server) execute(i int32, now time.Duration) ([]byte, message.Code) {
	o := &s.observers.slots[i]
	room := min(cap(s.out), s.cfg.Guard.Room(o.session))
	if o.protection != nil {
		room -= s.cfg.Overhead
	}
	if room <= 0 || message.Parse(o.request, &s.stored) != nil {
		return nil, 0
	}
	s.reply.Reset(&s.stored, s.out[:0:room])
	r := &s.request
	s.begin(r, &s.stored, o.session, now)
	r.Notification, r.resource, r.reply, r.observe = true, o.resource, &s.reply, int(s.sequence(i))
	r.Protection = o.protection
	r.Path = appendPath(s.path[:0], r.Message)
	if method := o.resource.method(s.stored.Code); method != nil {
		method(r)
	}
	return s.reply.Message(), r.code
}

// Notified is exchange.Config.Notified.
func (s *Server) Notified(es *exchange.Session, mid uint16, outcome exchange.Outcome) {
	session, ok := es.Peer.(*Session)
	if !ok {
		return
	}
	for _, i := range session.observers {
		o := &s.observers.slots[i]
		if !o.sent || o.mid != mid {
			continue
		}
		if o.awaiting {
			o.awaiting, session.awaiting = false, false
		}
		if outcome == exchange.NotifyDelivered {
			s.resumeNotify(session)
			return
		}
		s.counters.ObserversLost++
		s.unobserve(i)
		if outcome == exchange.NotifyTimeout { // the client is gone (RFC 7641 section 4.5)
			for len(session.observers) > 0 {
				s.counters.ObserversLost++
				s.unobserve(session.observers[0])
			}
		}
		return
	}
}
