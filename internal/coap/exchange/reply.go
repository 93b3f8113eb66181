package exchange

import (
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
)

// Reply is what a Handler answers. A Handler that never calls Begin answers 5.00 to a request that was confirmable.
type Reply struct {
	builder  message.Builder
	request  *message.Message
	out      []byte
	delay    time.Duration
	begun    bool
	separate bool
	silent   bool
	prove    bool
	once     bool
}

// Begin starts the response, dropping what an earlier Begin wrote, and returns the builder for its options and payload.
// Type, message id and token are those that fit the request.
func (r *Reply) Begin(code message.Code) *message.Builder {
	kind := message.Ack
	if r.request.Type != message.Con {
		kind = message.Non
	}
	r.builder.Reset(r.out, kind, code, r.request.ID, r.request.Token)
	r.begun = true
	return &r.builder
}

// Text answers with a text/plain payload, cut to what fits; for an error code the text is the diagnostic payload
// (RFC 7252 section 5.5.2), without a content format.
func (r *Reply) Text(code message.Code, text string) {
	b := r.Begin(code)
	if code.Class() == 2 {
		b.Uint(message.ContentFormat, uint32(message.Text))
	}
	copy(b.Grow(min(len(text), b.Room())), text)
}

// Separate acknowledges a confirmable request at once and sends the response as a message of its own after delay
// (RFC 7252 section 5.2.2); to a non-confirmable request it only delays. It may be called before or after Begin. When
// Config.MaxPending messages are pending, or PerSession of the session, a confirmable request gets its response at once, piggybacked.
func (r *Reply) Separate(delay time.Duration) { r.separate, r.delay = true, max(0, delay) }

// Once keeps a separate response from being repeated: for a peer whose address may be forged.
func (r *Reply) Once() { r.once = true }

// Prove makes the response separate, under a message id that nobody can guess: who acknowledges it has received it, and Config.Proven is told
// (return routability, as by the Echo option of RFC 9175 but without its support in the client). It does nothing for a
// non-confirmable request.
func (r *Reply) Prove() {
	if r.request.Type == message.Con {
		r.separate, r.prove = true, true
	}
}

// Silent suppresses the response; a confirmable request is still acknowledged (RFC 7967).
func (r *Reply) Silent() { r.silent = true }
