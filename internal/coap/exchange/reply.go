package exchange

import (
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
)

// Reply is the answer of a Handler. If a Handler never calls Begin, a confirmable request is answered with 5.00.
type Reply struct {
	builder  message.Builder
	request  *message.Message
	out      []byte
	delay    time.Duration
	begun    bool
	separate bool
	silent   bool
	probe    bool
	unproven bool
	empty    int // bytes, with unproven

	protection Protection
	whole      []byte // out before Protected took room from it
	sealed     []byte // of Seal
	replaced   bool   // Seal was called
}

// Protection is how a request was protected above the message layer (OSCORE, RFC 8613). What answers the request later, a
// notification or a deferred response, must be protected by it, too.
type Protection interface {
	// Protect returns the protected form of a response, valid until the next call; nil: it cannot be protected, and must not be sent.
	Protect(datagram []byte) []byte
	// Keep returns a Protection that outlives the call of Handler.Serve.
	Keep() Protection
	// Peer tells the endpoints that share a key from others; it is not 0.
	Peer() uint64
}

// Protected declares that the request was protected, and that Seal will replace the answer by one that is up to overhead bytes
// longer. A handler in front of others calls it before Begin.
func (r *Reply) Protected(p Protection, overhead int) {
	r.protection, r.whole = p, r.out
	r.out = r.out[:0:max(0, cap(r.out)-overhead)]
}

// Protection returns that of the request; nil: it was not protected.
func (r *Reply) Protection() Protection { return r.protection }

// Seal replaces the answer by its protected form, which is copied; nil: nothing is sent. The request is not executed again if it
// is repeated, and its No-Response option, which is not the protected one, is ignored.
func (r *Reply) Seal(answer []byte) {
	r.replaced, r.sealed = true, nil
	if answer != nil && len(answer) <= cap(r.whole) {
		r.sealed = append(r.whole[:0], answer...)
	}
}

// Reset prepares a Reply for a message of Endpoint.Notify: it answers request, a Con or Non, in out[:0:cap(out)].
func (r *Reply) Reset(request *message.Message, out []byte) { *r = Reply{request: request, out: out} }

// Message returns what was built since Begin, or nil if there is none or it does not fit.
func (r *Reply) Message() []byte {
	datagram, err := r.builder.Bytes()
	if !r.begun || err != nil {
		return nil
	}
	return datagram
}

// Begin starts the response, dropping what an earlier Begin wrote, and returns the builder for its options and payload.
// Type, message id and token are those that fit the request.
func (r *Reply) Begin(code message.Code) *message.Builder {
	kind := message.Ack
	if r.request.Type != message.Con {
		kind = message.Non
	}
	out := r.out
	if r.unproven { // the empty acknowledgement and the ping count against the same room
		others := 0
		if r.separate && r.request.Type == message.Con {
			others += r.empty
		}
		if r.probe {
			others += r.empty
		}
		out = out[:0:max(0, cap(out)-others)]
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
// With Unproven it is to be called before Begin, as is Probe.
func (r *Reply) Separate(delay time.Duration) { r.separate, r.delay = true, max(0, delay) }

// Alone cancels Separate and Probe: only the answer is sent.
func (r *Reply) Alone() { r.separate, r.probe = false, false }

// Unproven declares that the peer's address may be forged, and that out is how many bytes may be sent there now; an empty
// message takes empty of them. Separate responses and probes to such peers take at most half of Config.MaxPending. Beyond
// that, responses are sent at once, as when the table is full, and there is no probe.
func (r *Reply) Unproven(empty int) { r.unproven, r.empty = true, empty }

// Fits reports whether the message built since Begin fits into the available room.
func (r *Reply) Fits() bool {
	_, err := r.builder.Bytes()
	return err == nil
}

// Probe sends a ping after the answer, with a message id that is hard to guess. A peer that resets it has received it, and
// Config.Proven is called. This is a return routability check like the Echo option of RFC 9175, but every client answers a
// ping (RFC 7252 section 4.3). One guess in 65,536 is right: see Session.Proofs. A session has one probe pending at a time;
// it is not repeated.
func (r *Reply) Probe() { r.probe = true }

// Silent suppresses the response; a confirmable request is still acknowledged (RFC 7967).
func (r *Reply) Silent() { r.silent = true }

// Room returns how many bytes the whole answer may have.
func (r *Reply) Room() int { return cap(r.out) }
