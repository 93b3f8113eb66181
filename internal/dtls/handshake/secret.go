package handshake

import (
	"crypto/hmac"
	"crypto/sha256"
	"hash"

	"github.com/weir-lb/weir/internal/dtls/record"
)

const masterLength = 48

// prf fills out with TLS 1.2's PRF over SHA-256 (RFC 5246 section 5).
func prf(out, secret []byte, label string, seeds ...[]byte) {
	mac := hmac.New(sha256.New, secret)
	seed := []byte(label)
	for _, s := range seeds {
		seed = append(seed, s...)
	}
	var a, block []byte
	mac.Write(seed)
	a = mac.Sum(nil)
	for len(out) > 0 {
		mac.Reset()
		mac.Write(a)
		mac.Write(seed)
		block = mac.Sum(block[:0])
		out = out[copy(out, block):]
		mac.Reset()
		mac.Write(a)
		a = mac.Sum(a[:0])
	}
}

// premaster is the premaster secret of plain PSK (RFC 4279 section 2).
func premaster(psk []byte) []byte {
	n := len(psk)
	out := make([]byte, 0, 4+2*n)
	out = append(out, byte(n>>8), byte(n))
	out = append(out, make([]byte, n)...)
	out = append(out, byte(n>>8), byte(n))
	return append(out, psk...)
}

// secrets is what a handshake ends in.
type secrets struct {
	master [masterLength]byte
}

// derive computes the master secret and the record keys. transcript has hashed
// everything up to the ClientKeyExchange (RFC 7627 section 3).
func (s *secrets) derive(psk []byte, extended bool, transcript hash.Hash, client, server []byte) record.Keys {
	pms := premaster(psk)
	if extended {
		prf(s.master[:], pms, "extended master secret", transcript.Sum(nil))
	} else {
		prf(s.master[:], pms, "master secret", client, server)
	}
	clear(pms)
	var block [record.KeysLength]byte
	prf(block[:], s.master[:], "key expansion", server, client)
	return record.SplitKeys(block[:])
}

// verify computes the verify_data of a Finished message.
func (s *secrets) verify(label string, transcript hash.Hash) (out [verifyLength]byte) {
	prf(out[:], s.master[:], label, transcript.Sum(nil))
	return out
}

const (
	clientFinished = "client finished"
	serverFinished = "server finished"
)
