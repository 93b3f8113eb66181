package oscore

import (
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/weir-lb/weir/internal/dtls/record"
	"github.com/weir-lb/weir/internal/keyerror"
)

// Sizes of AES-CCM-16-64-128 (RFC 9053 section 4.2, algorithm 10), in bytes.
const (
	algorithm   = 10
	keyLength   = 16
	nonceLength = 13
	tagLength   = 8

	MaxID        = nonceLength - 6 // of a Sender ID or Recipient ID (RFC 8613 section 3.3)
	MaxIDContext = 64              // the option could hold more; a bound of this package
	maxPIV       = 5
)

// maxSequence is the highest sender sequence number (RFC 8613 section 7.2.1).
const maxSequence = 1<<40 - 1

// ErrSpent: the sender sequence numbers of the context are used up, so it must not protect another message.
var ErrSpent = errors.New("oscore: all sender sequence numbers of the security context are used: agree on a new master secret")

// Parameters is what both endpoints of a context agree on (RFC 8613 section 3.2). The other endpoint has SenderID and
// RecipientID the other way round.
type Parameters struct {
	Name         string // for people; not sent
	MasterSecret []byte
	MasterSalt   []byte // may be empty
	IDContext    []byte // nil: none
	SenderID     []byte // 0 to MaxID bytes
	RecipientID  []byte // likewise, and another one
	// Renewable: a client may agree with this server on a new context of the same secret (Appendix B.2). Clients do not use it.
	Renewable bool
}

// Validate reports the first invalid value.
func (p *Parameters) Validate() error {
	switch {
	case len(p.MasterSecret) < keyLength:
		return keyerror.Errorf("master_secret", "%d bytes are too few for a secret; use at least %d", len(p.MasterSecret), keyLength)
	case len(p.SenderID) > MaxID:
		return keyerror.Errorf("sender_id", "%d bytes, at most %d fit the nonce", len(p.SenderID), MaxID)
	case len(p.RecipientID) > MaxID:
		return keyerror.Errorf("recipient_id", "%d bytes, at most %d fit the nonce", len(p.RecipientID), MaxID)
	case string(p.SenderID) == string(p.RecipientID):
		return keyerror.Errorf("recipient_id", "it is the sender_id, too; the two endpoints need different ones")
	case len(p.IDContext) > MaxIDContext:
		return keyerror.Errorf("id_context", "%d bytes, at most %d", len(p.IDContext), MaxIDContext)
	}
	return nil
}

// Store hands out sender sequence numbers that outlive the process.
type Store interface {
	// Reserve returns the first of count numbers that it has never handed out before, for the context with this id. They are
	// on disk when it returns.
	Reserve(id string, count uint64) (first uint64, err error)
}

// Context is a security context: the keys of both directions, the sender sequence number and the replay window. Safe for concurrent
// use; it must not be copied.
type Context struct {
	parameters Parameters
	sender     *record.CCM
	recipient  *record.CCM
	iv         [nonceLength]byte
	store      Store
	step       uint64
	id         string   // of the sender sequence numbers in the store
	number     uint64   // tells it from other contexts of this process
	renewal    *renewal // of one that is Renewable
	base       *Context // of a renewed one

	mu       sync.Mutex
	next     uint64        // sender sequence number
	reserved uint64        // one more than the last that may be used
	window   record.Window // of the recipient
	lost     bool          // the window was lost by a restart
}

// numbers counts the contexts of this process.
var numbers atomic.Uint64

// Step is how many sequence numbers a server reserves at a time.
const Step = 4096

// New derives a context. With a store its sender sequence numbers are reserved step by step, the first ones now; where earlier
// ones are found, the replay window counts as lost. Without a store the context must not outlive the process with the same secret,
// unless that is public.
func New(p Parameters, store Store, step uint64) (*Context, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	c := &Context{parameters: p, store: store, step: max(1, step), reserved: maxSequence + 1, number: numbers.Add(1)}
	senderKey, err := c.derive(p.SenderID, "Key", keyLength)
	if err != nil {
		return nil, err
	}
	recipientKey, err := c.derive(p.RecipientID, "Key", keyLength)
	if err != nil {
		return nil, err
	}
	iv, err := c.derive(nil, "IV", nonceLength)
	if err != nil {
		return nil, err
	}
	copy(c.iv[:], iv)
	if p.Renewable {
		c.renewal = newRenewal()
	}
	if c.sender, err = record.NewCCM(senderKey, tagLength); err != nil {
		return nil, err
	}
	if c.recipient, err = record.NewCCM(recipientKey, tagLength); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(append([]byte("weir oscore sender "), senderKey...))
	c.id = hex.EncodeToString(sum[:8])
	if store == nil {
		return c, nil
	}
	c.reserved = 0
	if err := c.reserve(); err != nil {
		return nil, err
	}
	c.lost = c.next > 0
	return c, nil
}

// derive is the HKDF of RFC 8613 section 3.2.1.
func (c *Context) derive(id []byte, kind string, length int) ([]byte, error) {
	info := appendBytes([]byte{0x85}, id)
	if c.parameters.IDContext == nil {
		info = append(info, 0xf6)
	} else {
		info = appendBytes(info, c.parameters.IDContext)
	}
	info = append(info, algorithm, 0x60|byte(len(kind)))
	info = append(append(info, kind...), byte(length))
	return hkdf.Key(sha256.New, c.parameters.MasterSecret, c.parameters.MasterSalt, string(info), length)
}

// appendBytes appends a CBOR byte string of at most 255 bytes (RFC 8949 section 3.1).
func appendBytes(dst, b []byte) []byte {
	if len(b) < 24 {
		dst = append(dst, 0x40|byte(len(b)))
	} else {
		dst = append(dst, 0x58, byte(len(b)))
	}
	return append(dst, b...)
}

// Name is Parameters.Name.
func (c *Context) Name() string { return c.parameters.Name }

// Parameters are those of New, without the secrets.
func (c *Context) Parameters() Parameters {
	p := c.parameters
	p.MasterSecret, p.MasterSalt = nil, nil
	return p
}

// Lost reports whether the replay window was lost and not recovered yet.
func (c *Context) Lost() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost
}

// Expected is one more than the highest sequence number received.
func (c *Context) Expected() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.window.Newest()
}

// take returns the next sender sequence number.
func (c *Context) take() (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next >= c.reserved && c.store != nil {
		if err := c.reserve(); err != nil {
			return 0, err
		}
	}
	if c.next > maxSequence {
		return 0, ErrSpent
	}
	c.next++
	return c.next - 1, nil
}

// reserve takes the next step from the store; with c.mu held, or before the context is shared.
func (c *Context) reserve() error {
	first, err := c.store.Reserve(c.id, c.step)
	if err != nil {
		return err
	}
	if first < c.next {
		return fmt.Errorf("oscore: the stored sequence number %d of context %q is below %d, which was used; restore the state file", first, c.Name(), c.next)
	}
	c.next, c.reserved = first, first+c.step
	return nil
}

// fresh reports whether a request with this sequence number may still be new. It changes nothing, for the request is not
// verified yet.
func (c *Context) fresh(sequence uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost || c.window.Check(sequence)
}

// accept notes a verified request. echoed: it has shown that it was made after this process began. A context that has lost its
// window takes no other (RFC 8613 Appendix B.1.2).
func (c *Context) accept(sequence uint64, echoed bool) Verdict {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.lost && !echoed:
		return Unfresh
	case c.lost:
		c.lost = false
		c.window.Begin(sequence)
		return Opened
	case !c.window.Check(sequence):
		return Replayed
	}
	c.window.Mark(sequence)
	return Opened
}

// nonce is that of RFC 8613 section 5.2.
func (c *Context) nonce(id, piv []byte) (n [nonceLength]byte) {
	n[0] = byte(len(id))
	copy(n[nonceLength-maxPIV-len(id):], id)
	copy(n[nonceLength-len(piv):], piv)
	for i := range n {
		n[i] ^= c.iv[i]
	}
	return n
}
