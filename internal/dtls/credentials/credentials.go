// Package credentials reads certificates, private keys and raw public keys from PEM files, for DTLS and TLS.
//
//	CERTIFICATE                               of a chain, or trusted to sign
//	PRIVATE KEY, EC PRIVATE KEY, RSA PRIVATE KEY
//	PUBLIC KEY                                a raw public key to trust (RFC 7250)
//
// Errors name the file and the remedy, never a key. Files have at most 1 MiB.
package credentials

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"

	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/readfile"
)

const maxFile = 1 << 20 // bytes

// Files names where the credentials are. Empty fields: none of that kind.
type Files struct {
	Chain    string   // certificates, the one of the key first; the root may be left out
	Key      string   // private key of Chain; empty: it is in the same file
	RawKey   string   // private key whose public part is all that peers get (RFC 7250); not with Chain
	Trust    []string // certificates that sign peers' ones, and peers' raw public keys
	TrustAll bool     // trust every peer that proves to have the key of its certificate
}

// Given reports whether there is anything to load.
func (f *Files) Given() bool {
	return f.Chain != "" || f.Key != "" || f.RawKey != "" || len(f.Trust) > 0 || f.TrustAll
}

// Load reads the files.
func (f *Files) Load() (*handshake.Credentials, error) {
	c := &handshake.Credentials{TrustAll: f.TrustAll}
	switch {
	case f.Key != "" && f.Chain == "":
		return nil, fmt.Errorf("%s: a key without its certificates; name their file too, or use the key as a raw public key", f.Key)
	case f.RawKey != "" && f.Chain != "":
		return nil, fmt.Errorf("%s: certificates and a raw public key at once; leave one of them out", f.RawKey)
	}
	if f.Chain != "" || f.RawKey != "" {
		own, err := f.own()
		if err != nil {
			return nil, err
		}
		c.Certificates = []*handshake.Certificate{own}
	}
	return c, f.trust(c)
}

// own is what proves who we are.
func (f *Files) own() (*handshake.Certificate, error) {
	var chain [][]byte
	keyFile := f.RawKey
	if f.Chain != "" {
		blocks, err := read(f.Chain)
		if err != nil {
			return nil, err
		}
		for _, b := range blocks {
			if b.Type == "CERTIFICATE" {
				chain = append(chain, b.Bytes)
			}
		}
		if len(chain) == 0 {
			return nil, fmt.Errorf("%s: no CERTIFICATE block; write the certificate of the key first, and those that sign it behind", f.Chain)
		}
		if keyFile = f.Key; keyFile == "" {
			keyFile = f.Chain
		}
	}
	key, err := readKey(keyFile)
	if err != nil {
		return nil, err
	}
	own, err := handshake.NewCertificate(chain, key)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", keyFile, err)
	}
	return own, nil
}

// trust adds whom to trust.
func (f *Files) trust(c *handshake.Credentials) error {
	var keys [][]byte
	for _, path := range f.Trust {
		blocks, err := read(path)
		if err != nil {
			return err
		}
		found := false
		for _, b := range blocks {
			switch b.Type {
			case "CERTIFICATE":
				certificate, err := x509.ParseCertificate(b.Bytes)
				if err != nil {
					return fmt.Errorf("%s: %w", path, err)
				}
				if c.Roots == nil {
					c.Roots = x509.NewCertPool()
				}
				c.Roots.AddCert(certificate)
			case "PUBLIC KEY":
				if _, err := x509.ParsePKIXPublicKey(b.Bytes); err != nil {
					return fmt.Errorf("%s: %w", path, err)
				}
				keys = append(keys, b.Bytes)
			default:
				continue
			}
			found = true
		}
		if !found {
			return fmt.Errorf("%s: neither a CERTIFICATE nor a PUBLIC KEY block to trust", path)
		}
	}
	if len(keys) > 0 {
		c.RawKey = func(spki []byte) bool {
			for _, key := range keys {
				if bytes.Equal(key, spki) {
					return true
				}
			}
			return false
		}
	}
	return nil
}

// read returns the blocks of a PEM file.
func read(path string) ([]*pem.Block, error) {
	text, err := readfile.Read(path, maxFile)
	if err != nil {
		return nil, err
	}
	var blocks []*pem.Block
	for {
		var b *pem.Block
		if b, text = pem.Decode(text); b == nil {
			break
		}
		blocks = append(blocks, b)
	}
	if len(blocks) == 0 {
		return nil, fmt.Errorf("%s: no PEM block; convert it, for example with: openssl x509 -inform DER, or openssl pkey -inform DER", path)
	}
	return blocks, nil
}

// readKey returns the first private key of a PEM file.
func readKey(path string) (crypto.Signer, error) {
	blocks, err := read(path)
	if err != nil {
		return nil, err
	}
	for _, b := range blocks {
		key, known, err := parseKey(b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if known {
			return key, nil
		}
	}
	return nil, fmt.Errorf("%s: no PRIVATE KEY block", path)
}

// parseKey reads a private key; known is false for blocks of other kinds.
func parseKey(b *pem.Block) (key crypto.Signer, known bool, err error) {
	var parsed any
	switch b.Type {
	case "ENCRYPTED PRIVATE KEY":
		return nil, true, errors.New("the private key is encrypted; decrypt it with: openssl pkey -in FILE -out PLAIN-FILE")
	case "PRIVATE KEY":
		parsed, err = x509.ParsePKCS8PrivateKey(b.Bytes)
	case "EC PRIVATE KEY":
		parsed, err = x509.ParseECPrivateKey(b.Bytes)
	case "RSA PRIVATE KEY":
		parsed, err = x509.ParsePKCS1PrivateKey(b.Bytes)
	default:
		return nil, false, nil
	}
	if err != nil {
		return nil, true, fmt.Errorf("the private key: %w", err)
	}
	key, ok := parsed.(crypto.Signer)
	if !ok {
		return nil, true, fmt.Errorf("a private key of type %T cannot sign", parsed)
	}
	return key, true, nil
}
