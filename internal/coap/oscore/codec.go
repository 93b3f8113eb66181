package oscore

import (
	"errors"
	"slices"

	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/dtls/record"
)

// Overhead is how many bytes longer a protected response is than its plaintext, at most: the OSCORE option with a Partial IV, an
// outer Observe option, the code, the payload marker and the tag. A request has the kid and the kid context besides.
const Overhead = 2 + 1 + maxPIV + 2 + 4 + 1 + 1 + tagLength

// Errors of Codec.
var (
	// ErrMessage: the message to protect is not the kind that the method takes, or has an option that cannot be protected.
	ErrMessage = errors.New("oscore: a message that cannot be protected")
	// ErrResponse: a response that does not verify (RFC 8613 section 8.4).
	ErrResponse = errors.New("oscore: the response does not verify: another key, or a changed message")
	// ErrUnprotected: a response without the OSCORE option, to a request that had it.
	ErrUnprotected = errors.New("oscore: the response is not protected")
	// ErrOld: a notification that is not newer than the newest one.
	ErrOld = errors.New("oscore: an old notification")
)

// Verdict is what became of a protected request.
type Verdict uint8

// The verdicts, with the unprotected responses of RFC 8613 section 8.2.
const (
	Opened    Verdict = iota
	Malformed         // the option or the COSE object: 4.02 Failed to decode COSE
	Unknown           // no context for its kid: 4.01 Security context not found
	Replayed          // 4.01 Replay detected
	Forged            // it does not verify: 4.00 Decryption failed
	Unfresh           // it verifies, but the replay window was lost: protected 4.01 with an Echo option
	Renewing          // it verifies, and asks for a new context (Appendix B.2): 4.01 by SealRenewal
)

// Binding is what a response must know of its request: the context, request_kid and request_piv (RFC 8613 section 5.4). It may be
// copied; a copy continues with the state it was copied with.
type Binding struct {
	context *Context
	kid     [MaxID]byte
	piv     [maxPIV]byte
	kids    uint8 // bytes of kid
	pivs    uint8
	fetch   bool // the outer code is FETCH: an observation
	used    bool // the nonce of the request has protected a response

	observe  bool   // of a client: the request had an Observe option with 0
	numbered bool   // of a client: newest is valid
	newest   uint64 // Partial IV of the newest notification
}

// Context is the one of the request; nil: the Binding is not set.
func (b *Binding) Context() *Context { return b.context }

// Sequence is the sequence number of the request.
func (b *Binding) Sequence() uint64 { return sequenceOf(b.piv[:b.pivs]) }

func (b *Binding) set(c *Context, kid, piv []byte) {
	*b = Binding{context: c, kids: uint8(len(kid)), pivs: uint8(len(piv))}
	copy(b.kid[:], kid)
	copy(b.piv[:], piv)
}

// Codec protects and opens messages. One goroutine at a time may use it. It must be on the heap.
type Codec struct {
	scratch record.Scratch
	nonce   [nonceLength]byte
	aad     [64]byte
	option  [maxOption]byte
	piv     [maxPIV]byte
	message message.Message
	inner   message.Message
	plain   []byte // the plaintext behind 3 bytes, so that a message of it can be parsed
	builder message.Builder
}

// NewCodec returns a Codec for messages of up to size bytes.
func NewCodec(size int) *Codec { return &Codec{plain: make([]byte, 0, size)} }

// outerOnly reports whether an option is of class U only: not protected, for proxies (RFC 8613 figure 5; RFC 8768 section 3).
func outerOnly(id message.OptionID) bool {
	switch id {
	case message.URIHost, message.URIPort, message.OSCORE, message.HopLimit, message.ProxyURI, message.ProxyScheme:
		return true
	}
	return false
}

// additional is the external additional data in its Enc_structure (RFC 8613 section 5.4; RFC 9052 section 5.3).
func (c *Codec) additional(b *Binding) []byte {
	kid, piv := b.kid[:b.kids], b.piv[:b.pivs]
	external := 6 + len(kid) + len(piv) + 1
	aad := append(c.aad[:0], 0x83, 0x68, 'E', 'n', 'c', 'r', 'y', 'p', 't', '0', 0x40, 0x40|byte(external))
	aad = append(aad, 0x85, 1, 0x81, algorithm)
	aad = appendBytes(appendBytes(aad, kid), piv)
	return append(aad, 0x40)
}

// seal writes plain, a whole message, as protected one: outer options, the OSCORE option, and the ciphertext.
func (c *Codec) seal(dst []byte, code message.Code, b *Binding, o *Option) ([]byte, error) {
	m := &c.message
	response := m.Code.IsResponse()
	plaintext, err := c.plaintext(response)
	if err != nil {
		return dst, err
	}
	out := &c.builder
	out.Reset(dst, m.Type, code, m.ID, m.Token)
	written := false
	for options := m.Options(); options.Next(); {
		id := options.ID()
		if id == message.OSCORE || id == message.ProxyURI {
			return dst, ErrMessage
		}
		if id > message.OSCORE && !written {
			out.Option(message.OSCORE, o.append(c.option[:0]))
			written = true
		}
		if outerOnly(id) || id == message.Observe || id == message.NoResponse && suppressesAll(options.Value()) {
			out.Option(id, options.Value())
		}
	}
	if !written {
		out.Option(message.OSCORE, o.append(c.option[:0]))
	}
	body := out.Grow(len(plaintext) + tagLength)
	if body == nil {
		return dst, message.ErrSpace
	}
	copy(body, plaintext)
	b.context.sender.Seal(&c.scratch, c.nonce[:], c.additional(b), body[:len(plaintext):cap(body)], len(plaintext))
	return out.Bytes()
}

// suppressesAll reports whether a No-Response option may be shown to proxies (RFC 8613 section 4.1.3.6).
func suppressesAll(value []byte) bool { return len(value) == 1 && value[0] == 26 }

// plaintext is the code, the class E options and the payload of c.message.
func (c *Codec) plaintext(response bool) ([]byte, error) {
	m, in := &c.message, &c.builder
	in.Reset(c.plain[:0], 0, m.Code, 0, nil)
	for options := m.Options(); options.Next(); {
		id, value := options.ID(), options.Value()
		switch {
		case outerOnly(id):
			continue
		case id == message.Observe && response: // section 4.1.3.5.2
			value = nil
		}
		in.Option(id, value)
	}
	in.Payload(m.Payload)
	whole, err := in.Bytes()
	if err != nil {
		return nil, err
	}
	whole[3] = whole[1]
	return whole[3:], nil
}

// open decrypts the payload of c.message and leaves the inner message in c.inner. b has the request's kid and Partial IV.
func (c *Codec) open(b *Binding) bool {
	ciphertext := c.message.Payload
	if len(ciphertext) <= tagLength || 3+len(ciphertext) > cap(c.plain) {
		return false
	}
	buf := c.plain[:3+len(ciphertext)]
	copy(buf[3:], ciphertext)
	plaintext, ok := b.context.recipient.Open(&c.scratch, c.nonce[:], c.additional(b), buf[3:])
	if !ok {
		return false
	}
	buf[0], buf[1], buf[2] = 1<<6, plaintext[0], 0
	whole := buf[:3+len(plaintext)]
	whole[3] = 0
	return message.Parse(whole, &c.inner) == nil
}

// join writes the inner message with the header of the outer one and its options of class U. Other outer options are discarded
// (RFC 8613 sections 8.2 and 8.4). observe replaces the value of Observe; nil: no such option.
func (c *Codec) join(dst []byte, observe []byte, hasObserve bool) ([]byte, error) {
	out, m := &c.builder, &c.message
	out.Reset(dst, m.Type, c.inner.Code, m.ID, m.Token)
	outer := m.Options()
	more := nextOuter(&outer)
	for inner := c.inner.Options(); inner.Next(); {
		for more && outer.ID() <= inner.ID() {
			out.Option(outer.ID(), outer.Value())
			more = nextOuter(&outer)
		}
		switch {
		case inner.ID() != message.Observe:
			out.Option(inner.ID(), inner.Value())
		case hasObserve:
			out.Option(message.Observe, observe)
		}
	}
	for ; more; more = nextOuter(&outer) {
		out.Option(outer.ID(), outer.Value())
	}
	out.Payload(c.inner.Payload)
	return out.Bytes()
}

// nextOuter steps to the next option of class U.
func nextOuter(options *message.Options) bool {
	for options.Next() {
		if id := options.ID(); id != message.OSCORE && outerOnly(id) {
			return true
		}
	}
	return false
}

// SealRequest appends the protected form of a request, a whole message, to dst[:len(dst):cap(dst)], with the next sequence number of
// the context. It sets b for the response.
func (c *Codec) SealRequest(dst []byte, context *Context, plain []byte, b *Binding) ([]byte, error) {
	m := &c.message
	if message.Parse(plain, m) != nil || !m.Code.IsRequest() {
		return dst, ErrMessage
	}
	sequence, err := context.take()
	if err != nil {
		return dst, err
	}
	return c.sealRequest(dst, context, sequence, b)
}

func (c *Codec) sealRequest(dst []byte, context *Context, sequence uint64, b *Binding) ([]byte, error) {
	p := &context.parameters
	b.set(context, p.SenderID, appendPIV(c.piv[:0], sequence))
	code := message.POST
	if value, ok := c.message.Uint(message.Observe); ok {
		code, b.fetch, b.observe = message.FETCH, true, value == 0
	}
	c.nonce = context.nonce(p.SenderID, b.piv[:b.pivs])
	return c.seal(dst, code, b, &Option{PIV: b.piv[:b.pivs], KID: p.SenderID, HasKID: true, KIDContext: p.IDContext, HasContext: p.IDContext != nil})
}

// OpenRequest verifies a request that has the OSCORE option and appends its inner form, a whole message, to dst. contexts are those
// of this endpoint. With Opened and Unfresh b is set, for the response. Only Opened enters the request into the replay window;
// after Unfresh, Echoed does.
func (c *Codec) OpenRequest(dst []byte, m *message.Message, contexts *Table, b *Binding) ([]byte, Verdict) {
	c.message = *m
	value, _ := m.Option(message.OSCORE)
	o, ok := ParseOption(value)
	if !ok || len(o.PIV) == 0 || !o.HasKID || len(m.Payload) <= tagLength {
		return dst, Malformed
	}
	var room [maxRenewed + 1]attempt
	verdict := Unknown
	for _, a := range contexts.attempts(&o, room[:0]) {
		if inner, v := c.openWith(dst, m, &o, &a, b); v != Forged && v != Replayed {
			return inner, v
		} else if verdict != Replayed {
			verdict = v
		}
	}
	return dst, verdict
}

// openWith is OpenRequest with one of the contexts that may have protected the request.
func (c *Codec) openWith(dst []byte, m *message.Message, o *Option, a *attempt, b *Binding) ([]byte, Verdict) {
	context := a.context
	sequence := sequenceOf(o.PIV)
	if !context.fresh(sequence) {
		return dst, Replayed
	}
	b.set(context, o.KID, o.PIV)
	b.fetch = m.Code == message.FETCH
	c.nonce = context.nonce(o.KID, o.PIV)
	if !c.open(b) || !c.inner.Code.IsRequest() {
		return dst, Forged
	}
	observe, has := c.inner.Option(message.Observe)
	inner, err := c.join(dst, observe, has)
	switch {
	case err != nil:
		return dst, Forged
	case a.verdict == Renewing:
		return inner, Renewing
	case a.fresh && !context.base.renewal.add(context, a.s2):
		return dst, Replayed
	}
	return inner, context.accept(sequence, false)
}

// Echoed accepts the request of b, for which OpenRequest returned Unfresh, because its Echo option shows that it was made after the
// replay window was lost.
func (b *Binding) Echoed() Verdict { return b.context.accept(b.Sequence(), true) }

// SealResponse appends the protected form of a response, a whole message, to dst. The first one uses the nonce of its request,
// later ones, and with own the first one too, a sequence number of this endpoint (RFC 8613 section 8.3).
func (c *Codec) SealResponse(dst, plain []byte, b *Binding, own bool) ([]byte, error) {
	if b.context == nil || !c.parseResponse(plain) {
		return dst, ErrMessage
	}
	var o Option
	if own || b.used {
		sequence, err := b.context.take()
		if err != nil {
			return dst, err
		}
		o.PIV = appendPIV(c.piv[:0], sequence)
		c.nonce = b.context.nonce(b.context.parameters.SenderID, o.PIV)
	} else {
		c.nonce = b.context.nonce(b.kid[:b.kids], b.piv[:b.pivs])
	}
	b.used = b.used || !own
	return c.seal(dst, b.outer(), b, &o)
}

// parseResponse leaves the response that is to be protected in c.message.
func (c *Codec) parseResponse(plain []byte) bool {
	return message.Parse(plain, &c.message) == nil && c.message.Code.IsResponse()
}

// outer is the outer code of responses (RFC 8613 section 4.2).
func (b *Binding) outer() message.Code {
	if b.fetch {
		return message.Content
	}
	return message.Changed
}

// OpenResponse verifies a response to the request of b and appends its inner form to dst. Notifications get an Observe option with
// the last bytes of their Partial IV; ErrOld is for one that is not newer (RFC 8613 sections 7.4.1 and 8.4).
func (c *Codec) OpenResponse(dst []byte, m *message.Message, b *Binding) ([]byte, error) {
	c.message = *m
	value, ok := m.Option(message.OSCORE)
	if !ok {
		return dst, ErrUnprotected
	}
	o, ok := ParseOption(value)
	context := b.context
	if !ok || context == nil || o.HasKID && !slices.Equal(o.KID, context.parameters.RecipientID) {
		return dst, ErrResponse
	}
	c.nonce = context.nonce(b.kid[:b.kids], b.piv[:b.pivs])
	if len(o.PIV) > 0 {
		c.nonce = context.nonce(context.parameters.RecipientID, o.PIV)
	}
	if !c.open(b) || !c.inner.Code.IsResponse() {
		return dst, ErrResponse
	}
	_, notification := c.inner.Option(message.Observe)
	if notification && !b.observe {
		return dst, ErrResponse
	}
	sequence := sequenceOf(o.PIV)
	if b.observe && len(o.PIV) > 0 {
		if b.numbered && sequence <= b.newest {
			return dst, ErrOld
		}
		b.newest, b.numbered = sequence, true
	} else if b.observe && (b.numbered || b.used) { // only the first one may lack it, and comes once
		return dst, ErrOld
	}
	b.used = true
	if len(o.PIV) > 0 {
		sequence++ // one without a Partial IV, whose value is 0, is the oldest
	}
	return c.join(dst, appendUint(c.piv[:0], uint32(sequence)&0xffffff), notification)
}

// appendUint appends a number in the fewest bytes, none for 0 (RFC 7252 section 3.2).
func appendUint(dst []byte, n uint32) []byte {
	for shift := 16; shift >= 0; shift -= 8 {
		if n>>shift != 0 {
			dst = append(dst, byte(n>>shift))
		}
	}
	return dst
}
