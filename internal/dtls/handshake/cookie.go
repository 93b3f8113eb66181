package handshake

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"hash"
	"net/netip"
	"time"
)

// CookieSecretLength is the length of a cookie secret in bytes.
const CookieSecretLength = 32

const (
	cookieLength = 20
	// cookiePeriod is how long one key makes cookies; they hold for as long again.
	cookiePeriod = time.Minute
)

// cookies makes and checks hello cookies without keeping any (RFC 6347 section
// 4.2.1). The key of a period is the secret with the period's number hashed in.
type cookies struct {
	mac hash.Hash
	sum [sha256.Size]byte
	in  [8 + 16 + 2 + 2]byte
}

func newCookies(secret []byte) cookies {
	return cookies{mac: hmac.New(sha256.New, secret)}
}

// make returns the cookie of a hello in a period. It covers the fields in front of the cookie, so that the first fragment of
// a hello has them all. The Finished covers the rest. The result is overwritten by the next call.
func (c *cookies) make(from netip.AddrPort, h *hello, period uint64) []byte {
	binary.BigEndian.PutUint64(c.in[:], period)
	address := from.Addr().As16()
	copy(c.in[8:], address[:])
	binary.BigEndian.PutUint16(c.in[24:], from.Port())
	binary.BigEndian.PutUint16(c.in[26:], h.version)
	c.mac.Reset()
	c.mac.Write(c.in[:])
	c.mac.Write(h.random)
	c.mac.Write(h.sessionID) // the last field: no two hellos look the same
	return c.mac.Sum(c.sum[:0])[:cookieLength]
}

// valid reports whether the hello's cookie is one of ours and fresh.
func (c *cookies) valid(from netip.AddrPort, h *hello, now time.Duration) bool {
	if len(h.cookie) != cookieLength {
		return false
	}
	period := period(now)
	return subtle.ConstantTimeCompare(c.make(from, h, period), h.cookie) == 1 ||
		(period > 0 && subtle.ConstantTimeCompare(c.make(from, h, period-1), h.cookie) == 1)
}

func period(now time.Duration) uint64 { return uint64(max(now, 0) / cookiePeriod) }
