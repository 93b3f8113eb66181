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
	unproven bool
	ack      int // bytes, with unproven
}

// Begin starts the response, dropping what an earlier Begin wrote, and returns the builder for its options and payload.
// Type, message id and token are those that fit the request.
func (r *Reply) Begin(code message.Code) *message.Builder {
	kind := message.Ack
	if r.request.Type != message.Con {
		kind = message.Non
	}
	out := r.out
	if r.unproven && r.separate && r.request.Type == message.Con { // the empty acknowledgement is paid for as well
		out = out[:0:max(0, cap(out)-r.ack)]
	}
	r.builder.Reset(out, kind, code, r.request.ID, r.request.Token)
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
// With Unproven it is to be called before Begin.
func (r *Reply) Separate(delay time.Duration) { r.separate, r.delay = true, max(0, delay) }

// Piggyback takes Separate and Prove back.
func (r *Reply) Piggyback() { r.separate, r.prove = false, false }

// Unproven tells that the peer's address may be forged and that out is what may be sent there now, of which an empty
// acknowledgement takes ack bytes. Separate responses to such peers take at most half of Config.MaxPending; beyond it they
// are sent at once, as when the table is full.
func (r *Reply) Unproven(ack int) { r.unproven, r.ack = true, ack }

// Fits reports whether what has been built since Begin fits the room that there is.
func (r *Reply) Fits() bool {
	_, err := r.builder.Bytes()
	return err == nil
}

// Prove makes the response separate, under a message id that is hard to guess: who acknowledges it has received it, and
// Config.Proven is told (return routability, as by the Echo option of RFC 9175 but without its support in the client). One in
// 65,536 guesses hits: see Session.Proofs. Of several responses of a session that are pending only the first one counts as
// a proof. It does nothing for a non-confirmable request.
func (r *Reply) Prove() {
	if r.request.Type == message.Con {
		r.separate, r.prove = true, true
	}
}

// Silent suppresses the response; a confirmable request is still acknowledged (RFC 7967).
func (r *Reply) Silent() { r.silent = true }
