// Package handshaketest has what tests of DTLS handshakes share: a certificate authority, and a client over UDP.
package handshaketest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/dtls/handshake"
)

// Authority signs certificates with an intermediate certificate under a root.
type Authority struct {
	Roots    *x509.CertPool
	Root, CA *x509.Certificate
	key      crypto.Signer
}

var serial atomic.Int64

// rsaKey makes one RSA key for all: that takes long.
var rsaKey = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) })

// NewKey makes a key: "P-256", "P-384", "P-521", "Ed25519" or "RSA".
func NewKey(t testing.TB, kind string) crypto.Signer {
	t.Helper()
	var key crypto.Signer
	var err error
	switch kind {
	case "P-256":
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "P-384":
		key, err = ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case "P-521":
		key, err = ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	case "Ed25519":
		_, key, err = ed25519.GenerateKey(rand.Reader)
	case "RSA":
		key, err = rsaKey()
	default:
		t.Fatalf("no such key: %s", kind)
	}
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// NewAuthority makes an Authority whose certificates have names that begin with name.
func NewAuthority(t testing.TB, name string) *Authority {
	t.Helper()
	rootKey, key := NewKey(t, "P-256"), NewKey(t, "P-256")
	template := func(name string) *x509.Certificate {
		return &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	}
	root := template(name + " root")
	root = sign(t, root, root, rootKey.Public(), rootKey)
	a := &Authority{Roots: x509.NewCertPool(), Root: root, CA: sign(t, template(name+" ca"), root, key.Public(), rootKey), key: key}
	a.Roots.AddCert(root)
	return a
}

func sign(t testing.TB, template, parent *x509.Certificate, public crypto.PublicKey, key crypto.Signer) *x509.Certificate {
	t.Helper()
	template.SerialNumber = big.NewInt(serial.Add(1))
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Issued is a certificate with its key and chain.
type Issued struct {
	*handshake.Certificate
	Chain [][]byte // DER
	Key   crypto.Signer
}

// Issue makes a certificate for a name; edit, if not nil, may change it.
func (a *Authority) Issue(t testing.TB, kind, name string, edit func(*x509.Certificate)) Issued {
	t.Helper()
	key := NewKey(t, kind)
	template := &x509.Certificate{Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, KeyUsage: x509.KeyUsageDigitalSignature}
	if edit != nil {
		edit(template)
	}
	leaf := sign(t, template, a.CA, key.Public(), a.key)
	i := Issued{Chain: [][]byte{leaf.Raw, a.CA.Raw}, Key: key}
	var err error
	if i.Certificate, err = handshake.NewCertificate(i.Chain, key); err != nil {
		t.Fatal(err)
	}
	return i
}

// RawKey makes a raw public key.
func RawKey(t testing.TB, kind string) *handshake.Certificate {
	t.Helper()
	c, err := handshake.NewCertificate(nil, NewKey(t, kind))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TLS is the form that other libraries take.
func (i *Issued) TLS() tls.Certificate {
	return tls.Certificate{Certificate: i.Chain, PrivateKey: i.Key}
}

// Files writes chain and key as PEM files and returns their paths.
func (i *Issued) Files(t testing.TB) (chain, key string) {
	t.Helper()
	dir := t.TempDir()
	der, err := x509.MarshalPKCS8PrivateKey(i.Key)
	if err != nil {
		t.Fatal(err)
	}
	return writePEM(t, dir, "chain.pem", "CERTIFICATE", i.Chain...), writePEM(t, dir, "key.pem", "PRIVATE KEY", der)
}

// File writes the root certificate as a PEM file and returns its path.
func (a *Authority) File(t testing.TB) string {
	t.Helper()
	return writePEM(t, t.TempDir(), "root.pem", "CERTIFICATE", a.Root.Raw)
}

func writePEM(t testing.TB, dir, name, typ string, blocks ...[]byte) string {
	t.Helper()
	var out []byte
	for _, b := range blocks {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: typ, Bytes: b})...)
	}
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, out, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Store puts credentials where configurations want them.
func Store(c handshake.Credentials) *atomic.Pointer[handshake.Credentials] {
	p := new(atomic.Pointer[handshake.Credentials])
	p.Store(&c)
	return p
}
