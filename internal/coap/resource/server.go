package resource

import (
	"hash/maphash"
	"math"
	"slices"
	"time"

	"github.com/weir-lb/weir/internal/coap/exchange"
	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/steering/evict"
)

// EchoLength is the length of the values of Guard.Echo, in bytes.
const EchoLength = 6

// Guard knows what may be sent to a peer whose address may be forged (RFC 7252 section 11.3).
type Guard interface {
	// Proven reports whether the peer has proven its address.
	Proven(s *Session) bool
	// Source is who is accountable for the peer's address.
	Source(s *Session) evict.Source
	// Empty is the length of an empty message to the peer on the wire, in bytes.
	Empty(s *Session) int
	// Room is how many bytes a message may have that is sent to the peer now; negative: none may be sent.
	Room(s *Session) int
	// Probe adds a probe of the peer's address to reply, if there is no better method to prove it.
	Probe(s *Session, reply *exchange.Reply)
	// Echo returns an Echo value for the peer's address, valid until the next call.
	Echo(s *Session, now time.Duration) []byte
}

// Config is what a Server needs. Zero values take the defaults named.
type Config struct {
	Tree  *Tree
	Guard Guard
	// Fresh reports whether a request with an unsafe method is known to be a new one, of now (RFC 9175 section 2.3). If not, the client is asked
	// for it again with an Echo option. nil: all are.
	Fresh func(s *Session, m *message.Message, now time.Duration) bool
	// Exponent is the size of the largest block sent, as 16 << Exponent bytes; longer answers are sent in blocks. 0 to 6.
	Exponent     uint32
	MaxBody      int // bytes of a request's body in blocks; default 8192
	MaxBytes     int // of all bodies of the Server; default 16 MiB
	MaxObservers int // default 65536
	Overhead     int // bytes by which exchange.Protection makes a message longer

	// Post runs a function on the goroutine of the Server, soon, and never before it returns; it is called from any goroutine. nil: Topics do not reach the
	// Server.
	Post func(func()) bool
	// Wake requests a call of Tick no later than at, on the goroutine of the Server.
	Wake func(at time.Duration)
}

// Counters count since New. Read them on the goroutine of the Server.
type Counters struct {
	Observers        int    `json:"observers" metric:"_observers" help:"Observations that are registered now."`
	Bodies           int    `json:"bodies" metric:"_bodies" help:"Request bodies in blocks that are under way now, and answers stored for their next block."`
	BodyBytes        int    `json:"body_bytes" metric:"_body_bytes" help:"Bytes of these bodies."`
	Incomplete       uint64 `json:"incomplete" metric:"_incomplete_total" help:"Blocks without the blocks before them, answered with 4.08."`
	BodiesTooLarge   uint64 `json:"bodies_too_large" metric:"_bodies_too_large_total" help:"Request bodies beyond the bound, answered with 4.13."`
	BodiesRefused    uint64 `json:"bodies_refused" metric:"_bodies_refused_total" help:"Bodies for which there was no room, answered with 5.03."`
	BodiesEvicted    uint64 `json:"bodies_evicted" metric:"_bodies_evicted_total" help:"Bodies that made room for other ones."`
	BodiesExpired    uint64 `json:"bodies_expired" metric:"_bodies_expired_total" help:"Bodies dropped because no further block came."`
	Notifications    uint64 `json:"notifications" metric:"_notifications_total" help:"Notifications sent to observers, repetitions not counted."`
	ObserversRefused uint64 `json:"observers_refused" metric:"_observers_refused_total" help:"Registrations answered without Observe because there was no room."`
	ObserversEvicted uint64 `json:"observers_evicted" metric:"_observers_evicted_total" help:"Observations of addresses without proof that made room for other ones."`
	ObserversLost    uint64 `json:"observers_lost" metric:"_observers_lost_total" help:"Observations ended because the client did not acknowledge a notification, or rejected it."`
}

// Session is one peer of a Server. Its exchange.Session has the Session as its Peer. It must be given to Forget at its end.
type Session struct {
	exchange.Session
	Owner any // belongs to the owner of the Server

	transfers []int32
	observers []int32
	// Stream: the peer is connected by TCP or TLS (RFC 8323), so nothing is acknowledged, and a message may have any length that the
	// peer accepts. The owner sets it before the first request.
	Stream bool
	// BERT is how many bytes of blocks one message to the peer may carry, a multiple of 1024; 0: the peer does not know BERT (RFC
	// 8323 section 6).
	BERT int

	deferred int  // requests without their Deferred.Answer
	awaiting bool // the acknowledgement of a notification: one at a time (NSTART, RFC 7252 section 4.7)
}

// Idle reports whether the peer has neither bodies in blocks, observations nor answers that are to come later, and its exchanges are
// over: a new Session may take its place.
func (s *Session) Idle(now time.Duration) bool {
	return s.deferred == 0 && len(s.transfers) == 0 && len(s.observers) == 0 && !s.awaiting && s.Session.Idle(now)
}

// Busy reports whether something is to come later: an answer, a further block, or the acknowledgement of a notification.
func (s *Session) Busy() bool { return s.deferred > 0 || len(s.transfers) > 0 || s.awaiting }

// Server serves a Tree to the peers of one worker. Not for concurrent use.
type Server struct {
	cfg       Config
	endpoint  *exchange.Endpoint
	request   Request // here, so that serving does not allocate
	path      [maxPath]byte
	seed      maphash.Seed
	transfers transfers
	observers observers
	counters  Counters

	stored message.Message // of a notification
	reply  exchange.Reply
	out    []byte
}

// Never is a time that does not come.
const Never = time.Duration(math.MaxInt64)

// New returns a Server. The endpoint that calls it is set with Bind.
func New(cfg Config) *Server {
	if cfg.MaxBody == 0 {
		cfg.MaxBody = 8192
	}
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = 16 << 20
	}
	if cfg.MaxObservers == 0 {
		cfg.MaxObservers = 65536
	}
	return &Server{cfg: cfg, seed: maphash.MakeSeed(), out: make([]byte, 0, maxNotification), observers: observers{free: -1}, transfers: transfers{free: -1}}
}

// Bind sets the endpoint by which notifications leave. Its Handler is the Server, its Config.Notified is Server.Notified.
func (s *Server) Bind(e *exchange.Endpoint) { s.endpoint = e }

// Counters returns the counters since New.
func (s *Server) Counters() Counters {
	c := s.counters
	c.Observers, c.Bodies, c.BodyBytes = s.observers.count, s.transfers.count, s.transfers.bytes
	return c
}

// Supported names the critical options that every resource understands. Uri-Host and Uri-Port may name any host: the server
// is not virtual.
func Supported(id message.OptionID) bool {
	switch id {
	case message.URIHost, message.URIPort, message.URIPath, message.URIQuery, message.Accept, message.Block1, message.Block2,
		message.IfMatch, message.IfNoneMatch:
		return true
	}
	return false
}

// Serve implements [exchange.Handler].
func (s *Server) Serve(es *exchange.Session, m *message.Message, reply *exchange.Reply, now time.Duration) {
	session, ok := es.Peer.(*Session)
	if !ok {
		return // 5.00: not a session of this Server
	}
	if !s.cfg.Guard.Proven(session) {
		reply.Unproven(s.cfg.Guard.Empty(session))
	}
	r := &s.request
	s.begin(r, m, session, now)
	r.reply = reply
	r.Protection = reply.Protection()
	if s.cfg.Fresh != nil && !m.Code.IsSafe() && !s.cfg.Fresh(session, m, now) {
		r.challenge()
		return
	}
	method := r.route(s.path[:0])
	if method == nil || !r.permitted() || !r.holds() || !s.body(r) {
		return
	}
	if _, observe := m.Option(message.Observe); observe && r.resource.Topic != nil && m.Code.IsSafe() && r.block1 < 0 && r.First() {
		s.observed(r, method)
		return
	}
	method(r)
}

// begin makes r the state of a request. It clears r in place: an assignment of a composite literal copies twice the bytes.
func (s *Server) begin(r *Request, m *message.Message, session *Session, now time.Duration) {
	*r = Request{}
	r.Message, r.Session, r.Now, r.Body, r.server, r.block1, r.observe = m, session, now, m.Payload, s, -1, -1
}

// route returns the method of the request, or answers that there is none.
func (r *Request) route(path []byte) func(*Request) {
	r.Path = appendPath(path, r.Message)
	found, ok := r.server.cfg.Tree.find(r.Path)
	if !ok {
		r.Error(message.NotFound, "no such resource; /.well-known/core lists them")
		return nil
	}
	r.resource = found
	method := found.method(r.Message.Code)
	if method == nil {
		r.code = message.MethodNotAllowed
		r.reply.Begin(message.MethodNotAllowed)
	}
	return method
}

// permitted answers 4.01 if the resource takes only protected requests and this one is not.
func (r *Request) permitted() bool {
	if !r.resource.Protected || r.Protection != nil {
		return true
	}
	r.Error(message.Unauthorized, "only with OSCORE (RFC 8613)")
	return false
}

// holds checks If-Match and If-None-Match, and answers 4.12 if one of them fails (RFC 7252 section 5.10.8).
func (r *Request) holds() bool {
	_, ifMatch := r.Message.Option(message.IfMatch)
	_, ifNoneMatch := r.Message.Option(message.IfNoneMatch)
	if !ifMatch && !ifNoneMatch {
		return true
	}
	var tag []byte
	exists := true
	if r.resource.State != nil {
		tag, exists = r.resource.State(r)
	}
	if !(ifNoneMatch && exists) && (!ifMatch || r.matches(tag, exists)) {
		return true
	}
	r.Error(message.PreconditionFailed, "")
	if r.resource.Unmet != nil {
		r.resource.Unmet()
	}
	return false
}

// matches reports whether an If-Match option names the tag, or is empty while there is a representation.
func (r *Request) matches(tag []byte, exists bool) bool {
	for options := r.Message.Options(); options.Next() && options.ID() <= message.IfMatch; {
		if value := options.Value(); options.ID() == message.IfMatch && (len(value) == 0 && exists || len(value) > 0 && string(value) == string(tag)) {
			return true
		}
	}
	return false
}

// Proved must be called when a session's address has been proven.
func (s *Server) Proved(session *Session) {
	for _, i := range session.transfers {
		if s.transfers.unproven.Remove(i) {
			s.transfers.proven.Add(i, s.cfg.Guard.Source(session))
		}
	}
	for _, i := range session.observers {
		s.observers.unproven.Remove(i)
	}
}

// Forget drops everything of a session that closes.
func (s *Server) Forget(session *Session) {
	for len(session.transfers) > 0 {
		s.drop(session.transfers[0])
	}
	for len(session.observers) > 0 {
		s.unobserve(session.observers[0])
	}
}

// Tick runs what is due, and returns when it must be called again.
func (s *Server) Tick(now time.Duration) time.Duration {
	s.expire(now)
	s.notifyDue(now)
	next := s.observers.next()
	if _, due, ok := s.transfers.due.First(); ok {
		next = min(next, due)
	}
	return next
}

// without returns list without one element; the order may change.
func without(list []int32, element int32) []int32 {
	if i := slices.Index(list, element); i >= 0 {
		list[i] = list[len(list)-1]
		list = list[:len(list)-1]
	}
	if len(list) == 0 {
		return nil
	}
	return list
}
