package message

import "errors"

// Limits of Parse. RFC 8974 allows tokens up to 65,804 bytes and lets a server set a lower limit.
const (
	// MaxToken is the longest token accepted, in bytes.
	MaxToken = 64
	// MaxOptions is the highest number of options accepted in one message.
	MaxOptions = 64
)

// Errors of Parse. The receiver of a confirmable message answers all but ErrHeader with Rst (RFC 7252 section 4.2):
// with any other error Type and ID of the Message are valid. They carry no detail because the hot path returns them.
var (
	// ErrHeader: fewer than 4 bytes or another version than 1. The datagram must be ignored.
	ErrHeader = errors.New("coap: not a CoAP message")
	// ErrToken: reserved token length, or the token is longer than MaxToken or than the datagram.
	ErrToken = errors.New("coap: bad token length")
	// ErrOption: an option runs past the datagram, uses a reserved nibble, overflows the number, or there are too many.
	ErrOption = errors.New("coap: malformed option")
	// ErrPayload: a payload marker with no payload behind it.
	ErrPayload = errors.New("coap: payload marker without payload")
	// ErrEmpty: an empty message (code 0.00) that has a token, options or payload.
	ErrEmpty = errors.New("coap: empty message with content")
)

// Message is one parsed datagram. Its slices alias the datagram.
type Message struct {
	Token   []byte // 0..MaxToken bytes
	Payload []byte // nil when absent
	options []byte
	present uint64 // bit n: an option n < 64 is there, so that looking for an absent one costs nothing
	large   bool   // there is an option from 64 on
	ID      uint16 // message id
	Type    Type
	Code    Code
}

// Parse reads datagram into m, overwriting it. It allocates nothing and does not keep datagram beyond m's slices.
// It checks structure only; values and criticality are for [Message.BadOption] and the caller.
func Parse(datagram []byte, m *Message) error {
	*m = Message{}
	if len(datagram) < 4 || datagram[0]>>6 != 1 {
		return ErrHeader
	}
	m.Type = Type(datagram[0] >> 4 & 3)
	m.Code = Code(datagram[1])
	m.ID = uint16(datagram[2])<<8 | uint16(datagram[3])
	tokenLength, offset, ok := extend(datagram, int(datagram[0]&15), 4)
	if !ok || tokenLength > MaxToken || offset+tokenLength > len(datagram) {
		return ErrToken
	}
	if m.Code == Empty && len(datagram) > 4 {
		return ErrEmpty
	}
	m.Token = datagram[offset : offset+tokenLength]
	return m.parseOptions(datagram[offset+tokenLength:])
}

// ParseStream is Parse for a message over TCP or TLS, whose header has neither type nor message id (RFC 8323 section 3.2): they
// become Non and 0. nibble is the TKL of the header, rest is what follows the code. Any error is an error of the connection.
func ParseStream(nibble byte, code Code, rest []byte, m *Message) error {
	*m = Message{Type: Non, Code: code}
	tokenLength, offset, ok := extend(rest, int(nibble&15), 0)
	if !ok || tokenLength > MaxToken || offset+tokenLength > len(rest) {
		return ErrToken
	}
	m.Token = rest[offset : offset+tokenLength]
	return m.parseOptions(rest[offset+tokenLength:])
}

func (m *Message) parseOptions(b []byte) error {
	id, offset := 0, 0
	for count := 0; offset < len(b); count++ {
		if b[offset] == payloadMarker {
			if offset+1 == len(b) {
				return ErrPayload
			}
			m.options, m.Payload = b[:offset], b[offset+1:]
			return nil
		}
		delta, length, header, ok := optionHeader(b[offset:])
		if !ok || count == MaxOptions || length > len(b)-offset-header {
			return ErrOption
		}
		if id += delta; id > 0xffff {
			return ErrOption
		}
		m.present |= 1 << id // 0 from 64 on
		m.large = m.large || id >= 64
		offset += header + length
	}
	m.options = b
	return nil
}

const payloadMarker = 0xff

// Options returns an iterator over the message's options.
func (m *Message) Options() Options { return Options{rest: m.options} }

// Option returns the first value of an option; ok is false when it is absent.
func (m *Message) Option(id OptionID) (value []byte, ok bool) {
	if id < 64 && m.present>>id&1 == 0 || id >= 64 && !m.large {
		return nil, false
	}
	for options := m.Options(); options.Next() && options.ID() <= id; {
		if options.ID() == id {
			return options.Value(), true
		}
	}
	return nil, false
}

// Uint returns the first value of an option as an unsigned integer; ok is false when it is absent or longer than 4 bytes.
func (m *Message) Uint(id OptionID) (n uint32, ok bool) {
	value, ok := m.Option(id)
	if !ok {
		return 0, false
	}
	return Uint(value)
}

// Format returns the value of Content-Format or Accept; ok is false when it is absent or out of range.
func (m *Message) Format(id OptionID) (f Format, ok bool) {
	n, ok := m.Uint(id)
	return Format(n), ok && n <= 0xffff
}

// Supported reports whether the caller handles an option.
type Supported func(OptionID) bool

// BadOption returns the first option for which the message must be rejected with 4.02 (a request) or by Rst or silence (a response):
// a critical one that is not supported, or a critical one whose value breaks its length rule or that is repeated although it
// may not be; elective ones with such faults are treated as unknown, so ignored (RFC 7252 sections 5.4.1, 5.4.3, 5.4.5).
func (m *Message) BadOption(supported Supported) (id OptionID, bad bool) {
	last := OptionID(0)
	for options := m.Options(); options.Next(); last = options.ID() {
		id := options.ID()
		if !id.Critical() {
			continue
		}
		if supported == nil || !supported(id) {
			return id, true
		}
		r, known := ruleOf(id)
		if !known {
			continue
		}
		if n := len(options.Value()); n < r.min || n > r.max || (id == last && !r.repeatable) {
			return id, true
		}
	}
	return 0, false
}
