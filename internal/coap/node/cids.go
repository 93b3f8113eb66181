package node

import (
	"crypto/rand"
	"io"

	"github.com/weir-lb/weir/internal/dtls/engine"
)

// cids makes connection ids as Californium does: a byte of node id, the rest random; the second byte hints at the worker
// where the length leaves room for it.
type cids struct {
	random io.Reader
	length int
	owner  uint32
}

func newCIDs(length int, owner uint32) engine.CIDs {
	return &cids{random: rand.Reader, length: length, owner: owner}
}

// hintFrom is the shortest connection id that gives a byte away for the worker hint: 4 random bytes remain.
const hintFrom = 6

// Length implements [engine.CIDs].
func (c *cids) Length() int { return c.length }

// New implements [engine.CIDs]. It is safe from several workers.
func (c *cids) New(dst []byte, worker int) {
	_, _ = io.ReadFull(c.random, dst[1:]) // crypto/rand never fails
	dst[0] = byte(c.owner)
	if c.length >= hintFrom {
		dst[1] = byte(worker)
	}
}

// Owner implements [engine.CIDs].
func (c *cids) Owner(cid []byte) (owner uint32, own bool) {
	if len(cid) != c.length {
		return 0, true
	}
	owner = uint32(cid[0])
	return owner, owner == c.owner
}

// Worker implements [engine.CIDs].
func (c *cids) Worker(cid []byte) int {
	if c.length >= hintFrom && len(cid) == c.length {
		return int(cid[1])
	}
	return 0
}
