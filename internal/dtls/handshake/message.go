package handshake

import "encoding/binary"

// Message types (RFC 6347 section 4.3.2).
const (
	typeHelloRequest       = 0
	typeClientHello        = 1
	typeServerHello        = 2
	typeHelloVerifyRequest = 3
	typeNewSessionTicket   = 4 // RFC 5077
	typeCertificate        = 11
	typeServerKeyExchange  = 12
	typeCertificateRequest = 13
	typeServerHelloDone    = 14
	typeCertificateVerify  = 15
	typeClientKeyExchange  = 16
	typeFinished           = 20
)

const (
	messageHeader  = 12
	version12      = 0xfefd
	version10      = 0xfeff
	randomLength   = 32
	verifyLength   = 12
	finishedLength = messageHeader + verifyLength
	// MaxMessage bounds a handshake message's body in bytes: what reassembly holds of one message. A chain of certificates
	// takes most of it.
	MaxMessage = 8192
	// maxIdentity bounds a PSK identity in bytes; RFC 4279 section 5.3 requires 128.
	maxIdentity = 1024
)

// fragment is one handshake message fragment (RFC 6347 section 4.2.2).
type fragment struct {
	typ      byte
	length   int // of the whole message body
	sequence uint16
	offset   int
	data     []byte
	raw      []byte // header and data
}

// nextFragment reads the first fragment of a record's body.
func nextFragment(body []byte) (f fragment, rest []byte, ok bool) {
	if len(body) < messageHeader {
		return f, nil, false
	}
	f.typ = body[0]
	f.length = uint24(body[1:])
	f.sequence = binary.BigEndian.Uint16(body[4:])
	f.offset = uint24(body[6:])
	n := uint24(body[9:])
	if n > len(body)-messageHeader || f.offset > f.length || n > f.length-f.offset || f.length > MaxMessage {
		return f, nil, false
	}
	f.data = body[messageHeader : messageHeader+n]
	f.raw = body[:messageHeader+n]
	return f, body[messageHeader+n:], true
}

// Renegotiates reports whether the payload of a handshake record of epoch 1 begins a new handshake: a ClientHello of a client, or
// the HelloRequest of a server. Neither side of this package renegotiates; the answer is the alert no_renegotiation.
func Renegotiates(payload []byte) bool {
	f, _, ok := nextFragment(payload)
	return ok && (f.typ == typeHelloRequest || f.typ == typeClientHello)
}

// whole reports whether the fragment is the message.
func (f *fragment) whole() bool { return len(f.data) == f.length }

func uint24(b []byte) int { return int(b[0])<<16 | int(b[1])<<8 | int(b[2]) }

// appendHeader appends the header of a whole message.
func appendHeader(dst []byte, typ byte, sequence uint16, length int) []byte {
	l := [3]byte{byte(length >> 16), byte(length >> 8), byte(length)}
	dst = append(dst, typ, l[0], l[1], l[2], byte(sequence>>8), byte(sequence), 0, 0, 0)
	return append(dst, l[:]...)
}

// message returns a whole message.
func message(typ byte, sequence uint16, body []byte) []byte {
	return append(appendHeader(make([]byte, 0, messageHeader+len(body)), typ, sequence, len(body)), body...)
}

// cursor reads length-prefixed fields; after an error everything is empty.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) take(n int) []byte {
	if c.bad || n > len(c.b) {
		c.bad, c.b = true, nil // so that a loop over what is left ends
		return nil
	}
	v := c.b[:n:n]
	c.b = c.b[n:]
	return v
}

func (c *cursor) uint8() int {
	if v := c.take(1); v != nil {
		return int(v[0])
	}
	return 0
}

func (c *cursor) uint16() int {
	if v := c.take(2); v != nil {
		return int(binary.BigEndian.Uint16(v))
	}
	return 0
}

func (c *cursor) uint24() int {
	if v := c.take(3); v != nil {
		return uint24(v)
	}
	return 0
}

func (c *cursor) vector8() []byte  { return c.take(c.uint8()) }
func (c *cursor) vector16() []byte { return c.take(c.uint16()) }
func (c *cursor) vector24() []byte { return c.take(c.uint24()) }

// done reports whether everything has been read without an error.
func (c *cursor) done() bool { return !c.bad && len(c.b) == 0 }

func appendVector8(dst, v []byte) []byte { return append(append(dst, byte(len(v))), v...) }

func appendVector16(dst, v []byte) []byte {
	return append(binary.BigEndian.AppendUint16(dst, uint16(len(v))), v...)
}

func appendVector24(dst, v []byte) []byte {
	return append(append(dst, byte(len(v)>>16), byte(len(v)>>8), byte(len(v))), v...)
}
