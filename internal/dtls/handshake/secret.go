package handshake

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"hash"

	"github.com/weir-lb/weir/internal/dtls/record"
)

const masterLength = 48

// newHash returns the constructor of the hash of a suite's pseudorandom function.
func newHash(suite record.Suite) func() hash.Hash {
	if suite.SHA384() {
		return sha512.New384
	}
	return sha256.New
}

// prf fills out with TLS 1.2's PRF (RFC 5246 section 5).
func prf(newHash func() hash.Hash, out, secret []byte, label string, seeds ...[]byte) {
	mac := hmac.New(newHash, secret)
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

// premasterPSK is the premaster secret of plain PSK (RFC 4279 section 2), or, with the shared secret of an ephemeral key
// exchange, of ECDHE_PSK (RFC 5489 section 2).
func premasterPSK(psk, shared []byte) []byte {
	if shared == nil {
		shared = make([]byte, len(psk))
	}
	out := appendVector16(make([]byte, 0, 4+len(shared)+len(psk)), shared)
	return appendVector16(out, psk)
}

// secrets is what a handshake ends in.
type secrets struct {
	suite  record.Suite
	master [masterLength]byte
}

// agree computes the master secret, and clears the premaster secret. transcript has everything up to the ClientKeyExchange
// (RFC 7627 section 3).
func (s *secrets) agree(premaster []byte, extended bool, transcript *transcript, client, server []byte) {
	if extended {
		prf(newHash(s.suite), s.master[:], premaster, "extended master secret", transcript.sum())
	} else {
		prf(newHash(s.suite), s.master[:], premaster, "master secret", client, server)
	}
	clear(premaster)
}

// keys computes the record keys.
func (s *secrets) keys(client, server []byte) record.Keys {
	block := make([]byte, s.suite.KeysLength())
	prf(newHash(s.suite), block, s.master[:], "key expansion", server, client)
	return record.SplitKeys(s.suite, block)
}

// macKeys computes two keys more from the key block, of the client and of the server, each as long as a key of the suite. They are for
// frames outside of DTLS, as Californium's cluster nodes use them: there they follow the client's IV, so that the first one begins with
// the server's IV. (Its comments put them behind both IVs; its code, from 2.5 to 4.0, does not.)
func (s *secrets) macKeys(client, server []byte) (ofClient, ofServer []byte) {
	from := s.suite.KeysLength() - s.suite.IVLength()
	n := s.suite.KeyLength()
	block := make([]byte, from+2*n)
	prf(newHash(s.suite), block, s.master[:], "key expansion", server, client)
	clear(block[:from])
	return block[from : from+n : from+n], block[from+n:]
}

// verify computes the verify_data of a Finished message.
func (s *secrets) verify(label string, transcript *transcript) (out [verifyLength]byte) {
	prf(newHash(s.suite), out[:], s.master[:], label, transcript.sum())
	return out
}

const (
	clientFinished = "client finished"
	serverFinished = "server finished"
)

// transcript is the handshake's messages so far, as if each had come in one fragment (RFC 6347 section 4.2.6). A
// CertificateVerify may need another hash than the suite's, or none: while one may come the messages themselves are kept.
type transcript struct {
	hash hash.Hash // nil until the suite is known
	keep bool
	raw  []byte
}

func (t *transcript) write(b []byte) {
	if t.hash != nil {
		t.hash.Write(b)
	}
	if t.keep {
		t.raw = append(t.raw, b...)
	}
}

// message writes a message that has come as body.
func (t *transcript) message(typ byte, sequence uint16, body []byte) {
	var header [messageHeader]byte
	t.write(appendHeader(header[:0], typ, sequence, len(body)))
	t.write(body)
}

// start hashes with the suite's hash from the beginning on; until then the messages must have been kept.
func (t *transcript) start(suite record.Suite) {
	t.hash = newHash(suite)()
	t.hash.Write(t.raw)
}

// forget drops the messages: no signature over them is due any more.
func (t *transcript) forget() { t.keep, t.raw = false, nil }

func (t *transcript) sum() []byte { return t.hash.Sum(nil) }

// Keys returns the keys of an established handshake, for what stores sessions. It is to be called before Result.
func (p *Pending) Keys() record.Keys { return p.secrets.keys(p.client[:], p.server[:]) }
