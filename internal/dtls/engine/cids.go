package engine

import (
	"crypto/rand"
	"fmt"
	"io"

	"github.com/weir-lb/weir/internal/steering/cid"
	"github.com/weir-lb/weir/internal/udpio"
)

// CIDs describes the connection ids of this node. One byte outside the owner id carries the number of the worker. The number
// is a hint for the reuse-port program; nothing depends on its being right.
type CIDs struct {
	Layout cid.Layout
	Owner  uint32    // this node
	Rand   io.Reader // default crypto/rand; used by several workers at once
}

// cidKey is the key of the table of sessions by connection id. It has room for the longest connection id; a shorter one is
// padded with zeros.
type cidKey [cid.MaxLength]byte

func makeKey(id []byte) (k cidKey) {
	copy(k[:], id)
	return k
}

func (c *CIDs) validate() error {
	if err := c.Layout.Validate(); err != nil {
		return fmt.Errorf("connection id layout: %w", err)
	}
	if c.Owner > c.Layout.MaxOwner() {
		return fmt.Errorf("connection id layout: owner %d does not fit in %d bits", c.Owner, c.Layout.OwnerBits)
	}
	return nil
}

// hintByte returns the index of the byte that carries the worker's number: the first one that has only random bits. It
// returns false if the layout has no such byte.
func (c *CIDs) hintByte() (int, bool) {
	l := &c.Layout
	for i := range l.Length {
		from, to := 8*i, 8*i+8
		if from < l.OwnerOffset+l.OwnerBits && l.OwnerOffset < to ||
			l.RotationBits > 0 && from < l.RotationOffset+l.RotationBits && l.RotationOffset < to ||
			l.SelfLength && i == 0 {
			continue
		}
		return i, true
	}
	return 0, false
}

// hintMask returns the bits that the numbers of this many workers need.
func hintMask(workers int) byte {
	mask := 0
	for mask < workers-1 && mask < 0xff {
		mask = mask<<1 | 1
	}
	return byte(mask)
}

// Steering returns the reuse-port program for the sockets of this many workers. It returns nil if a program is not needed or not
// possible.
func (c *CIDs) Steering(workers int) *udpio.Steering {
	i, ok := c.hintByte()
	if !ok || workers < 2 {
		return nil
	}
	return &udpio.Steering{Rules: []udpio.SteerRule{udpio.SteerDTLS12(i, 0, hintMask(workers))}}
}

// frameForward is the first byte of the frames in which Californium clusters forward a datagram.
const frameForward = 63

// linkSteering returns a program that sends such a frame of an IPv4 client, with so many bytes before the datagram, to the worker in the
// hint of its connection id. A frame that reaches another worker is handed over.
func (c *CIDs) linkSteering(workers, header int) *udpio.Steering {
	i, ok := c.hintByte()
	if !ok || workers < 2 {
		return nil
	}
	return &udpio.Steering{Rules: []udpio.SteerRule{{
		FirstMask: 0xff, FirstValue: frameForward,
		Offset: header + cidOffset + i, Mask: hintMask(workers),
	}}}
}

// cidOffset is where the connection id of a record starts (RFC 9146 section 4).
const cidOffset = 11

// hinted is the source of random bytes for cid.Layout.New. It sets the hint in one of them before New uses them, because
// masked layouts hash that byte.
type hinted struct {
	random  io.Reader
	at      int
	mask, v byte
}

func (h hinted) Read(b []byte) (int, error) {
	n, err := io.ReadFull(h.random, b)
	if err == nil && h.at >= 0 && h.at < n {
		b[h.at] = b[h.at]&^h.mask | h.v
	}
	return n, err
}

// new returns a fresh connection id of this node for a session of a worker.
func (c *CIDs) new(worker, workers int) ([]byte, error) {
	random := c.Rand
	if random == nil {
		random = rand.Reader
	}
	h := hinted{random: random, at: -1}
	if i, ok := c.hintByte(); ok && workers > 1 {
		h.at, h.mask, h.v = i, hintMask(workers), byte(worker)
	}
	id := make([]byte, c.Layout.Length)
	return id, c.Layout.New(id, c.Owner, h)
}

// worker returns the worker's number from the hint of a connection id. One that was made for more workers than there are now has one of
// these, too.
func (c *CIDs) worker(id []byte, workers int) (int, bool) {
	i, ok := c.hintByte()
	if !ok || i >= len(id) || workers < 2 {
		return 0, false
	}
	return int(id[i]&hintMask(workers)) % workers, true
}

// owner returns the number of the node that made a connection id.
func (c *CIDs) owner(id []byte) (owner uint32, own, ok bool) {
	owner, ok = c.Layout.Owner(id)
	return owner, ok && owner == c.Owner, ok
}

// ByteOwnerCIDs returns the connection ids of Californium clusters, in which the first byte is the owner id.
func ByteOwnerCIDs(length int, owner uint32) *CIDs {
	return &CIDs{Layout: cid.ByteOwner(length), Owner: owner}
}
