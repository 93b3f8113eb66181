package node

import (
	"hash/fnv"
	"time"

	"github.com/weir-lb/weir/internal/coap/exchange"
	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/dtls/engine"
)

// request is the state of one request in a resource; valid during the call only.
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

// emptyLength is the length of an empty acknowledgement in bytes.
const emptyLength = 4

// Serve implements [exchange.Handler].
func (d dispatcher) Serve(s *exchange.Session, m *message.Message, reply *exchange.Reply, now time.Duration) {
	h := d.h
	r := &h.request
	owner, ok := s.Peer.(*session)
	if !ok {
		return // 5.00: not a session of this handler
	}
	*r = request{handler: h, session: owner, peer: owner.peer, message: m, reply: reply, now: now}
	if !owner.peer.Proven() {
		reply.Unproven(emptyLength + owner.peer.Overhead())
	}
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

// appendPath appends the path to dst without growing it. A path that is too long, or has a slash inside a segment, becomes
// one that is not found.
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

// noQuery answers 4.02 if there is a query, and reports whether there was none.
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

// accepts returns the format of the answer: the one of Accept if it is among offered, or the first offered one without
// Accept. Otherwise it answers 4.06.
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

// maxExponent is the size of the largest block, as 16 << exponent: a payload is sent in one message up to 1024 bytes,
// longer ones in blocks (RFC 7959).
const maxExponent = 6

// probe starts a probe of the client's address, unless the client has a better method to prove it.
func (r *request) probe() {
	if !r.peer.Routable() {
		r.reply.Probe()
		r.session.probed = r.peer.Addr()
	}
}

// challenge asks the client for the request again with an Echo option (RFC 9175 section 2.4). The answer is no longer than
// three times the shortest request, so there is always room for it.
func (r *request) challenge() {
	r.reply.Alone()
	r.reply.Begin(message.Unauthorized).Option(message.Echo, r.handler.echoes.value(r.peer.Addr(), r.now))
}

// body answers with a representation, in blocks if it is long or the client requests them. It keeps no state: every block is
// cut from the body at the time of its request, and the ETag lets the client detect a change (RFC 7959 section 2.4).
//
// An unproven address may receive only three times what it sent. If that is too little, the client gets the largest possible
// block and a probe of its address or, if there is no room for any block, a 4.01 with an Echo option.
func (r *request) body(code message.Code, format message.Format, body []byte) {
	requested, hasBlock2 := r.message.Uint(message.Block2)
	exponent := uint32(maxExponent)
	if hasBlock2 {
		exponent = requested & 7
	}
	if exponent == 7 { // reserved, RFC 7959 section 2.2
		r.reply.Text(message.BadRequest, "Block2: reserved block size")
		return
	}
	start := int(requested>>4) << (4 + exponent)
	if start > 0 && start >= len(body) {
		r.reply.Text(message.BadOption, "Block2: behind the end")
		return
	}
	if r.part(code, format, body, start, exponent, hasBlock2) {
		return
	}
	r.probe()
	for smaller := int(exponent); smaller >= 0; smaller-- {
		if r.part(code, format, body, start, uint32(smaller), hasBlock2) {
			return
		}
	}
	r.reply.Alone()
	if !r.part(code, format, body, start, 0, hasBlock2) {
		r.challenge()
	}
}

// echoOption is what an Echo option takes behind Block2, in bytes.
const echoOption = 2 + echoLength

// part answers with the block of body that begins at start, or with all of it, and reports whether that fits.
func (r *request) part(code message.Code, format message.Format, body []byte, start int, exponent uint32, hasBlock2 bool) bool {
	b := r.reply.Begin(code)
	if !hasBlock2 && len(body) <= 16<<exponent {
		b.Uint(message.ContentFormat, uint32(format))
		b.Payload(body)
		return r.reply.Fits()
	}
	end := min(start+(16<<exponent), len(body))
	hash := fnv.New32a()
	_, _ = hash.Write(body)
	sum := hash.Sum32()
	b.Option(message.ETag, []byte{byte(sum >> 16), byte(sum >> 8), byte(sum)}) // no longer: see TestRootWithoutEcho
	b.Uint(message.ContentFormat, uint32(format))
	value := uint32(start)>>(4+exponent)<<4 | exponent
	if end < len(body) {
		value |= 8
	}
	b.Uint(message.Block2, value)
	if start == 0 && r.peer.Proven() { // only a hint, so it is left out when room is scarce
		b.Uint(message.Size2, uint32(len(body)))
	}
	// A client that supports the option may prove its address with it in its next request (RFC 9175 section 2.3).
	if !r.peer.Proven() && echoOption+end-start <= b.Room() {
		b.Option(message.Echo, r.handler.echoes.value(r.peer.Addr(), r.now))
	}
	b.Payload(body[start:end])
	return r.reply.Fits()
}
