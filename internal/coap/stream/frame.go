package stream

import (
	"encoding/binary"
	"errors"

	"github.com/weir-lb/weir/internal/coap/message"
)

// MaxMessage is the default limit of a received message in bytes, header included: what Settings announces.
const MaxMessage = 64 << 10

// Errors of frames. Each is an error of the connection, which ends with an Abort (RFC 8323 section 5.6). They carry no detail
// because the hot path returns them.
var (
	// ErrToken: the reserved token length 15.
	ErrToken = errors.New("coap stream: reserved token length")
	// ErrLength: the message is longer than the limit.
	ErrLength = errors.New("coap stream: message too long")
	// ErrDatagram: what Append was given is no message of message.Builder.
	ErrDatagram = errors.New("coap stream: not a message")
)

// Size returns the length in bytes of the frame that b begins with, or 0 if b is too short to know (RFC 8323 section 3.2;
// extended token lengths: RFC 8974 section 2.1).
func Size(b []byte) (n int, err error) {
	if len(b) == 0 {
		return 0, nil
	}
	content, code, ok := length(b)
	nibble := b[0] & 15
	if nibble == 15 {
		return 0, ErrToken
	}
	if !ok {
		return 0, nil
	}
	token, after := int(nibble), code+1
	switch {
	case nibble == 13 && after < len(b):
		token, after = int(b[after])+13, after+1
	case nibble == 14 && after+1 < len(b):
		token, after = int(binary.BigEndian.Uint16(b[after:]))+269, after+2
	case nibble >= 13:
		return 0, nil
	}
	return after + token + content, nil
}

// length reads the length of options and payload, and where the code is.
func length(b []byte) (content, code int, ok bool) {
	nibble := b[0] >> 4
	switch {
	case nibble < 13:
		return int(nibble), 1, true
	case nibble == 13 && len(b) > 1:
		return int(b[1]) + 13, 2, true
	case nibble == 14 && len(b) > 2:
		return int(binary.BigEndian.Uint16(b[1:])) + 269, 3, true
	case nibble == 15 && len(b) > 4:
		return int(binary.BigEndian.Uint32(b[1:])) + 65805, 5, true
	}
	return 0, 0, false
}

// Parse reads one whole frame, of the length that Size returns, into m, whose slices alias it. Its errors are those of
// message.Parse.
func Parse(frame []byte, m *message.Message) error {
	if len(frame) < 2 {
		return message.ErrHeader
	}
	_, code, ok := length(frame)
	if !ok || code >= len(frame) {
		return message.ErrHeader
	}
	return message.ParseStream(frame[0], message.Code(frame[code]), frame[code+1:], m)
}

// Append appends the frame of a message that message.Builder wrote. Its type and message id are left out.
func Append(dst, datagram []byte) ([]byte, error) {
	if len(datagram) < 4 {
		return dst, ErrDatagram
	}
	nibble := datagram[0] & 15
	rest := datagram[4:] // from the extended token length on
	token := int(nibble)
	switch {
	case nibble == 13 && len(rest) > 0:
		token = int(rest[0]) + 14
	case nibble == 14 && len(rest) > 1:
		token = int(binary.BigEndian.Uint16(rest)) + 271
	case nibble >= 13:
		return dst, ErrDatagram
	}
	content := len(rest) - token
	if content < 0 {
		return dst, ErrDatagram
	}
	dst = appendLength(dst, content, nibble)
	return append(append(dst, datagram[1]), rest...), nil
}

func appendLength(dst []byte, content int, tokenNibble byte) []byte {
	switch {
	case content < 13:
		return append(dst, byte(content)<<4|tokenNibble)
	case content < 269:
		return append(dst, 13<<4|tokenNibble, byte(content-13))
	case content < 65805:
		return binary.BigEndian.AppendUint16(append(dst, 14<<4|tokenNibble), uint16(content-269))
	}
	return binary.BigEndian.AppendUint32(append(dst, 15<<4|tokenNibble), uint32(content-65805))
}
