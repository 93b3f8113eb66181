package tcpscale

import (
	"encoding/binary"
	"errors"
	"strings"
	"time"
)

const (
	wireVersion = 1

	frameClientHello = 1
	frameServerHello = 2
	frameHeartbeat   = 3
	frameBye         = 4
	frameEvicted     = 5

	headLength        = 4
	clientHelloLength = 40
	serverHelloLength = 64
	heartbeatLength   = 32
	evictedLength     = 12
	idLength          = 32
	zoneLength        = 20

	// MaxPayload bounds what follows a heartbeat, in bytes.
	MaxPayload = 4096
)

// The shortest and longest heartbeat period that a client may announce, and the most misses.
const (
	MinPeriod = 100 * time.Millisecond
	MaxPeriod = time.Hour
	MaxMisses = 100
)

// modeEcho requests the server to answer payload with as much payload.
const modeEcho = 1

// reasonSilent is why a server evicts: no heartbeat came for as long as the client announced.
const reasonSilent = 1

var errProtocol = errors.New("bytes that are not of this protocol")

// frame is any frame; only the fields of its kind are set.
type frame struct {
	kind uint8

	run        uint64 // client hello
	client     uint32
	connection uint32
	period     time.Duration
	misses     uint8
	mode       uint8

	generation uint64 // server hello
	id         [idLength]byte
	zone       [zoneLength]byte

	reason uint8 // evicted; with seq: the last heartbeat that the server has received

	seq, echo   uint32 // heartbeat
	sent, since uint64 // ns of the sender's clock; of the receiver's, echoed
	payload     int
}

// parseFrame reads the frame at the start of b and returns its length: 0 as long as it is not whole. It keeps nothing of b.
func parseFrame(b []byte) (f frame, n int, err error) {
	for i, want := range [...]byte{'W', 'T', wireVersion} {
		if i < len(b) && b[i] != want {
			return f, 0, errProtocol
		}
	}
	if len(b) < headLength {
		return f, 0, nil
	}
	f.kind = b[3]
	switch f.kind {
	case frameClientHello:
		n = clientHelloLength
	case frameServerHello:
		n = serverHelloLength
	case frameHeartbeat:
		n = heartbeatLength
	case frameEvicted:
		n = evictedLength
	case frameBye:
		return f, headLength, nil
	default:
		return f, 0, errProtocol
	}
	if len(b) < n {
		return f, 0, nil
	}
	return f, n, f.parseBody(b[headLength:n])
}

func (f *frame) parseBody(b []byte) error {
	switch f.kind {
	case frameClientHello:
		f.run, f.client, f.connection = binary.BigEndian.Uint64(b), binary.BigEndian.Uint32(b[8:]), binary.BigEndian.Uint32(b[12:])
		f.period = time.Duration(binary.BigEndian.Uint32(b[16:])) * time.Millisecond
		f.misses, f.mode = b[20], b[21]
		if f.period < MinPeriod || f.period > MaxPeriod || f.misses < 1 || f.misses > MaxMisses {
			return errProtocol
		}
	case frameServerHello:
		f.generation = binary.BigEndian.Uint64(b)
		copy(f.id[:], b[8:])
		copy(f.zone[:], b[8+idLength:])
	case frameHeartbeat:
		f.seq, f.sent = binary.BigEndian.Uint32(b), binary.BigEndian.Uint64(b[4:])
		f.echo, f.since = binary.BigEndian.Uint32(b[12:]), binary.BigEndian.Uint64(b[16:])
		length := binary.BigEndian.Uint32(b[24:])
		if length > MaxPayload {
			return errProtocol
		}
		f.payload = int(length)
	case frameEvicted:
		f.reason, f.seq = b[0], binary.BigEndian.Uint32(b[4:])
	}
	return nil
}

// put writes the frame into b, which has room, and returns its length without payload.
func (f *frame) put(b []byte) int {
	n := frameLength(f.kind)
	clear(b[:n])
	b[0], b[1], b[2], b[3] = 'W', 'T', wireVersion, f.kind
	body := b[headLength:n]
	switch f.kind {
	case frameClientHello:
		binary.BigEndian.PutUint64(body, f.run)
		binary.BigEndian.PutUint32(body[8:], f.client)
		binary.BigEndian.PutUint32(body[12:], f.connection)
		binary.BigEndian.PutUint32(body[16:], uint32(f.period/time.Millisecond))
		body[20], body[21] = f.misses, f.mode
	case frameServerHello:
		binary.BigEndian.PutUint64(body, f.generation)
		copy(body[8:], f.id[:])
		copy(body[8+idLength:], f.zone[:])
	case frameHeartbeat:
		binary.BigEndian.PutUint32(body, f.seq)
		binary.BigEndian.PutUint64(body[4:], f.sent)
		binary.BigEndian.PutUint32(body[12:], f.echo)
		binary.BigEndian.PutUint64(body[16:], f.since)
		binary.BigEndian.PutUint32(body[24:], uint32(f.payload))
	case frameEvicted:
		body[0] = f.reason
		binary.BigEndian.PutUint32(body[4:], f.seq)
	}
	return n
}

// frameLength is the length of a frame of a kind.
func frameLength(kind uint8) int {
	switch kind {
	case frameClientHello:
		return clientHelloLength
	case frameServerHello:
		return serverHelloLength
	case frameHeartbeat:
		return heartbeatLength
	case frameEvicted:
		return evictedLength
	}
	return headLength
}

// word is what a fixed field holds, up to its padding, made printable: it comes from the network.
func word(field []byte) string {
	text, _, _ := strings.Cut(string(field), "\x00")
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, text)
}
