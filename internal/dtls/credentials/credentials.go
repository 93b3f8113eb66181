package credentials

import (
	"crypto/x509"
	"fmt"
	"strings"
	"time"

	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/keyerror"
)

// Files names where the credentials are. Empty fields: none of that kind.
type Files struct {
	Chain    string   // certificates, the one of the key first; the root may be left out
	Key      string   // private key of Chain; empty: it is in the same file
	RawKey   string   // private key whose public part is all that peers get (RFC 7250); not with Chain
	Trust    []string // certificates that sign peers' ones, and peers' raw public keys
	TrustAll bool     // trust every peer that proves to have the key of its certificate, or of its raw public key
	Keys     Keys
}

// Keys are the keys of a configuration that errors begin with, Key also those of RawKey. Empty: errors begin with the file.
type Keys struct{ Chain, Key, Trust string }

// Given reports whether there is anything to load.
func (f *Files) Given() bool { return len(f.Names()) > 0 || f.TrustAll }

// Names returns the files, to watch them for a change.
func (f *Files) Names() (names []string) {
	for _, name := range append([]string{f.Chain, f.Key, f.RawKey}, f.Trust...) {
		if name != "" {
			names = append(names, name)
		}
	}
	return names
}

// Load reads the files. An own certificate must be valid at now.
func (f *Files) Load(now time.Time) (*handshake.Credentials, error) {
	c := &handshake.Credentials{TrustAll: f.TrustAll}
	switch {
	case f.Key != "" && f.Chain == "":
		return nil, keyed(f.Keys.Key, fmt.Errorf("%s: a key without its certificates; name their file too, or use the key as a raw public key", f.Key))
	case f.RawKey != "" && f.Chain != "":
		return nil, keyed(f.Keys.Key, fmt.Errorf("%s: certificates and a raw public key at once; leave one of them out", f.RawKey))
	}
	if f.Chain != "" || f.RawKey != "" {
		own, err := f.own(now)
		if err != nil {
			return nil, err
		}
		c.Certificates = []*handshake.Certificate{own}
	}
	return c, f.trust(c)
}

// keyed puts a key of the configuration in front of an error.
func keyed(key string, err error) error {
	if key == "" {
		return err
	}
	return keyerror.At(key, err)
}

// own is what proves who we are.
func (f *Files) own(now time.Time) (*handshake.Certificate, error) {
	var chain [][]byte
	path := f.RawKey
	if f.Chain != "" {
		var err error
		if chain, err = readChain(f.Chain, now); err != nil {
			return nil, keyed(f.Keys.Chain, err)
		}
		if path = f.Key; path == "" {
			path = f.Chain
		}
	}
	key, err := readKey(path)
	if err != nil {
		return nil, keyed(f.Keys.Key, err)
	}
	own, err := handshake.NewCertificate(chain, key)
	if err != nil {
		return nil, keyed(f.Keys.Key, fmt.Errorf("%s does not fit: %w", path, err))
	}
	return own, nil
}

// readChain returns the certificates of a file, of which the first must be valid at now.
func readChain(path string, now time.Time) (chain [][]byte, err error) {
	blocks, err := read(path)
	if err != nil {
		return nil, err
	}
	for _, b := range blocks {
		if b.Type != "CERTIFICATE" {
			continue
		}
		if len(chain) == 0 {
			if err := valid(b.Bytes, now); err != nil {
				return nil, fmt.Errorf("%s: %w", b.at, err)
			}
		}
		chain = append(chain, b.Bytes)
	}
	if len(chain) == 0 {
		return nil, fmt.Errorf("%s: no CERTIFICATE block; write the certificate of the key first, and those that sign it behind", path)
	}
	return chain, nil
}

func valid(der []byte, now time.Time) error {
	c, err := x509.ParseCertificate(der)
	switch {
	case err != nil:
		return err
	case now.After(c.NotAfter):
		return fmt.Errorf("the certificate ended on %s; renew it", c.NotAfter.Format(time.DateOnly))
	case now.Before(c.NotBefore):
		return fmt.Errorf("the certificate begins on %s only; look at the clock, or take another one", c.NotBefore.Format(time.DateOnly))
	}
	return nil
}

// trust adds a trusted authority.
func (f *Files) trust(c *handshake.Credentials) error {
	keys := map[string]bool{}
	for i, path := range f.Trust {
		if err := trust(path, c, keys); err != nil {
			if f.Keys.Trust != "" {
				err = fmt.Errorf("%s[%d]: %w", f.Keys.Trust, i, err)
			}
			return err
		}
	}
	if len(keys) > 0 {
		c.RawKey = func(spki []byte) bool { return keys[string(spki)] }
	}
	return nil
}

// trust adds what a file holds to the roots and to keys.
func trust(path string, c *handshake.Credentials, keys map[string]bool) error {
	blocks, err := read(path)
	if err != nil {
		return err
	}
	found := false
	for _, b := range blocks {
		switch {
		case b.Type == "CERTIFICATE":
			certificate, err := x509.ParseCertificate(b.Bytes)
			if err != nil {
				return fmt.Errorf("%s: %w", b.at, err)
			}
			if c.Roots == nil {
				c.Roots = x509.NewCertPool()
			}
			c.Roots.AddCert(certificate)
			found = true
		case b.Type == "PUBLIC KEY":
			public, err := x509.ParsePKIXPublicKey(b.Bytes)
			if err != nil {
				return fmt.Errorf("%s: %w", b.at, err)
			}
			spki, err := x509.MarshalPKIXPublicKey(public) // the one form that peers send
			if err != nil {
				return fmt.Errorf("%s: %w", b.at, err)
			}
			keys[string(spki)] = true
			found = true
		case strings.Contains(b.Type, "PRIVATE"):
			return fmt.Errorf("%s: a private key; a file to trust holds certificates and public keys", b.at)
		}
	}
	if !found {
		return fmt.Errorf("%s: neither a CERTIFICATE nor a PUBLIC KEY block to trust", path)
	}
	return nil
}
