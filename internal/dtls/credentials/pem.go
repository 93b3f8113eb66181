package credentials

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"regexp"

	"github.com/weir-lb/weir/internal/readfile"
)

const maxFile = 1 << 20 // bytes

var beginning = regexp.MustCompile(`(?m)^-----BEGIN `)

// block is a PEM block and where it begins, FILE:LINE.
type block struct {
	*pem.Block
	at string
}

// read returns the blocks of a PEM file. A damaged one is an error: without it, less would be trusted than the file says.
func read(path string) (blocks []block, err error) {
	rest, err := readfile.Read(path, maxFile)
	if err != nil {
		return nil, err
	}
	for line := 1; ; {
		b, after := pem.Decode(rest)
		passed := rest[:len(rest)-len(after)]
		if b == nil {
			passed = rest
		}
		begins, at := beginning.FindAllIndex(passed, 2), path
		if len(begins) > 0 {
			at = fmt.Sprintf("%s:%d", path, line+bytes.Count(passed[:begins[0][0]], []byte("\n")))
		}
		switch {
		case len(begins) > 1, b == nil && len(begins) > 0:
			return nil, fmt.Errorf("%s: the PEM block that begins here is damaged; write the file again", at)
		case b == nil && len(blocks) == 0:
			return nil, fmt.Errorf("%s: no PEM block; convert it, for example with: openssl x509 -inform DER, or openssl pkey -inform DER", path)
		case b == nil:
			return blocks, nil
		}
		blocks = append(blocks, block{b, at})
		line += bytes.Count(passed, []byte("\n"))
		rest = after
	}
}

// readKey returns the first private key of a PEM file.
func readKey(path string) (crypto.Signer, error) {
	blocks, err := read(path)
	if err != nil {
		return nil, err
	}
	for _, b := range blocks {
		key, known, err := parseKey(b.Block)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", b.at, err)
		}
		if known {
			return key, nil
		}
	}
	return nil, fmt.Errorf("%s: no PRIVATE KEY block; for tests, weir coap certs writes one", path)
}

// parseKey reads a private key; known is false for blocks of other kinds, such as EC PARAMETERS.
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
