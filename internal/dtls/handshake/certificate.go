package handshake

import (
	"bytes"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weir-lb/weir/internal/dtls/record"
)

// Certificate types (RFC 7250 section 3).
const (
	typeX509   = 0
	typeRawKey = 2
)

// What a CertificateRequest names: ECDSA includes Ed25519 (RFC 8422 section 5.5).
const (
	certificateTypeECDSA = 64
	certificateTypeRSA   = 1
)

// MaxChain is the maximum number of certificates of a peer's chain. maxRSA bounds RSA keys, in bits: a huge key would make a
// signature slow to verify. Those of peers and our own have at least minRSA.
const (
	MaxChain = 6
	minRSA   = 2048
	maxRSA   = 4096
)

var errMalformed = errors.New("the message does not make sense")

// Certificate is a private key and what proves it to peers: a chain of X.509 certificates, or the raw public key
// (RFC 7250). It is immutable and may be shared.
type Certificate struct {
	key     crypto.Signer
	leaf    *x509.Certificate // nil: raw public key only
	x509    []byte            // body of the Certificate message; nil: raw public key only
	rawKey  []byte            // likewise
	group   Group
	grouped bool // the key is on group's curve
}

// NewCertificate makes a Certificate of a key on P-256 or P-384, for Ed25519, or for RSA. A signature with RSA takes a worker some
// twenty times as long as the others. chain is in DER, the key's own certificate
// first, the root may be left out; without any the raw public key is all that peers get. The raw public key is sent to peers
// that prefer it.
func NewCertificate(chain [][]byte, key crypto.Signer) (*Certificate, error) {
	c := &Certificate{key: key}
	var ok bool
	if c.group, c.grouped, ok = groupOfKey(key.Public()); !ok {
		return nil, fmt.Errorf("a key of type %T: want ECDSA on P-256 or P-384, Ed25519, or RSA with 2048 to 4096 bits", key.Public())
	}
	spki, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, err
	}
	c.rawKey = appendVector24(nil, spki)
	if len(chain) == 0 {
		return c, nil
	}
	if len(chain) > MaxChain {
		return nil, fmt.Errorf("a chain of %d certificates: want at most %d", len(chain), MaxChain)
	}
	if c.leaf, err = x509.ParseCertificate(chain[0]); err != nil {
		return nil, err
	}
	if !bytes.Equal(c.leaf.RawSubjectPublicKeyInfo, spki) {
		return nil, errors.New("the private key is not that of the first certificate")
	}
	var list []byte
	for _, der := range chain {
		list = appendVector24(list, der)
	}
	if c.x509 = appendVector24(nil, list); len(c.x509) > MaxMessage {
		return nil, fmt.Errorf("a chain of %d bytes: want at most %d", len(c.x509), MaxMessage)
	}
	return c, nil
}

// TLS is the certificate for crypto/tls; false: it is a raw public key, which crypto/tls does not know.
func (c *Certificate) TLS() (tls.Certificate, bool) {
	if c.x509 == nil {
		return tls.Certificate{}, false
	}
	out := tls.Certificate{PrivateKey: c.key, Leaf: c.leaf}
	b := cursor{b: c.x509}
	for list := (cursor{b: b.vector24()}); len(list.b) > 0; {
		out.Certificate = append(out.Certificate, list.vector24())
	}
	return out, true
}

// body returns the body of the Certificate message for a certificate type; nil: it cannot be sent as that.
func (c *Certificate) body(typ byte) []byte {
	switch typ {
	case typeX509:
		return c.x509
	case typeRawKey:
		return c.rawKey
	}
	return nil
}

// Credentials are our certificates and the authorities we trust. They are immutable: a reload stores new ones, and handshakes that have
// begun end with those they began with.
type Credentials struct {
	// Certificates are ours, in order of preference. A server takes the first one that the client can verify, and before it
	// one that is valid for the name that the client requests.
	Certificates []*Certificate
	// Roots are trusted to sign peers' certificates. nil trusts none.
	Roots *x509.CertPool
	// RawKey reports whether a peer's raw public key, a SubjectPublicKeyInfo in DER, is trusted. nil trusts none.
	RawKey func(spki []byte) bool
	// TrustAll trusts every certificate and raw public key, whoever signed it. A peer still has to prove its private key.
	TrustAll bool
}

// trusts reports whether any peer could be trusted by a certificate of that type.
func (c *Credentials) trusts(typ byte) bool {
	if c == nil {
		return false
	}
	return c.TrustAll || typ == typeX509 && c.Roots != nil || typ == typeRawKey && c.RawKey != nil
}

// types returns the certificate types in which a peer can be trusted.
func (c *Credentials) types() (list []byte) {
	for _, typ := range []byte{typeX509, typeRawKey} {
		if c.trusts(typ) {
			list = append(list, typ)
		}
	}
	return list
}

// choose returns our certificate for a peer, and the certificate type and signature scheme to use. types are what the peer
// takes, in its order; nil stands for X.509 only. fits says which keys may be used.
func (c *Credentials) choose(name string, types, groups, schemes []byte, fits func(crypto.PublicKey) bool) (*Certificate, byte, uint16, bool) {
	if c == nil {
		return nil, 0, 0, false
	}
	if types == nil {
		types = []byte{typeX509}
	}
	var best *Certificate
	var bestType byte
	var bestScheme uint16
	for _, typ := range types {
		for _, own := range c.Certificates {
			scheme, ok := chooseScheme(own.key.Public(), schemes)
			if own.body(typ) == nil || !ok || !fits(own.key.Public()) || own.grouped && groups != nil && !contains16(groups, uint16(own.group)) {
				continue
			}
			if name == "" || typ == typeX509 && own.leaf.VerifyHostname(name) == nil {
				return own, typ, scheme, true
			}
			if best == nil {
				best, bestType, bestScheme = own, typ, scheme
			}
		}
	}
	return best, bestType, bestScheme, best != nil
}

// fits reports whether a server's key is of the kind that the suite names.
func fits(suite record.Suite, public crypto.PublicKey) bool {
	_, isRSA := public.(*rsa.PublicKey)
	return suite.RSA() == isRSA
}

// peerCertificate is what a peer has sent as its certificate.
type peerCertificate struct {
	typ    byte
	chain  [][]byte // DER; of a raw public key one SubjectPublicKeyInfo
	leaf   *x509.Certificate
	public crypto.PublicKey
}

// parseCertificate reads the body of a Certificate message. It returns nil without an error for an empty one.
func parseCertificate(body []byte, typ byte) (*peerCertificate, error) {
	c := cursor{b: body}
	list := c.vector24()
	if !c.done() {
		return nil, errMalformed
	}
	if len(list) == 0 {
		return nil, nil
	}
	p := &peerCertificate{typ: typ}
	var err error
	if typ == typeRawKey {
		p.chain = [][]byte{slices.Clone(list)}
		p.public, err = x509.ParsePKIXPublicKey(p.chain[0])
	} else {
		for l := (cursor{b: list}); len(l.b) > 0; {
			der := l.vector24()
			if l.bad || len(p.chain) == MaxChain {
				return nil, errMalformed
			}
			p.chain = append(p.chain, slices.Clone(der))
		}
		if p.leaf, err = x509.ParseCertificate(p.chain[0]); err == nil {
			p.public = p.leaf.PublicKey
		}
	}
	if err != nil {
		return nil, err
	}
	if _, _, ok := groupOfKey(p.public); !ok {
		return nil, errors.New("the certificate's key is not for ECDSA on P-256 or P-384, Ed25519, or RSA with 2048 to 4096 bits")
	}
	return p, nil
}

// identity names the peer: its certificate's subject, or its key's hash (RFC 6920).
func (p *peerCertificate) identity() string {
	if p.typ == typeRawKey {
		sum := sha256.Sum256(p.chain[0])
		return "ni:///sha-256;" + base64.RawURLEncoding.EncodeToString(sum[:])
	}
	return p.leaf.Subject.String()
}

// auth is how the peer has proven itself.
func (p *peerCertificate) auth() Auth {
	if p.typ == typeRawKey {
		return AuthRawKey
	}
	return AuthX509
}

// trust checks that we trust the peer. name is a server's, empty: any.
func (c *Credentials) trust(p *peerCertificate, usage x509.ExtKeyUsage, name string, now time.Time) error {
	switch {
	case c == nil:
		return errors.New("no certificate is trusted")
	case c.TrustAll:
		return nil
	case p.typ == typeRawKey:
		if c.RawKey == nil || !c.RawKey(p.chain[0]) {
			return errors.New("the raw public key " + p.identity() + " is not trusted")
		}
		return nil
	case c.Roots == nil:
		return errors.New("no root certificate is trusted")
	}
	intermediates, err := p.intermediates()
	if err != nil {
		return err
	}
	_, err = p.leaf.Verify(x509.VerifyOptions{
		DNSName: name, Roots: c.Roots, Intermediates: intermediates, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage},
	})
	return err
}

// intermediates returns the certificates behind the first, without repetitions, which some peers send. Each subject may come
// only once and keys must be of a sensible size: so there is one path at most, and the time to verify it is bounded.
func (p *peerCertificate) intermediates() (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	subjects := [][]byte{p.leaf.RawSubject}
	for i, der := range p.chain[1:] {
		if slices.ContainsFunc(p.chain[:i+1], func(earlier []byte) bool { return bytes.Equal(earlier, der) }) {
			continue
		}
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, err
		}
		for _, s := range subjects {
			if bytes.Equal(s, c.RawSubject) {
				return nil, errors.New("two certificates of the chain have one subject")
			}
		}
		if key, ok := c.PublicKey.(*rsa.PublicKey); ok && key.N.BitLen() > maxRSA {
			return nil, fmt.Errorf("the chain has an RSA key of %d bits: want at most %d", key.N.BitLen(), maxRSA)
		}
		subjects = append(subjects, c.RawSubject)
		pool.AddCert(c)
	}
	return pool, nil
}

// alertOf is the alert for a certificate that is not trusted (RFC 5246 section 7.2.2).
func alertOf(err error) byte {
	var invalid x509.CertificateInvalidError
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return alertCertificateExpired
	case errors.As(err, &unknown):
		return alertUnknownCA
	}
	return alertBadCertificate
}
