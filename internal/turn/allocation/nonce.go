package allocation

import (
	"encoding/base64"
	"encoding/binary"
	"net/netip"
)

// A nonce is the second in which it was made and a MAC of that second and the client's IP address, in base64. The server stores nothing. The
// port is not part of it, because a client of RFC 6062 uses one nonce on many connections.
//
//	[ obMatJos2 gAAB ] base64( seconds(4) mac(8) )      in brackets: only where PASSWORD-ALGORITHMS is offered
//	base64( steps(2) mac(4) )                           if the answer to a small request has no space for more
//
// A step is four seconds. Only the lower 16 bits of the step number are sent; the MAC covers all bits. A sender who guesses one of
// the 2^32 short MACs gets the rate limit of a proven source under a forged address, but no credentials.
const (
	nonceRaw  = 12
	nonceSize = 16

	shortNonceRaw  = 6
	shortNonceSize = 8
	nonceStep      = 4 // seconds

	nonceCookie = "obMatJos2" // RFC 8489, section 9.2
	// Bit 0 of the security features: password algorithms. The RFC's text counts bits from the left, its test vector from the
	// right, so both bits are set.
	nonceFeatures = "gAAB"
)

// appendNonce appends a fresh nonce for a client.
func (c *macs) appendNonce(dst []byte, keys [][]byte, client netip.Addr, now int64, features bool) []byte {
	var raw [nonceRaw]byte
	binary.BigEndian.PutUint32(raw[:], uint32(now/1e9))
	copy(raw[4:], c.nonceMAC(keys[0], raw[:4], client))
	if features {
		dst = append(append(dst, nonceCookie...), nonceFeatures...)
	}
	return base64.RawURLEncoding.AppendEncode(dst, raw[:])
}

func (c *macs) nonceMAC(key, seconds []byte, client netip.Addr) []byte {
	head := append(c.head[:0], seconds[:4]...)
	address := client.As16()
	c.text = append(c.text[:0], address[:]...)
	return c.hmac(c.sha256, key, head, c.text)[:nonceRaw-4]
}

// appendShortNonce appends a nonce in the short form.
func (c *macs) appendShortNonce(dst []byte, keys [][]byte, client netip.Addr, now int64) []byte {
	var raw [shortNonceRaw]byte
	var steps [4]byte
	binary.BigEndian.PutUint32(steps[:], uint32(now/(nonceStep*1e9)))
	copy(raw[:], steps[2:])
	copy(raw[2:], c.nonceMAC(keys[0], steps[:], client))
	return base64.RawURLEncoding.AppendEncode(dst, raw[:])
}

// nonceHolds verifies a nonce. A nonce from the future (after a clock was set back) is valid for a minute only.
func (c *macs) nonceHolds(nonce []byte, p *Policy, client netip.Addr, now int64) bool {
	if nonceHasFeatures(nonce) {
		nonce = nonce[len(nonceCookie)+len(nonceFeatures):]
	}
	var raw [nonceRaw + 3]byte
	if len(nonce) != nonceSize && len(nonce) != shortNonceSize {
		return false
	}
	n, err := base64.RawURLEncoding.Decode(raw[:], nonce)
	if err != nil {
		return false
	}
	var signed [4]byte
	var made int64 // in seconds
	mac := raw[4:n]
	if n == shortNonceRaw {
		steps := now / (nonceStep * 1e9)
		steps -= int64(int16(uint16(steps) - binary.BigEndian.Uint16(raw[:])))
		binary.BigEndian.PutUint32(signed[:], uint32(steps))
		made, mac = steps*nonceStep, raw[2:n]
	} else {
		copy(signed[:], raw[:])
		made = int64(binary.BigEndian.Uint32(raw[:]))
	}
	age := now/1e9 - made
	if age < -60 || age >= int64(p.Lifetimes.Nonce/1e9) {
		return false
	}
	for _, key := range p.NonceKeys {
		if equal(c.nonceMAC(key, signed[:], client)[:len(mac)], mac) {
			return true
		}
	}
	return false
}

// nonceHasFeatures reports whether this server offered PASSWORD-ALGORITHMS with the nonce.
func nonceHasFeatures(nonce []byte) bool {
	const prefix = nonceCookie + nonceFeatures
	return len(nonce) > len(prefix) && string(nonce[:len(prefix)]) == prefix
}
