package node

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/weir-lb/weir/internal/readfile"
)

// Credentials map PSK identities to keys. Immutable, so safe from any goroutine.
type Credentials struct {
	keys    map[string][]byte
	rawKeys map[string]bool // SubjectPublicKeyInfo in DER
	demo    bool

	short      int // keys of fewer than goodPSK bytes
	firstShort int // line of the first of them
}

// Bounds of a credentials file.
const (
	maxPSKFile     = 64 << 20 // bytes
	maxPSKIdentity = 128      // bytes, RFC 4279 section 5.3
	maxPSK         = 64       // bytes, RFC 4279 section 5.3
	minPSK         = 4        // bytes: shorter keys are guessed within hours
	goodPSK        = 16       // bytes, RFC 9257 section 6
)

// LoadCredentials reads a file of "identity=base64" or "identity=:0xhex" lines ("#" starts a comment line), or a device store of Californium (see credentials_store.go); path may be empty. demo adds the public identities
// of Californium's sandbox. Errors name file, line and remedy, never a key, nor an identity, which with the columns swapped is one.
func LoadCredentials(path string, demo bool) (*Credentials, error) {
	c := &Credentials{keys: map[string][]byte{}, rawKeys: map[string]bool{}, demo: demo}
	if path == "" {
		return c, nil
	}
	text, err := readfile.Read(path, maxPSKFile)
	if err != nil {
		return nil, err // it names the file
	}
	return c, c.parse(path, string(text))
}

// CheckPSK checks the text of a file for LoadCredentials. It returns what the file holds, without an identity or a key.
func CheckPSK(path, text string) (holds string, err error) {
	c := &Credentials{keys: map[string][]byte{}, rawKeys: map[string]bool{}}
	err = c.parse(path, text)
	return fmt.Sprintf("%d PSK, %d raw public keys", len(c.keys), len(c.rawKeys)), err
}

// parse adds the lines of a file; on error the Credentials are of no use.
func (c *Credentials) parse(path, text string) (err error) {
	number, device, store := 0, false, isStore(text)
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		short := c.short
		if store {
			err = c.addField(line, &device)
		} else {
			err = c.add(line)
		}
		if err != nil {
			return fmt.Errorf("%s:%d: %w", path, number, err)
		}
		if c.short == 1 && short == 0 {
			c.firstShort = number
		}
	}
	return nil
}

func (c *Credentials) add(line string) error {
	identity, encoded, found := strings.Cut(line, "=")
	identity, encoded = strings.TrimSpace(identity), strings.TrimSpace(encoded)
	if !found || identity == "" {
		return errors.New("no identity; write IDENTITY=BASE64")
	}
	if len(identity) > maxPSKIdentity { // before the key is looked at: with the columns swapped this says more
		return fmt.Errorf("identity of %d bytes, at most %d", len(identity), maxPSKIdentity)
	}
	key, err := decodeKey(encoded)
	if err != nil {
		return err
	}
	return c.put(identity, key)
}

// put adds the key of an identity.
func (c *Credentials) put(identity string, key []byte) error {
	switch {
	case identity == "" || len(identity) > maxPSKIdentity:
		return fmt.Errorf("identity of %d bytes, want 1 to %d", len(identity), maxPSKIdentity)
	case len(key) < minPSK || len(key) > maxPSK:
		return fmt.Errorf("the key has %d bytes, want %d to %d, and better %d or more: head -c 16 /dev/urandom | base64", len(key), minPSK, maxPSK, goodPSK)
	case len(key) < goodPSK:
		c.short++
	}
	if _, taken := c.keys[identity]; taken {
		return errors.New("this identity appears twice; remove one")
	}
	c.keys[identity] = key
	return nil
}

// decodeKey reads a key in base64 or, behind ":0x", in hexadecimal digits: the two forms of Californium's key stores.
func decodeKey(text string) ([]byte, error) {
	if digits, ok := strings.CutPrefix(text, ":0x"); ok {
		key, err := hex.DecodeString(digits)
		if err != nil {
			return nil, errors.New("the key behind :0x is not an even number of hexadecimal digits")
		}
		return key, nil
	}
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, errors.New("the key is no base64; encode it, for example with: printf %s SECRET | base64")
	}
	return key, nil
}

// PSK returns the key of an identity.
func (c *Credentials) PSK(identity []byte) (key []byte, ok bool) {
	if key, ok = c.keys[string(identity)]; ok || !c.demo {
		return key, ok
	}
	switch {
	case bytes.HasPrefix(identity, []byte("cali.")):
		return []byte(".fornium"), true
	case string(identity) == "password":
		return []byte("sesame"), true
	case string(identity) == "Client_identity":
		return []byte("secretPSK"), true
	}
	device, tenant, found := bytes.Cut(identity, []byte("@"))
	if found && len(device) >= 8 && len(tenant) >= 8 && bytes.IndexByte(tenant, '@') < 0 {
		return []byte("secret"), true // Hono: device@tenant
	}
	return nil, false
}
