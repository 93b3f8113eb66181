package node

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"hash"
	"net/netip"
	"time"
)

// Echo values (RFC 9175 section 2.3) are a keyed hash of the address and a period of time. Nothing is stored, and only a
// receiver at that address can know the value. The values are short, so that a 4.01 with one is never more than three times
// as long as the shortest request: 4 + 2 + 6 bytes for 4. A blind guess is right with a probability of 2^-47, since two
// periods are valid.
const (
	echoLength = 6
	echoPeriod = time.Minute // a value is valid for one to two periods
)

// echoKey is shared by the workers of a listener.
type echoKey [sha256.Size]byte

func newEchoKey() (k echoKey) {
	_, _ = rand.Read(k[:]) // never fails (crypto/rand)
	return k
}

// echoes makes and checks Echo values. Not for concurrent use.
type echoes struct {
	mac hash.Hash
	sum [sha256.Size]byte
	in  [8 + 16 + 2]byte
}

func newEchoes(k echoKey) echoes { return echoes{mac: hmac.New(sha256.New, k[:])} }

// value returns the value for address at now; the next call overwrites it.
func (e *echoes) value(address netip.AddrPort, now time.Duration) []byte {
	return e.of(address, int64(now/echoPeriod))
}

func (e *echoes) of(address netip.AddrPort, period int64) []byte {
	binary.BigEndian.PutUint64(e.in[:], uint64(period))
	raw := address.Addr().As16()
	copy(e.in[8:], raw[:])
	binary.BigEndian.PutUint16(e.in[24:], address.Port())
	e.mac.Reset()
	e.mac.Write(e.in[:])
	return e.mac.Sum(e.sum[:0])[:echoLength]
}

// valid reports whether value was made for address in this period or the previous one.
func (e *echoes) valid(value []byte, address netip.AddrPort, now time.Duration) bool {
	period := int64(now / echoPeriod)
	return subtle.ConstantTimeCompare(value, e.of(address, period)) == 1 ||
		subtle.ConstantTimeCompare(value, e.of(address, period-1)) == 1
}
