package link

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding"
	"hash"
	"sync/atomic"
)

// MACLength is the length in bytes of the code that authenticates a frame.
const MACLength = 8

const (
	blockSize = 64 // of SHA-256, in bytes
	maxHeader = 4 + 16
	coverEnds = 32 // bytes of either end of a long body that the code covers
)

// macKey is a key of HMAC-SHA256 (RFC 2104): the states of the two hashes after the block that depends on the key alone, which
// crypto/hmac would compute again for each worker.
type macKey struct{ inner, outer []byte }

// newMACKey prepares a key of at most 64 bytes.
func newMACKey(key []byte) macKey {
	var inner, outer [blockSize]byte
	copy(inner[:], key)
	outer = inner
	for i := range blockSize {
		inner[i] ^= 0x36
		outer[i] ^= 0x5c
	}
	return macKey{stateAfter(inner[:]), stateAfter(outer[:])}
}

// stateAfter returns the state of SHA-256 after a block.
func stateAfter(block []byte) []byte {
	h := sha256.New()
	h.Write(block)
	state, err := h.(encoding.BinaryMarshaler).MarshalBinary()
	if err != nil {
		panic("link: the state of SHA-256: " + err.Error()) // crypto/sha256 promises to have one
	}
	return state
}

// digest is what one computation needs. It would be allocated each time otherwise.
type digest struct {
	sha256 hash.Hash
	b      [maxHeader + 2*coverEnds]byte
}

// restore sets the hash to a state of stateAfter.
func (d *digest) restore(state []byte) {
	if err := d.sha256.(encoding.BinaryUnmarshaler).UnmarshalBinary(state); err != nil {
		panic("link: the state of SHA-256: " + err.Error()) // it was made by stateAfter
	}
}

// sum returns the first bytes of the code over the header of a frame and its body: all of it, or, where both together have more than 64
// bytes, its first and last 32.
func (k *macKey) sum(d *digest, header, body []byte) (code [MACLength]byte) {
	n := copy(d.b[:], header)
	if len(body) > 2*coverEnds-len(header) {
		n += copy(d.b[n:], body[:coverEnds])
		body = body[len(body)-coverEnds:]
	}
	n += copy(d.b[n:], body)
	d.restore(k.inner)
	d.sha256.Write(d.b[:n])
	inner := d.sha256.Sum(d.b[:0])
	d.restore(k.outer)
	d.sha256.Write(inner)
	copy(code[:], d.sha256.Sum(d.b[:0]))
	return code
}

// Keys are those of the sessions with one node, for frames. Any number of workers may use them at once.
type Keys struct {
	write    macKey
	read     [maxSessions]macKey // in the order of of
	of       []*session
	before   []macKey                  // for reading, of the process before
	received [maxSessions]atomic.Bool  // a frame of the session, since Links has looked last
	free     [4]atomic.Pointer[digest] // that no worker uses just now
}

// digest returns one for the caller alone, until it is given back.
func (k *Keys) digest() *digest {
	for i := range k.free {
		if d := k.free[i].Swap(nil); d != nil {
			return d
		}
	}
	return &digest{sha256: sha256.New()}
}

func (k *Keys) giveBack(d *digest) {
	for i := range k.free {
		if k.free[i].CompareAndSwap(nil, d) {
			return
		}
	}
}

// Sum returns the code of a frame that has this header, of at most 20 bytes, and this body, of at least 26.
func (k *Keys) Sum(header, body []byte) [MACLength]byte {
	d := k.digest()
	defer k.giveBack(d)
	return k.write.sum(d, header, body)
}

// Verify reports whether the code of a frame is right.
func (k *Keys) Verify(header, code, body []byte) bool {
	d := k.digest()
	defer k.giveBack(d)
	for i := range k.of {
		want := k.read[i].sum(d, header, body)
		if subtle.ConstantTimeCompare(want[:], code) == 1 {
			if !k.received[i].Load() { // a write for every frame would move the cache line between workers
				k.received[i].Store(true)
			}
			return true
		}
	}
	for i := range k.before {
		want := k.before[i].sum(d, header, body)
		if subtle.ConstantTimeCompare(want[:], code) == 1 {
			return true
		}
	}
	return false
}
