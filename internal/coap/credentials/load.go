package credentials

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/readfile"
)

// maxPEM bounds a file, in bytes.
const maxPEM = 1 << 20

// Files names the files. Every field may be empty; a certificate needs a private key.
type Files struct {
	Certificate string   // chain, the own certificate first
	PrivateKey  string   // PKCS #8, or EC or RSA in their own forms
	Trust       []string // certificates and public keys
	TrustAll    bool     // trust every certificate and raw public key; a peer still has to prove its private key
}

// Empty reports whether nothing is named.
func (f Files) Empty() bool {
	return f.Certificate == "" && f.PrivateKey == "" && len(f.Trust) == 0 && !f.TrustAll
}

// Names returns the files to watch for a change.
func (f Files) Names() (names []string) {
	for _, name := range append([]string{f.Certificate, f.PrivateKey}, f.Trust...) {
		if name != "" {
			names = append(names, name)
		}
	}
	return names
}

// Loaded is what the files hold. It is immutable.
type Loaded struct {
	handshake.Credentials
	TLS *tls.Certificate // nil: there is no certificate, and TLS cannot use a raw public key
}

// Load reads the files. An own certificate must be valid at now.
func (f Files) Load(now time.Time) (*Loaded, error) {
	loaded := &Loaded{Credentials: handshake.Credentials{TrustAll: f.TrustAll}}
	if f.Certificate != "" && f.PrivateKey == "" {
		return nil, errors.New("certificate: it needs private_key, the key that it was made for")
	}
	if f.PrivateKey != "" {
		if err := loaded.own(f, now); err != nil {
			return nil, err
		}
	}
	keys := map[string]bool{}
	for i, name := range f.Trust {
		if err := loaded.trust(name, keys); err != nil {
			return nil, fmt.Errorf("trust[%d]: %w", i, err)
		}
	}
	if len(keys) > 0 {
		loaded.RawKey = func(spki []byte) bool { return keys[string(spki)] }
	}
	return loaded, nil
}

func (l *Loaded) own(f Files, now time.Time) error {
	text, err := readfile.Read(f.PrivateKey, maxPEM)
	if err != nil {
		return fmt.Errorf("private_key: %w", err)
	}
	key, err := parseKey(text)
	if err != nil {
		return fmt.Errorf("private_key: %s: %w", f.PrivateKey, err)
	}
	var chain [][]byte
	if f.Certificate != "" {
		if chain, err = readChain(f.Certificate, now); err != nil {
			return fmt.Errorf("certificate: %w", err)
		}
	}
	certificate, err := handshake.NewCertificate(chain, key)
	if err != nil {
		return fmt.Errorf("private_key: %s does not fit: %w", f.PrivateKey, err)
	}
	l.Certificates = []*handshake.Certificate{certificate}
	if chain != nil {
		l.TLS = &tls.Certificate{Certificate: chain, PrivateKey: key}
	}
	return nil
}

// parseKey returns the first private key of a PEM file.
func parseKey(text []byte) (crypto.Signer, error) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		var key any
		var err error
		switch block.Type {
		case "PRIVATE KEY":
			key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
		case "EC PRIVATE KEY":
			key, err = x509.ParseECPrivateKey(block.Bytes)
		case "RSA PRIVATE KEY":
			key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
		case "ENCRYPTED PRIVATE KEY":
			return nil, errors.New("the private key has a password; write it without, for example with: openssl pkcs8 -in FILE -out NEW")
		default:
			continue // such as EC PARAMETERS
		}
		if err != nil {
			return nil, errors.New("the private key is malformed")
		}
		if signer, ok := key.(crypto.Signer); ok {
			return signer, nil
		}
	}
	return nil, errors.New("no PEM private key; weir coap certs writes one")
}

func readChain(name string, now time.Time) (chain [][]byte, err error) {
	text, err := readfile.Read(name, maxPEM)
	if err != nil {
		return nil, err
	}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			chain = append(chain, block.Bytes)
		}
	}
	if len(chain) == 0 {
		return nil, fmt.Errorf("%s holds no PEM certificate; write the chain, the own certificate first", name)
	}
	leaf, err := x509.ParseCertificate(chain[0])
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", name, err)
	case now.After(leaf.NotAfter):
		return nil, fmt.Errorf("%s ended on %s; renew it", name, leaf.NotAfter.Format(time.DateOnly))
	case now.Before(leaf.NotBefore):
		return nil, fmt.Errorf("%s begins on %s only; look at the clock, or take another one", name, leaf.NotBefore.Format(time.DateOnly))
	}
	return chain, nil
}

// trust adds what a file holds to the roots and to keys.
func (l *Loaded) trust(name string, keys map[string]bool) error {
	text, err := readfile.Read(name, maxPEM)
	if err != nil {
		return err
	}
	found := 0
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		switch block.Type {
		case "CERTIFICATE":
			c, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if l.Roots == nil {
				l.Roots = x509.NewCertPool()
			}
			l.Roots.AddCert(c)
		case "PUBLIC KEY":
			public, err := x509.ParsePKIXPublicKey(block.Bytes)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			spki, err := x509.MarshalPKIXPublicKey(public) // the one form that peers send
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			keys[string(spki)] = true
		default:
			if bytes.Contains([]byte(block.Type), []byte("PRIVATE")) {
				return fmt.Errorf("%s holds a private key; a trust file holds certificates and public keys", name)
			}
			continue
		}
		found++
	}
	if found == 0 {
		return fmt.Errorf("%s holds neither a PEM certificate nor a public key", name)
	}
	return nil
}

// ServerTLS is the configuration of a TLS server that follows current, which is called for each handshake. auth is as over DTLS.
func ServerTLS(current func() *Loaded, auth handshake.ClientAuth) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			l := current()
			if l == nil || l.TLS == nil {
				return nil, errors.New("there is no certificate")
			}
			return &tls.Config{
				MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*l.TLS}, NextProtos: []string{"coap"},
				ClientCAs: l.clientRoots(), ClientAuth: l.clientAuth(auth),
				SessionTicketsDisabled: true, // with a certificate that a reload no longer trusts, a ticket would still open
			}, nil
		},
	}
}

// clientRoots never returns nil, which would stand for the roots of the system.
func (l *Loaded) clientRoots() *x509.CertPool {
	if l.Roots == nil {
		return x509.NewCertPool()
	}
	return l.Roots
}

func (l *Loaded) clientAuth(auth handshake.ClientAuth) tls.ClientAuthType {
	switch {
	case auth == handshake.ClientAuthNone:
		return tls.NoClientCert
	case auth == handshake.ClientAuthWanted && l.TrustAll:
		return tls.RequestClientCert
	case auth == handshake.ClientAuthWanted:
		return tls.VerifyClientCertIfGiven
	case l.TrustAll:
		return tls.RequireAnyClientCert
	}
	return tls.RequireAndVerifyClientCert
}

// public returns the public key of a signer as PEM.
func public(key *ecdsa.PrivateKey) ([]byte, error) {
	spki, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: spki}), nil
}
