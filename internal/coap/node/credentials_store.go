package node

import (
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// A device store is the format of Californium's cloud servers: a line NAME or NAME=GROUP begins a device, lines that begin with a dot
// are its fields, which may also be written with the device in front: [NAME].psk=….
//
//	Demo.10034780012=Thing
//	.label=a weather station
//	.psk='Client_identity',c2VjcmV0UFNL
//	.rpk=MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE…
//
// Identity and secret of .psk are texts in quotes, or base64; the secret may also be :0xHEX. .rpk is a SubjectPublicKeyInfo in base64,
// or the 64 bytes of a point on P-256.

// storeIgnored are fields that say nothing about credentials.
var storeIgnored = map[string]bool{"label": true, "type": true, "prov": true, "sig": true, "fresp": true, "dom": true, "dig": true}

// isStore reports whether a credentials file is a device store.
func isStore(text string) bool {
	for line := range strings.Lines(text) {
		if name, _, ok := storeField(strings.TrimSpace(line)); ok && (name == "psk" || name == "rpk" || name == "x509") {
			return true
		}
	}
	return false
}

// storeField splits a line .NAME=VALUE or [DEVICE].NAME=VALUE.
func storeField(line string) (name, value string, ok bool) {
	if strings.HasPrefix(line, "[") {
		_, rest, found := strings.Cut(line, "].")
		if !found {
			return "", "", false
		}
		line = "." + rest
	}
	name, value, found := strings.Cut(line, "=")
	if !found || !strings.HasPrefix(name, ".") {
		return "", "", false
	}
	return strings.ToLower(strings.TrimSpace(name[1:])), strings.TrimSpace(value), true
}

// addField adds a line of a device store. device: one has begun.
func (c *Credentials) addField(line string, device *bool) error {
	name, value, ok := storeField(line)
	if !ok {
		if strings.HasPrefix(line, ".") {
			return errors.New("no field; write .psk='IDENTITY',BASE64 or .rpk=BASE64")
		}
		*device = true
		return nil
	}
	if !*device && !strings.HasPrefix(line, "[") {
		return fmt.Errorf(".%s without a device; write its line NAME=GROUP before", name)
	}
	switch {
	case name == "psk":
		return c.addStoredPSK(value)
	case name == "rpk":
		return c.addRawKey(value)
	case name == "x509":
		return errors.New(".x509: certificates are read from PEM files; move it to one, and name that with --trust (trust)")
	case storeIgnored[name]:
		return nil
	}
	return errors.New("an unknown field; .psk and .rpk are read, .label, .type, .prov and .sig are passed over")
}

// addStoredPSK adds 'IDENTITY',SECRET.
func (c *Credentials) addStoredPSK(value string) error {
	identity, rest, err := storeText(value)
	if err != nil {
		return fmt.Errorf(".psk: the identity %w", err)
	}
	secret, found := strings.CutPrefix(strings.TrimSpace(rest), ",")
	if !found {
		return errors.New(".psk: no secret; write .psk='IDENTITY',BASE64 or .psk='IDENTITY','SECRET'")
	}
	if secret = strings.TrimSpace(secret); strings.HasPrefix(secret, "'") {
		key, rest, err := storeText(secret)
		if err != nil || rest != "" {
			return errors.New(".psk: the secret has no closing quote, or something behind it; write .psk='IDENTITY','SECRET'")
		}
		return c.put(identity, []byte(key))
	}
	key, err := decodeKey(secret)
	if err != nil {
		return fmt.Errorf(".psk: %w", err)
	}
	return c.put(identity, key)
}

// storeText reads a text in quotes, or base64 up to a comma, and returns what follows.
func storeText(value string) (text, rest string, err error) {
	if quoted, ok := strings.CutPrefix(value, "'"); ok {
		text, rest, found := strings.Cut(quoted, "'")
		if !found {
			return "", "", errors.New("has no closing quote; write 'IDENTITY'")
		}
		return text, rest, nil
	}
	at := strings.IndexByte(value, ',')
	if at < 0 {
		at = len(value)
	}
	decoded, err := base64.StdEncoding.DecodeString(strings.TrimSpace(value[:at]))
	if err != nil {
		return "", "", errors.New("is no base64; write it in quotes: 'IDENTITY'")
	}
	return string(decoded), value[at:], nil
}

// p256 is what comes before the 64 bytes of a point in a SubjectPublicKeyInfo.
var p256 = []byte{
	0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01,
	0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00, 0x04,
}

// addRawKey adds a raw public key.
func (c *Credentials) addRawKey(value string) error {
	der, err := base64.StdEncoding.DecodeString(value)
	if err != nil {
		return errors.New(".rpk: the key is no base64 in one line")
	}
	if len(der) == 64 {
		der = append(p256[:len(p256):len(p256)], der...)
	}
	if _, err := x509.ParsePKIXPublicKey(der); err != nil {
		return errors.New(".rpk: no public key; write a SubjectPublicKeyInfo, for example of: openssl pkey -in key.pem -pubout -outform DER | base64 -w0")
	}
	if c.rawKeys[string(der)] {
		return errors.New(".rpk: this key appears twice; remove one")
	}
	c.rawKeys[string(der)] = true
	return nil
}

// trustsRawKey reports whether the file has a raw public key, a SubjectPublicKeyInfo in DER.
func (c *Credentials) trustsRawKey(spki []byte) bool { return c.rawKeys[string(spki)] }
