package node

import (
	"hash/fnv"
	"net/netip"
	"time"

	"github.com/weir-lb/weir/internal/coap/exchange"
	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/dtls/engine"
)

// request is one request on its way through a resource; valid during the call only.
type request struct {
	handler *handler
	session *session
	peer    *engine.Peer // of session
	message *message.Message
	reply   *exchange.Reply
	now     time.Duration
}

// resource is one path of the server. A nil method is answered 4.05.
type resource struct {
	attributes string // in link-format, with a leading semicolon each
	hidden     bool   // not listed
	get, post  func(*request)
}

// dispatcher is the handler as [exchange.Handler]; both interfaces name their method Serve.
type dispatcher struct{ h *handler }

// Serve implements [exchange.Handler].
func (d dispatcher) Serve(s *exchange.Session, m *message.Message, reply *exchange.Reply, now time.Duration) {
	h := d.h
	r := &h.request
	owner, ok := s.Peer.(*session)
	if !ok {
		return // 5.00: not a session of this handler
	}
	*r = request{handler: h, session: owner, peer: owner.peer, message: m, reply: reply, now: now}
	found, ok := h.listener.resources[string(r.appendPath(h.path[:0]))]
	if !ok {
		reply.Text(message.NotFound, "no such resource; /.well-known/core lists them")
		return
	}
	serve := found.get
	if m.Code == message.POST {
		serve = found.post
	} else if m.Code != message.GET {
		serve = nil
	}
	if serve == nil {
		reply.Begin(message.MethodNotAllowed)
		return
	}
	serve(r)
}

// appendPath appends the path to dst, which it never grows; a path too long or with a slash inside a segment gives one that is
// not found.
func (r *request) appendPath(dst []byte) []byte {
	for options := r.message.Options(); options.Next() && options.ID() <= message.URIPath; {
		if options.ID() != message.URIPath {
			continue
		}
		segment := options.Value()
		if len(dst)+1+len(segment) > cap(dst) {
			return append(dst[:0], '?')
		}
		for _, c := range segment {
			if c == '/' {
				return append(dst[:0], '?')
			}
		}
		dst = append(append(dst, '/'), segment...)
	}
	if len(dst) == 0 {
		dst = append(dst, '/')
	}
	return dst
}

// noQuery answers 4.02 when there is any query, and tells whether there was none.
func (r *request) noQuery() bool {
	if query, ok := r.message.Option(message.URIQuery); ok {
		r.badQuery(query, "none is")
		return false
	}
	return true
}

// badQuery answers 4.02 with a text, as Californium's strict query check does.
func (r *request) badQuery(query []byte, known string) {
	r.reply.Text(message.BadOption, "query \""+quotable(query)+"\" is not supported; "+known)
}

// quotable shortens what a client sent and replaces what is not printable ASCII.
func quotable(value []byte) string {
	text := make([]byte, 0, 32)
	for _, c := range value[:min(len(value), 32)] {
		if c < ' ' || c > '~' || c == '"' {
			c = '?'
		}
		text = append(text, c)
	}
	return string(text)
}

// accepts returns the format to answer in: that of Accept if it is among offered, the first offered without Accept; else it
// answers 4.06.
func (r *request) accepts(offered ...message.Format) (message.Format, bool) {
	if _, present := r.message.Option(message.Accept); !present {
		return offered[0], true
	}
	if f, ok := r.message.Format(message.Accept); ok {
		for _, o := range offered {
			if f == o {
				return f, true
			}
		}
	}
	r.reply.Begin(message.NotAcceptable)
	return 0, false
}

// A payload is sent in one message up to a block, longer ones in blocks (RFC 7959). A plain request from a public address
// may carry a forged source, so what it gets stays small, as with Californium: no amplifier (RFC 7252 section 11.3).
const (
	maxExponent    = 6 // 1024 bytes
	publicExponent = 2 // 64 bytes
)

// blockExponent is the size of the largest block for a peer, as 16 << exponent.
func blockExponent(secure bool, peer netip.Addr) uint32 {
	if exposed(secure, peer) {
		return publicExponent
	}
	return maxExponent
}

// exposed says whether a request with this source may have been forged to have us send to it.
func exposed(secure bool, peer netip.Addr) bool {
	peer = peer.Unmap()
	return !secure && peer.IsGlobalUnicast() && !peer.IsPrivate()
}

// separate has the response sent by itself, repeated until it is acknowledged only if the source is no forgery.
func (r *request) separate(delay time.Duration) {
	r.reply.Separate(delay)
	if exposed(r.handler.listener.secure, r.peer.Addr().Addr()) {
		r.reply.Once()
	}
}

// blockOverhead is the most that header and options of a block take, without the token.
const blockOverhead = 32

// withinBudget lowers the block size to what a peer may get whose address has changed and is not proven. The first such block
// travels as a separate confirmable response: its acknowledgement proves the address, and the limit is gone.
func (r *request) withinBudget(exponent uint32, body int) uint32 {
	room := r.peer.Budget() - blockOverhead - len(r.message.Token)
	if min(body, 16<<exponent) <= room {
		return exponent
	}
	for exponent > 0 && 16<<exponent > room {
		exponent--
	}
	if r.message.Type == message.Con {
		r.reply.Prove()
		r.session.proving = r.peer.Addr()
	}
	return exponent
}

// body answers with a representation, in blocks when it is long or the client asks for it. It keeps no state: every block is
// cut from the body as it is at its time, and the ETag lets the client see a change (RFC 7959 section 2.4).
func (r *request) body(code message.Code, format message.Format, body []byte) {
	wish, asked := r.message.Uint(message.Block2)
	limit := r.withinBudget(blockExponent(r.handler.listener.secure, r.peer.Addr().Addr()), len(body))
	if !asked && len(body) <= 16<<limit {
		b := r.reply.Begin(code)
		b.Uint(message.ContentFormat, uint32(format))
		b.Payload(body)
		return
	}
	exponent := limit
	if asked {
		exponent = wish & 7
	}
	if exponent == 7 { // reserved, RFC 7959 section 2.2
		r.reply.Text(message.BadRequest, "Block2: reserved block size")
		return
	}
	start := int(wish>>4) << (4 + exponent)
	if start > 0 && start >= len(body) {
		r.reply.Text(message.BadOption, "Block2: behind the end")
		return
	}
	exponent = min(exponent, limit)
	end := min(start+(16<<exponent), len(body))
	hash := fnv.New32a()
	_, _ = hash.Write(body)
	b := r.reply.Begin(code)
	sum := hash.Sum32()
	b.Option(message.ETag, []byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)})
	b.Uint(message.ContentFormat, uint32(format))
	value := uint32(start)>>(4+exponent)<<4 | exponent
	if end < len(body) {
		value |= 8
	}
	b.Uint(message.Block2, value)
	if start == 0 {
		b.Uint(message.Size2, uint32(len(body)))
	}
	b.Payload(body[start:end])
}
