package gateway

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"net/netip"
	"time"
)

// The first messages of DTLS 1.2 (RFC 6347 §4.1, §4.2), as far as a server without state reads them:
//
//	record     type 1 | version 2 | epoch 2 | sequence 6 | length 2
//	handshake  type 1 | length 3 | message sequence 2 | fragment offset 3 | fragment length 3
//	hello      version 2 | random 32 | session id <32> | cookie <255> | suites <2^16> | methods <255> | extensions
const (
	recordHeader    = 13
	handshakeHeader = 12
	helloFixed      = 2 + 32

	recordHandshake     = 22
	typeClientHello     = 1
	typeHelloVerify     = 3
	cookieSize          = 20 // the length of pion/dtls's cookies, see dtlsPipe
	cookiePeriod        = time.Minute
	helloVerifySize     = recordHeader + handshakeHeader + 3 + cookieSize
	maxHelloRecordBytes = 1 << 14
)

// dtlsHello is a ClientHello that arrived as one record with one unfragmented message. Its parts alias the datagram.
type dtlsHello struct {
	record    []byte // the whole record
	sequence  uint64 // of the record, without epoch
	fixed     []byte // version and random
	sessionID []byte
	cookie    []byte
	rest      []byte // suites, methods, extensions
	core      []byte // suites and methods with their lengths, which must be equal in both hellos
}

// isHandshakeStart reports whether a datagram begins with a ClientHello of epoch 0.
func isHandshakeStart(b []byte) bool {
	return len(b) > recordHeader && b[0] == recordHandshake && b[1] == 0xFE && binary.BigEndian.Uint16(b[3:]) == 0 && b[recordHeader] == typeClientHello
}

// parseHello reads the ClientHello at the beginning of a datagram. It returns false if there is none, or if it is
// fragmented: a server without state cannot answer fragments before the cookie was returned (RFC 6347 §4.2.1 allows a
// server to require a single one).
func parseHello(b []byte) (h dtlsHello, ok bool) {
	if !isHandshakeStart(b) || len(b) < recordHeader+handshakeHeader+helloFixed {
		return h, false
	}
	size := int(binary.BigEndian.Uint16(b[11:]))
	if size > maxHelloRecordBytes || size < handshakeHeader+helloFixed || len(b) < recordHeader+size {
		return h, false
	}
	h.record = b[:recordHeader+size]
	h.sequence = binary.BigEndian.Uint64(b[3:]) & (1<<48 - 1)
	message := h.record[recordHeader:]
	length := uint24(message[1:])
	if uint24(message[6:]) != 0 || uint24(message[9:]) != length || handshakeHeader+length != len(message) {
		return h, false
	}
	body := message[handshakeHeader:]
	h.fixed, body = body[:helloFixed], body[helloFixed:]
	if h.sessionID, body, ok = vector8(body); !ok || len(h.sessionID) > 32 {
		return h, false
	}
	if h.cookie, body, ok = vector8(body); !ok {
		return h, false
	}
	h.rest = body
	if len(body) < 2 {
		return h, false
	}
	end := 2 + int(binary.BigEndian.Uint16(body))
	if len(body) < end+1 || len(body) < end+1+int(body[end]) {
		return h, false
	}
	h.core = body[:end+1+int(body[end])]
	return h, true
}

func uint24(b []byte) int { return int(b[0])<<16 | int(b[1])<<8 | int(b[2]) }

func putUint24(b []byte, n int) { b[0], b[1], b[2] = byte(n>>16), byte(n>>8), byte(n) }

func vector8(b []byte) (v, rest []byte, ok bool) {
	if len(b) == 0 || len(b) < 1+int(b[0]) {
		return nil, nil, false
	}
	return b[1 : 1+int(b[0])], b[1+int(b[0]):], true
}

// withoutCookie builds the hello that the client must have sent before this one: without a cookie, with message
// sequence 0 and record sequence 0 (record sequence 1 if this one has 0, so that no record looks like a replay).
func (h *dtlsHello) withoutCookie() []byte {
	length := helloFixed + 1 + len(h.sessionID) + 1 + len(h.rest)
	b := make([]byte, 0, recordHeader+handshakeHeader+length)
	b = append(b, h.record[:recordHeader+handshakeHeader]...)
	binary.BigEndian.PutUint64(b[3:], 0) // epoch 0 too
	if h.sequence == 0 {
		b[10] = 1
	}
	binary.BigEndian.PutUint16(b[11:], uint16(handshakeHeader+length))
	m := b[recordHeader:]
	putUint24(m[1:], length)
	binary.BigEndian.PutUint16(m[4:], 0)
	putUint24(m[9:], length)
	b = append(b, h.fixed...)
	b = append(append(b, byte(len(h.sessionID))), h.sessionID...)
	return append(append(b, 0), h.rest...)
}

// appendHelloVerify appends the answer to a hello without a valid cookie. It is shorter than any hello. It repeats
// the hello's record sequence, as RFC 6347 §4.2.1 requires, and has version DTLS 1.0, which every client accepts
// here.
func (h *dtlsHello) appendHelloVerify(dst []byte, cookie []byte) []byte {
	at := len(dst)
	dst = append(dst, h.record[:recordHeader]...)
	binary.BigEndian.PutUint16(dst[at+1:], 0xFEFF)
	const body = 2 + 1 + cookieSize
	binary.BigEndian.PutUint16(dst[at+11:], handshakeHeader+body)
	dst = append(dst, typeHelloVerify, 0, 0, body, 0, 0, 0, 0, 0, 0, 0, body, 0xFE, 0xFF, cookieSize)
	return append(dst, cookie...)
}

// cookieMaker makes cookies that are valid for one to two minutes, for one address and one hello. Any goroutine may
// call it.
type cookieMaker struct{ key [32]byte }

// make returns the cookie for a period.
func (k *cookieMaker) make(client netip.AddrPort, h *dtlsHello, period uint64) [cookieSize]byte {
	mac := hmac.New(sha256.New, k.key[:])
	var in [8 + 16 + 2 + 1]byte
	binary.BigEndian.PutUint64(in[:], period)
	address := client.Addr().As16()
	copy(in[8:], address[:])
	binary.BigEndian.PutUint16(in[24:], client.Port())
	in[26] = byte(len(h.sessionID))
	mac.Write(in[:])
	mac.Write(h.fixed)
	mac.Write(h.sessionID)
	mac.Write(h.core)
	return [cookieSize]byte(mac.Sum(nil)[:cookieSize])
}

// valid reports whether the hello has the cookie of the current or the previous period.
func (k *cookieMaker) valid(client netip.AddrPort, h *dtlsHello, now int64) bool {
	if len(h.cookie) != cookieSize {
		return false
	}
	period := cookiePeriodOf(now)
	this, last := k.make(client, h, period), k.make(client, h, period-1)
	return subtle.ConstantTimeCompare(this[:], h.cookie)|subtle.ConstantTimeCompare(last[:], h.cookie) == 1
}

func cookiePeriodOf(now int64) uint64 { return uint64(now) / uint64(cookiePeriod) }
