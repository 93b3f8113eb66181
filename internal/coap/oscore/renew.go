package oscore

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"sync/atomic"

	"github.com/weir-lb/weir/internal/dtls/record"
)

// Sizes of Appendix B.2 of RFC 8613, in bytes.
const (
	minID1       = 8 // what the client draws
	lengthS2     = 8
	lengthR2     = 2 * lengthS2 // S2 and its HMAC
	maxID1       = MaxIDContext - lengthR2
	maxRenewed   = 8 // contexts that count of one Renewable context; a new one takes the place of the oldest
	kidContextR2 = 1 + lengthR2
)

// renewal is the side of a server in Appendix B.2 of RFC 8613. A client whose sequence numbers are lost draws ID1 and sends a
// request that is protected with the ID context ID1; the server answers with R2, protected with R2 || ID1. The client sends another
// request, protected with R2 || R3, and that context counts from then on. The server stores nothing before that request: it
// recognizes its own R2, which is a number and its HMAC.
type renewal struct {
	key      [sha256.Size]byte // of the HMAC; drawn when the process begins, so that no R2 of an earlier one counts
	contexts atomic.Pointer[[]*Context]

	mu     sync.Mutex
	issued uint64        // the newest S2
	used   record.Window // values of S2 with which a context was made
}

func newRenewal() *renewal {
	n := new(renewal)
	_, _ = rand.Read(n.key[:]) // never fails
	n.contexts.Store(new([]*Context))
	return n
}

// r2 returns a value that was never returned before.
func (n *renewal) r2() []byte {
	n.mu.Lock()
	n.issued++
	s2 := n.issued
	n.mu.Unlock()
	r2 := binary.BigEndian.AppendUint64(make([]byte, 0, lengthR2), s2)
	return append(r2, n.sum(r2)...)
}

func (n *renewal) sum(s2 []byte) []byte {
	h := hmac.New(sha256.New, n.key[:])
	_, _ = h.Write(s2) // never fails
	return h.Sum(nil)[:lengthR2-lengthS2]
}

// mine returns S2 of an ID context that begins with a value of r2.
func (n *renewal) mine(id []byte) (s2 uint64, ok bool) {
	if len(id) <= lengthR2 || !hmac.Equal(n.sum(id[:lengthS2]), id[lengthS2:lengthR2]) {
		return 0, false
	}
	return binary.BigEndian.Uint64(id), true
}

// unused reports whether S2 has not made a context yet.
func (n *renewal) unused(s2 uint64) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.used.Check(s2)
}

// add makes a context count whose first request was verified, and reports whether its S2 was unused.
func (n *renewal) add(c *Context, s2 uint64) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.used.Check(s2) {
		return false
	}
	n.used.Mark(s2)
	old := *n.contexts.Load()
	all := append(make([]*Context, 0, len(old)+1), c)
	all = append(all, old[:min(len(old), maxRenewed-1)]...)
	n.contexts.Store(&all)
	return true
}

// with returns the context that counts with an ID context, or nil.
func (n *renewal) with(id []byte) *Context {
	for _, c := range *n.contexts.Load() {
		if string(c.parameters.IDContext) == string(id) {
			return c
		}
	}
	return nil
}

// renewed derives a context of the same secret with another ID context. Its sequence numbers begin at 0: at least one part of
// the ID context was drawn for it.
func (c *Context) renewed(id []byte) (*Context, error) {
	p := c.parameters
	p.IDContext, p.Renewable = id, false
	return New(p, nil, 1)
}

// parseBytes reads a CBOR byte string of at most 255 bytes with nothing behind it (RFC 8949 section 3.1).
func parseBytes(b []byte) ([]byte, bool) {
	switch {
	case len(b) > 0 && b[0]&0xe0 == 0x40 && int(b[0]&0x1f) < 24 && len(b) == 1+int(b[0]&0x1f):
		return b[1:], true
	case len(b) > 1 && b[0] == 0x58 && len(b) == 2+int(b[1]):
		return b[2:], true
	}
	return nil, false
}

// attempt is one context that may have protected a request.
type attempt struct {
	context *Context
	verdict Verdict // when it opens the request
	s2      uint64  // of a new context
	fresh   bool    // a new context
}

// attempts returns the contexts to open a request with, in order; with none, the verdict is Unknown. Without a kid context the
// renewed contexts of a kid come first, the newest one before all.
func (t *Table) attempts(o *Option, into []attempt) []attempt {
	if c := t.find(o); c != nil {
		if !o.HasContext && c.renewal != nil {
			for _, renewed := range *c.renewal.contexts.Load() {
				into = append(into, attempt{context: renewed})
			}
		}
		return append(into, attempt{context: c})
	}
	if t == nil || !o.HasContext || len(o.KID) > MaxID {
		return into
	}
	base := t.byKID[string(o.KID)]
	if base == nil || base.renewal == nil {
		return into
	}
	id, ok := parseBytes(o.KIDContext)
	if !ok || len(id) < minID1 || len(id) > MaxIDContext {
		return into
	}
	if c := base.renewal.with(id); c != nil {
		return append(into, attempt{context: c})
	}
	return base.renewing(id, into)
}

// renewing is attempts for an ID context that does not count: that of a request 2 with an R2 of this process, else of a request 1.
func (c *Context) renewing(id []byte, into []attempt) []attempt {
	a := attempt{verdict: Renewing}
	if s2, ok := c.renewal.mine(id); ok && c.renewal.unused(s2) {
		a = attempt{verdict: Opened, s2: s2, fresh: true}
	} else if len(id) > maxID1 {
		return into
	}
	var err error
	if a.context, err = c.renewed(append([]byte(nil), id...)); err != nil {
		return into
	}
	a.context.base = c
	return append(into, a)
}

// SealRenewal appends the protected form of a response to dst, after OpenRequest returned Renewing. It is response 1 of Appendix
// B.2: protected with the context of R2 || ID1, with the nonce of its request, and R2 as kid context.
func (c *Codec) SealRenewal(dst, plain []byte, b *Binding) ([]byte, error) {
	first := b.context
	if first == nil || first.base == nil {
		return dst, ErrMessage
	}
	r2 := first.base.renewal.r2()
	context, err := first.base.renewed(append(r2[:lengthR2:lengthR2], first.parameters.IDContext...))
	if err != nil {
		return dst, err
	}
	if !c.parseResponse(plain) {
		return dst, ErrMessage
	}
	c.nonce = first.nonce(b.kid[:b.kids], b.piv[:b.pivs])
	b.context, b.used = context, true
	return c.seal(dst, b.outer(), b, &Option{KIDContext: appendBytes(make([]byte, 0, kidContextR2), r2), HasContext: true})
}
