package record

import (
	"encoding/binary"
	"errors"
)

// ContentType is the type of a record, or the inner type of a record with a
// connection id.
type ContentType uint8

// Content types (RFC 5246 section 6.2.1, RFC 9146 section 3, RFC 9853).
const (
	ChangeCipherSpec ContentType = 20
	Alert            ContentType = 21
	Handshake        ContentType = 22
	ApplicationData  ContentType = 23
	TLS12CID         ContentType = 25
	RoutabilityCheck ContentType = 27
)

// Sizes in bytes.
const (
	HeaderLength  = 13 // without a connection id
	MaxCID        = 32 // of connection ids that this package handles
	MaxPlaintext  = 1 << 14
	explicitNonce = 8
	fixedIV       = 4
	// MaxHeadRoom and MaxTailRoom hold for every association.
	MaxHeadRoom = HeaderLength + MaxCID + explicitNonce
	MaxTailRoom = 1 + 16
	// maxCiphertext is what a record's length field may say (RFC 6347
	// section 4.1 by RFC 5246 section 6.2.3: 2^14 + 2048).
	maxCiphertext = MaxPlaintext + 2048

	maxSequence = 1<<48 - 1
	version12   = 0xfefd
	version10   = 0xfeff
)

// ErrMalformed says that what remains of a datagram is no record.
var ErrMalformed = errors.New("not a DTLS record")

// Record is one record as it lies in a datagram; its slices point into it.
type Record struct {
	Type     ContentType
	Version  uint16
	Epoch    uint16
	Sequence uint64
	CID      []byte // only of type TLS12CID
	Body     []byte // plaintext in epoch 0, else explicit nonce, ciphertext and tag
	raw      []byte // the header
}

// Next reads the first record of datagram into r and returns what follows it.
// Records of type TLS12CID carry no length of their connection id: cidLength is
// what this side chose; with a negative one such records are malformed. After an
// error the rest of the datagram is of no use (RFC 6347 section 4.1.2.7).
func Next(datagram []byte, cidLength int, r *Record) (rest []byte, err error) {
	if len(datagram) < HeaderLength {
		return nil, ErrMalformed
	}
	typ := ContentType(datagram[0])
	n := 0
	switch typ {
	case ChangeCipherSpec, Alert, Handshake, ApplicationData, RoutabilityCheck:
	case TLS12CID:
		if n = cidLength; n < 0 || n > MaxCID {
			return nil, ErrMalformed
		}
	default:
		return nil, ErrMalformed
	}
	version := binary.BigEndian.Uint16(datagram[1:])
	if version != version12 && (version != version10 || typ == TLS12CID) {
		return nil, ErrMalformed
	}
	header := HeaderLength + n
	if len(datagram) < header {
		return nil, ErrMalformed
	}
	length := int(binary.BigEndian.Uint16(datagram[header-2:]))
	if length > maxCiphertext || len(datagram)-header < length {
		return nil, ErrMalformed
	}
	epochSequence := binary.BigEndian.Uint64(datagram[3:])
	*r = Record{
		Type:     typ,
		Version:  version,
		Epoch:    uint16(epochSequence >> 48),
		Sequence: epochSequence & maxSequence,
		CID:      datagram[11 : 11+n : 11+n],
		Body:     datagram[header : header+length : header+length],
		raw:      datagram[:header:header],
	}
	return datagram[header+length:], nil
}

// AppendPlain appends a record of epoch 0 that carries body in clear.
func AppendPlain(dst []byte, typ ContentType, sequence uint64, body []byte) []byte {
	dst = append(dst, byte(typ), version12>>8, version12&0xff)
	dst = binary.BigEndian.AppendUint64(dst, sequence&maxSequence)
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(body)))
	return append(dst, body...)
}

// Clone returns a copy of the whole record, to be read by Next again.
func (r *Record) Clone() []byte {
	out := make([]byte, 0, len(r.raw)+len(r.Body))
	return append(append(out, r.raw...), r.Body...)
}
