package allocation

import (
	"crypto/md5"  //nolint:gosec // the key of RFC 8489, section 9.2.2
	"crypto/sha1" //nolint:gosec // MESSAGE-INTEGRITY of RFC 8489, section 14.5
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"hash"
)

const blockSize = 64 // of SHA-1 and SHA-256

// macs computes hashes in place for one table's goroutine, so that a flood of requests allocates nothing.
type macs struct {
	md5, sha1, sha256 hash.Hash
	pad               [blockSize]byte
	sum, long         [sha256Size]byte
	head              [16]byte
	text, word        []byte
}

func newMACs() *macs { return &macs{md5: md5.New(), sha1: sha1.New(), sha256: sha256.New()} }

// hmac returns HMAC (RFC 2104) of head and body. The result is valid until the next call.
func (c *macs) hmac(h hash.Hash, key, head, body []byte) []byte {
	if len(key) > blockSize {
		h.Reset()
		h.Write(key)
		key = h.Sum(c.long[:0])
	}
	clear(c.pad[:])
	copy(c.pad[:], key)
	c.xorPad(0x36)
	h.Reset()
	h.Write(c.pad[:])
	h.Write(head)
	h.Write(body)
	inner := h.Sum(c.sum[:0])
	c.xorPad(0x36 ^ 0x5c)
	h.Reset()
	h.Write(c.pad[:])
	h.Write(inner)
	return h.Sum(c.sum[:0])
}

func (c *macs) xorPad(with byte) {
	for i := range c.pad {
		c.pad[i] ^= with
	}
}

// integrity returns the MESSAGE-INTEGRITY (or, with SHA-256, the MESSAGE-INTEGRITY-SHA256) of raw up to an offset at
// which the attribute of size bytes is or will be. The length in the header includes the attribute (RFC 8489,
// sections 14.5, 14.6).
func (c *macs) integrity(h hash.Hash, key, raw []byte, at, size int) []byte {
	head := c.head[:4]
	copy(head, raw[:2])
	binary.BigEndian.PutUint16(head[2:], uint16(at+attributeHeader+size-headerSize))
	return c.hmac(h, key, head, raw[4:at])
}

// longTerm computes the key of a long-term credential (RFC 8489, sections 9.2.2, 18.5.1): the hash of
// user:realm:password.
func (c *macs) longTerm(k *key, user, realm, password []byte, sha bool) {
	h := c.md5
	if sha {
		h = c.sha256
	}
	h.Reset()
	c.text = append(append(append(append(append(c.text[:0], user...), ':'), realm...), ':'), password...)
	h.Write(c.text)
	k.size = len(h.Sum(k.bytes[:0]))
}

// key is a long-term key: 16 bytes by MD5, 32 by SHA-256.
type key struct {
	bytes [sha256Size]byte
	size  int
}

func (k *key) slice() []byte { return k.bytes[:k.size] }

func equal(a, b []byte) bool { return subtle.ConstantTimeCompare(a, b) == 1 }
