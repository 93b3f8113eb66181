package resource

import (
	"hash/fnv"
	"io"
	"time"

	"github.com/weir-lb/weir/internal/coap/exchange"
	"github.com/weir-lb/weir/internal/coap/message"
)

// Request is one request in a method; valid during the call only. A method calls Answer, AnswerFrom or Error once.
type Request struct {
	Message *message.Message
	Session *Session
	Path    []byte        // with a leading slash
	Body    []byte        // the payload, of all blocks; nil when absent
	Now     time.Duration // of the Server
	// Notification: this is the request of an observer, executed again (RFC 7641).
	Notification bool
	// Protection is that of OSCORE (RFC 8613); nil: the request was not protected.
	Protection exchange.Protection

	server   *Server
	resource *Resource
	reply    *exchange.Reply
	code     message.Code // of the answer
	options  options
	block1   int // value of Block1 in the answer; -1: none
	observe  int // value of Observe in the answer; -1: none
	partial  bool
}

// options are what a method adds to its answer, and the representation.
type options struct {
	etag       []byte
	path       []string
	query      []string
	maxAge     uint32
	hasMaxAge  bool
	plain      bool // without a content format
	format     message.Format
	body       []byte
	from       io.ReaderAt
	size       int
	block2     uint32
	wantsBlock bool
}

// ETag sets the entity tag of the representation that Answer sends, 1 to 8 bytes. A GET that names it gets 2.03 without
// the representation (RFC 7252 section 5.10.6.2).
func (r *Request) ETag(tag []byte) { r.options.etag = tag }

// MaxAge sets how many seconds the answer stays fresh.
func (r *Request) MaxAge(seconds uint32) { r.options.maxAge, r.options.hasMaxAge = seconds, true }

// Location sets the path segments and queries of what was created.
func (r *Request) Location(path, query []string) { r.options.path, r.options.query = path, query }

// Separate acknowledges the request at once and sends the answer after delay. It is to be called before Answer.
func (r *Request) Separate(delay time.Duration) { r.reply.Separate(delay) }

// keep returns a protection that outlives the request.
func keep(p exchange.Protection) exchange.Protection {
	if p == nil {
		return nil
	}
	return p.Keep()
}

// protected returns the form in which a message of the Server is sent; nil: it must not be sent.
func protected(p exchange.Protection, datagram []byte) []byte {
	if p == nil || datagram == nil {
		return datagram
	}
	return p.Protect(datagram)
}

// peerOf tells whose key protected a request; 0: none.
func peerOf(p exchange.Protection) uint64 {
	if p == nil {
		return 0
	}
	return p.Peer()
}

// First reports whether the first block of the answer is requested, or all of it.
func (r *Request) First() bool {
	block2, _ := r.Message.Uint(message.Block2)
	return block2>>4 == 0
}

// Error answers with a diagnostic text, without a representation (RFC 7252 section 5.5.2). For a code of success the text is
// text/plain.
func (r *Request) Error(code message.Code, text string) {
	r.code = code
	r.reply.Text(code, text)
}

// Done answers with a code and the options that were set, without a representation.
func (r *Request) Done(code message.Code) {
	r.options.plain = true
	r.Answer(code, 0, nil)
}

// NoQuery answers 4.02 if there is a query, and reports whether there was none.
func (r *Request) NoQuery() bool {
	if query, ok := r.Message.Option(message.URIQuery); ok {
		r.BadQuery(query, "none is")
		return false
	}
	return true
}

// BadQuery answers 4.02 with a text, as Californium's strict query check does.
func (r *Request) BadQuery(query []byte, known string) {
	r.Error(message.BadOption, "query \""+quotable(query)+"\" is not supported; "+known)
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

// Accepts returns the format of the answer: the one of Accept if it is among offered, or the first offered one without
// Accept. Otherwise it answers 4.06.
func (r *Request) Accepts(offered ...message.Format) (message.Format, bool) {
	if _, present := r.Message.Option(message.Accept); !present {
		return offered[0], true
	}
	if f, ok := r.Message.Format(message.Accept); ok {
		for _, o := range offered {
			if f == o {
				return f, true
			}
		}
	}
	r.Error(message.NotAcceptable, "")
	return 0, false
}

// Takes reports whether the body has one of the formats; without Content-Format it has the first one. Otherwise it answers
// 4.15.
func (r *Request) Takes(formats ...message.Format) bool {
	if _, present := r.Message.Option(message.ContentFormat); !present {
		return true
	}
	if f, ok := r.Message.Format(message.ContentFormat); ok {
		for _, have := range formats {
			if f == have {
				return true
			}
		}
	}
	r.Error(message.UnsupportedContentFormat, "")
	return false
}

// challenge asks the client for the request again with an Echo option (RFC 9175 section 2.4). The answer is no longer than
// three times the shortest request, so there is always room for it.
func (r *Request) challenge() {
	r.code = message.Unauthorized
	r.reply.Alone()
	r.reply.Begin(message.Unauthorized).Option(message.Echo, r.server.cfg.Guard.Echo(r.Session, r.Now))
}

// Answer answers with a representation, in blocks if it is long or the client requests them. body is copied. For the method of
// a GET or FETCH, and of a Repeatable resource, it keeps no state: every block is cut from the body at the time of its
// request, and the ETag lets the client detect a change (RFC 7959 section 2.4).
//
// An unproven address may receive only three times what it sent. If that is too little, the client gets the largest possible
// block and a probe of its address or, if there is no room for any block, a 4.01 with an Echo option.
func (r *Request) Answer(code message.Code, format message.Format, body []byte) {
	r.options.format, r.options.body, r.options.from, r.options.size = format, body, nil, len(body)
	r.answer(code)
}

// AnswerFrom is Answer for a representation of size bytes that is read from a source, only as much as a message takes. It
// needs an ETag, set before, since the blocks of two versions must not be mixed. When reading fails, the answer is 5.00.
// The answer to an unsafe method of a resource that is not Repeatable must come from Answer.
func (r *Request) AnswerFrom(code message.Code, format message.Format, from io.ReaderAt, size int) {
	r.options.format, r.options.body, r.options.from, r.options.size = format, nil, from, size
	r.answer(code)
}

// AnswerWhole answers with the first of several bodies that one message holds, without blocks; if none does, it demands a proof
// of the address with an Echo option.
func (r *Request) AnswerWhole(code message.Code, format message.Format, bodies ...[]byte) {
	r.code, r.options.format = code, format
	for _, body := range bodies {
		r.options.body, r.options.size = body, len(body)
		if r.part(code, 0, maxExponent) {
			return
		}
	}
	r.challenge()
}

// AnswerVarying answers with body, which is another one for each request, in one message. Where that does not fit what the client
// may receive or requests, it answers with stable, in blocks if need be: blocks of body would come from different bodies, and a
// client must not put them together (RFC 7959 section 2.4).
func (r *Request) AnswerVarying(code message.Code, format message.Format, body, stable []byte) {
	requested, wantsBlock := r.Message.Uint(message.Block2)
	exponent := r.largest()
	if wantsBlock {
		exponent = min(exponent, requested&7)
	}
	known := len(r.options.etag) > 0 && r.Knows(r.options.etag) // Answer makes it 2.03
	if r.First() && !known && len(body) <= r.blockBytes(exponent) {
		r.code, r.options.format, r.options.body, r.options.size = code, format, body, len(body)
		r.options.wantsBlock = wantsBlock
		if r.part(code, 0, exponent) {
			return
		}
	}
	r.Answer(code, format, stable)
}

// maxExponent is the size of the largest block of RFC 7959, as 16 << exponent. bert stands for several of these blocks in one
// message, numbered as them (RFC 8323 section 6).
const (
	maxExponent = 6
	bert        = 7
)

// largest is the exponent of the largest block that the client may receive. Over a stream the size of a block only has to
// fit the client's limit.
func (r *Request) largest() uint32 {
	switch {
	case !r.Session.Stream:
		return r.server.cfg.Exponent
	case r.Session.BERT > 0:
		return bert
	}
	return maxExponent
}

// blockBytes is how many bytes of the representation a message with this exponent carries.
func (r *Request) blockBytes(exponent uint32) int {
	if exponent == bert {
		return r.Session.BERT
	}
	return 16 << exponent
}

func (r *Request) answer(code message.Code) {
	o := &r.options
	if code == message.Content && len(o.etag) > 0 && r.Knows(o.etag) {
		code, o.body, o.from, o.size, o.plain = message.Valid, nil, nil, 0, true
	}
	requested, wantsBlock := r.Message.Uint(message.Block2)
	exponent := r.largest()
	if wantsBlock {
		exponent = min(exponent, requested&7)
	}
	if wantsBlock && requested&7 == bert && r.Session.BERT == 0 { // reserved, RFC 7959 section 2.2
		r.Error(message.BadRequest, "Block2: reserved block size")
		return
	}
	start := int(requested>>4) << (4 + min(requested&7, maxExponent))
	if start > 0 && start >= o.size {
		r.Error(message.BadOption, "Block2: behind the end")
		return
	}
	r.code, o.wantsBlock = code, wantsBlock
	if !r.fitted(code, start, exponent) {
		r.challenge()
		return
	}
	if r.partial && start == 0 && !r.Message.Code.IsSafe() && !r.resource.Repeatable && o.from == nil {
		r.server.keep(r)
	}
}

// fitted answers with the largest block that the client may receive, and reports whether there is one.
func (r *Request) fitted(code message.Code, start int, exponent uint32) bool {
	if r.Session.Stream && !r.options.wantsBlock && r.message(code, 0, r.options.size, exponent, true) {
		return true
	}
	if r.part(code, start, exponent) {
		return true
	}
	r.server.cfg.Guard.Probe(r.Session, r.reply)
	for smaller := int(exponent); smaller >= 0; smaller-- {
		if r.part(code, start, uint32(smaller)) {
			return true
		}
	}
	r.reply.Alone()
	return r.part(code, start, 0)
}

// Knows reports whether the client has the representation with an entity tag: Answer will be 2.03.
func (r *Request) Knows(etag []byte) bool {
	for options := r.Message.Options(); options.Next() && options.ID() <= message.ETag; {
		if options.ID() == message.ETag && string(options.Value()) == string(etag) {
			return true
		}
	}
	return false
}

// tag returns the entity tag of a representation in blocks.
func (o *options) tag(sum *[3]byte) []byte {
	if len(o.etag) > 0 {
		return o.etag
	}
	hash := fnv.New32a()
	_, _ = hash.Write(o.body)
	n := hash.Sum32()
	*sum = [3]byte{byte(n >> 16), byte(n >> 8), byte(n)} // no longer: see TestRootWithoutEcho
	return sum[:]
}

// echoOption is what an Echo option takes behind Block2, in bytes, with a value of EchoLength.
const echoOption = 2 + EchoLength

// part answers with the block of the representation that begins at start, or with all of it, and reports whether that fits.
func (r *Request) part(code message.Code, start int, exponent uint32) bool {
	o := &r.options
	whole := (!o.wantsBlock || o.plain) && o.size <= r.blockBytes(exponent)
	return r.message(code, start, min(start+r.blockBytes(exponent), o.size), exponent, whole)
}

// message answers with bytes start to end of the representation, as a block unless that is all of it.
func (r *Request) message(code message.Code, start, end int, exponent uint32, whole bool) bool {
	o := &r.options
	b := r.reply.Begin(code)
	if whole && len(o.etag) > 0 {
		b.Option(message.ETag, o.etag)
	} else if !whole {
		var sum [3]byte
		b.Option(message.ETag, o.tag(&sum))
	}
	if r.observe >= 0 && code.Class() == 2 {
		b.Uint(message.Observe, uint32(r.observe))
	}
	for _, segment := range o.path {
		b.Text(message.LocationPath, segment)
	}
	if !o.plain {
		b.Uint(message.ContentFormat, uint32(o.format))
	}
	if o.hasMaxAge {
		b.Uint(message.MaxAge, o.maxAge)
	}
	for _, query := range o.query {
		b.Text(message.LocationQuery, query)
	}
	r.partial = !whole && end < o.size
	if !whole {
		o.block2 = uint32(start)>>(4+min(exponent, maxExponent))<<4 | exponent
		if r.partial {
			o.block2 |= 8
		}
		b.Uint(message.Block2, o.block2)
	}
	if r.block1 >= 0 {
		b.Uint(message.Block1, uint32(r.block1))
	}
	if !whole {
		r.hints(b, start, end)
	}
	return r.payload(b, start, end) && r.reply.Fits()
}

// hints adds the size of the representation, only if room is not scarce, or an Echo value: a client that supports the option
// may prove its address with it in its next request (RFC 9175 section 2.3).
func (r *Request) hints(b *message.Builder, start, end int) {
	if r.server.cfg.Guard.Proven(r.Session) {
		if start == 0 {
			b.Uint(message.Size2, uint32(r.options.size))
		}
		return
	}
	if echoOption+end-start <= b.Room() {
		b.Option(message.Echo, r.server.cfg.Guard.Echo(r.Session, r.Now))
	}
}

// payload writes bytes start to end of the representation.
func (r *Request) payload(b *message.Builder, start, end int) bool {
	if r.options.from == nil {
		b.Payload(r.options.body[start:end])
		return true
	}
	into := b.Grow(end - start)
	if into == nil {
		return end == start
	}
	if n, err := r.options.from.ReadAt(into, int64(start)); n < len(into) {
		_ = err // a short read has one, and the client learns no more than this
		r.Error(message.InternalServerError, "")
	}
	return true
}
