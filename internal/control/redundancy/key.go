package redundancy

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"os"
	"strings"

	"github.com/weir-lb/weir/internal/readfile"
	"github.com/weir-lb/weir/internal/steering/lb"
)

const keyBytes = 32

// Key reads the shared key of a configuration.
func Key(settings *lb.Sync) ([]byte, error) {
	text, from := os.Getenv(settings.KeyEnv), "the environment variable "+settings.KeyEnv
	if settings.KeyFile != "" {
		from = settings.KeyFile
		read, err := readfile.Read(settings.KeyFile, 1<<12)
		if err != nil {
			return nil, err
		}
		text = string(read)
	}
	text = strings.TrimSpace(text)
	if text == "" {
		return nil, fmt.Errorf("%s has no key; write the output of openssl rand -hex 32 there, the same on all peers", from)
	}
	key, err := hex.DecodeString(text)
	if err != nil || len(key) != keyBytes {
		return nil, fmt.Errorf("%s has no key of %d hex digits; write the output of openssl rand -hex 32 there", from, 2*keyBytes)
	}
	return key, nil
}

// errKey is of a peer that has another key.
var errKey = errors.New("the peer has another key; write the same key on both")

// credentials are both sides' configuration of TLS: one pair of keys, derived from the shared key.
func credentials(key []byte) (*tls.Config, error) {
	seed, err := hkdf.Key(sha256.New, key, nil, "weir sync 1 ed25519", ed25519.SeedSize)
	if err != nil {
		return nil, err
	}
	private := ed25519.NewKeyFromSeed(seed)
	public := private.Public().(ed25519.PublicKey)
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: private}},
		ClientAuth: tls.RequireAnyClientCert, SessionTicketsDisabled: true, NextProtos: []string{"weir-sync"},
		// The peer has the same pair of keys: there is no authority, no name and no time to check. TLS has verified that it has the private one.
		InsecureSkipVerify: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			got, ok := state.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
			if !ok || !bytes.Equal(got, public) {
				return errKey
			}
			return nil
		},
	}, nil
}
