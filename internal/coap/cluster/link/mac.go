package link

import (
	"crypto/sha256"
	"crypto/subtle"
	"sync/atomic"
)

// MACLength is the length in bytes of the code that authenticates a frame.
const MACLength = 8

const (
	blockSize = 64 // of SHA-256, in bytes
	maxHeader = 4 + 16
	coverEnds = 32 // bytes of either end of a long body that the code covers
)

// macKey is a key of HMAC-SHA256 (RFC 2104), prepared. crypto/hmac has state, which workers could not share.
type macKey struct{ inner, outer [blockSize]byte }

// newMACKey prepares a key of at most 64 bytes.
func newMACKey(key []byte) (k macKey) {
	copy(k.inner[:], key)
	k.outer = k.inner
	for i := range blockSize {
		k.inner[i] ^= 0x36
		k.outer[i] ^= 0x5c
	}
	return k
}

// sum returns the first bytes of the code over the header of a frame and its body: all of it, or, where both together have more than 64
// bytes, its first and last 32.
func (k *macKey) sum(header, body []byte) (code [MACLength]byte) {
	var b [blockSize + maxHeader + 2*coverEnds]byte
	n := copy(b[:], k.inner[:])
	n += copy(b[n:], header)
	if len(body) > 2*coverEnds-len(header) {
		n += copy(b[n:], body[:coverEnds])
		body = body[len(body)-coverEnds:]
	}
	n += copy(b[n:], body)
	inner := sha256.Sum256(b[:n])
	n = copy(b[:], k.outer[:])
	n += copy(b[n:], inner[:])
	outer := sha256.Sum256(b[:n])
	copy(code[:], outer[:])
	return code
}

// Keys are those of the sessions with one node, for frames. Any number of workers may use them at once.
type Keys struct {
	write    macKey
	read     [maxSessions]macKey // in the order of of
	of       []*session
	received [maxSessions]atomic.Bool // a frame of the session, since Links has looked last
}

// Sum returns the code of a frame that has this header, of at most 20 bytes, and this body, of at least 26.
func (k *Keys) Sum(header, body []byte) [MACLength]byte { return k.write.sum(header, body) }

// Verify reports whether the code of a frame is right.
func (k *Keys) Verify(header, code, body []byte) bool {
	for i := range k.of {
		want := k.read[i].sum(header, body)
		if subtle.ConstantTimeCompare(want[:], code) == 1 {
			if !k.received[i].Load() { // a write for every frame would move the cache line between workers
				k.received[i].Store(true)
			}
			return true
		}
	}
	return false
}
