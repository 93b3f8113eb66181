package message

import "errors"

// Errors of Builder.
var (
	// ErrSpace: the message does not fit the capacity of the given buffer.
	ErrSpace = errors.New("coap: message does not fit the buffer")
	// ErrOrder: options out of ascending order, after the payload, or on an empty message: a bug of the caller.
	ErrOrder = errors.New("coap: option out of order")
)

// Builder writes one message behind the bytes that a buffer already holds and never grows it: what does not fit the capacity
// is an error that Bytes returns. Options must be added in ascending order of number. The zero value needs Reset.
type Builder struct {
	buf     []byte
	start   int
	last    OptionID
	payload bool
	err     error
}

// Reset starts a message at buf[len(buf):cap(buf)]. token is copied; longer than 65,804 bytes is ErrToken.
func (b *Builder) Reset(buf []byte, t Type, code Code, id uint16, token []byte) {
	*b = Builder{buf: buf, start: len(buf)}
	nibble, ext, n := nibbleOf(len(token))
	if len(token) > 65804 {
		b.err = ErrToken
		return
	}
	if !b.fits(4 + n + len(token)) {
		return
	}
	b.buf = append(b.buf, 1<<6|byte(t)<<4|nibble, byte(code), byte(id>>8), byte(id))
	b.buf = append(b.buf, ext[:n]...)
	b.buf = append(b.buf, token...)
}

// nibbleOf encodes a length or delta: the nibble and up to two extension bytes.
func nibbleOf(v int) (nibble byte, ext [2]byte, n int) {
	switch {
	case v < 13:
		return byte(v), ext, 0
	case v < 269:
		return 13, [2]byte{byte(v - 13)}, 1
	}
	v -= 269
	return 14, [2]byte{byte(v >> 8), byte(v)}, 2
}

func (b *Builder) fits(n int) bool {
	if b.err == nil && len(b.buf)+n > cap(b.buf) {
		b.err = ErrSpace
	}
	return b.err == nil
}

// option writes the header of an option and reports whether its value may follow.
func (b *Builder) option(id OptionID, length int) bool {
	if b.err != nil {
		return false
	}
	if id < b.last || b.payload || length > 65804 {
		b.err = ErrOrder
		return false
	}
	delta, deltaExt, d := nibbleOf(int(id - b.last))
	size, sizeExt, s := nibbleOf(length)
	if !b.fits(1 + d + s + length) {
		return false
	}
	b.buf = append(b.buf, delta<<4|size)
	b.buf = append(b.buf, deltaExt[:d]...)
	b.buf = append(b.buf, sizeExt[:s]...)
	b.last = id
	return true
}

// Option adds an option with an opaque value.
func (b *Builder) Option(id OptionID, value []byte) {
	if b.option(id, len(value)) {
		b.buf = append(b.buf, value...)
	}
}

// Text adds an option with a string value.
func (b *Builder) Text(id OptionID, value string) {
	if b.option(id, len(value)) {
		b.buf = append(b.buf, value...)
	}
}

// Uint adds an option with an unsigned integer in the fewest bytes, none for 0 (RFC 7252 section 3.2).
func (b *Builder) Uint(id OptionID, value uint32) {
	n := 0
	for v := value; v != 0; v >>= 8 {
		n++
	}
	if b.option(id, n) {
		for n--; n >= 0; n-- {
			b.buf = append(b.buf, byte(value>>(8*n)))
		}
	}
}

// Payload ends the message with a payload; an empty one adds nothing, not even the marker.
func (b *Builder) Payload(p []byte) {
	if len(p) == 0 || b.err != nil {
		return
	}
	if b.payload {
		b.err = ErrOrder
		return
	}
	if b.fits(1 + len(p)) {
		b.buf = append(append(b.buf, payloadMarker), p...)
		b.payload = true
	}
}

// Grow ends the message with a payload of n bytes for the caller to fill, and returns them; nil when they do not fit or n is 0.
func (b *Builder) Grow(n int) []byte {
	if n <= 0 || b.payload || !b.fits(1+n) {
		return nil
	}
	b.buf = append(b.buf, payloadMarker)
	b.buf = b.buf[:len(b.buf)+n]
	b.payload = true
	return b.buf[len(b.buf)-n:]
}

// Room returns how many bytes of payload still fit.
func (b *Builder) Room() int {
	if b.err != nil || b.payload {
		return 0
	}
	return max(0, cap(b.buf)-len(b.buf)-1)
}

// Bytes returns the whole buffer, what it held before Reset included, and the first error met.
func (b *Builder) Bytes() ([]byte, error) {
	if b.err != nil {
		return b.buf[:b.start], b.err
	}
	return b.buf, nil
}

// AppendEmpty appends an empty message: Ack or Rst to a message id, or Con as a ping (RFC 7252 section 4.3).
func AppendEmpty(dst []byte, t Type, id uint16) []byte {
	return append(dst, 1<<6|byte(t)<<4, byte(Empty), byte(id>>8), byte(id))
}
