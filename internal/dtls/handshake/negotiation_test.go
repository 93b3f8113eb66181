package handshake_test

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/handshake/handshaketest"
	"github.com/weir-lb/weir/internal/dtls/record"
)

// What the two sides have in common decides, and the alert names what is missing.
func TestNegotiation(t *testing.T) {
	a := newAuthority(t, "test")
	trust := credentials(handshake.Credentials{Roots: a.Roots})
	for _, test := range []struct {
		name   string
		key    string // of the server
		groups []handshake.Group
		option handshake.ConfigOption
		alert  byte // 0: a session
	}{
		{"everything", "P-256", nil, nil, 0},
		{"DTLS 1.0 only", "P-256", nil, handshake.WithVersion10, 70},
		{"compressed points only", "P-256", nil, handshake.WithCompressedPoints, 40},
		{"no groups said", "P-256", nil, handshake.WithoutGroups, 0},
		{"no signature schemes said", "P-256", nil, handshake.WithoutSchemes, 0},
		{"no signature schemes said, Ed25519", "Ed25519", nil, handshake.WithoutSchemes, 40},
		{"the certificate's curve is not known", "P-256", []handshake.Group{handshake.X25519}, nil, 40},
		{"no curve is needed", "Ed25519", []handshake.Group{handshake.X25519}, nil, 0},
		{"RSA", "RSA", nil, nil, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := handshake.ServerConfig{Config: handshake.Config{
				Credentials: credentials(handshake.Credentials{Certificates: []*handshake.Certificate{a.issue(test.key, "server.test", nil)}}),
			}}
			client := handshake.ClientConfig{Config: handshake.Config{Credentials: trust, Groups: test.groups}}
			var options []handshake.ConfigOption
			if test.option != nil {
				options = append(options, test.option)
			}
			_, s, err := shakeWith(t, client, server, options...)
			var alert handshake.AlertError
			if (test.alert == 0) != (err == nil) || err != nil && (!errors.As(err, &alert) || byte(alert) != test.alert) {
				t.Errorf("%v, want alert %d", err, test.alert)
			}
			if s.hs.Held() != 0 && test.alert != 0 {
				t.Errorf("%d bytes are held", s.hs.Held())
			}
		})
	}
}

// Chains are bounded in length and in the size of their keys, and have one path only.
func TestChainsAreBounded(t *testing.T) {
	key := handshaketest.NewKey(t, "P-256")
	issue := func(name string, bits uint) []byte {
		public := &rsa.PublicKey{N: new(big.Int).SetBit(big.NewInt(1), int(bits)-1, 1), E: 65537}
		template := &x509.Certificate{Subject: pkix.Name{CommonName: name}, SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
		der, err := x509.CreateCertificate(rand.Reader, template, template, public, key)
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	device := handshaketest.NewAuthority(t, "test").Issue(t, "P-256", "device", nil)
	leaf, ca := device.Chain[0], device.Chain[1]
	many := [][]byte{leaf}
	for range handshake.MaxChain {
		many = append(many, ca)
	}
	for name, test := range map[string]struct {
		chain [][]byte
		ok    bool
	}{
		"good":         {device.Chain, true},
		"repeated":     {many[:handshake.MaxChain], true},
		"too long":     {many, false},
		"one subject":  {[][]byte{leaf, issue("a", 2048), issue("a", 2048)}, false},
		"two subjects": {[][]byte{leaf, issue("a", 2048), issue("b", 2048)}, true},
		"huge key":     {[][]byte{leaf, issue("a", 4104)}, false},
		"huge leaf":    {[][]byte{issue("a", 4104)}, false},
		"tiny leaf":    {[][]byte{issue("a", 1024)}, false},
		"broken":       {[][]byte{leaf, ca[:len(ca)-1]}, false},
	} {
		if err := handshake.ParseChain(test.chain...); (err == nil) != test.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A stranger's message with the number of the client's Finished does not take its place.
func TestFinishedReplacesASpoofedMessage(t *testing.T) {
	client, server := kinds(t)["empty"]()
	c, err := handshake.NewClient(client)
	if err != nil {
		t.Fatal(err)
	}
	s := serverWith(t, nil, server)
	verify := []byte{15, 0, 0, 4, 0, 4, 0, 0, 0, 0, 0, 4, 4, 3, 0, 0} // a CertificateVerify, whole
	flight := 0
	now := run(t, c, s, func(fromClient bool, d []byte) [][]byte {
		if !fromClient {
			return [][]byte{d}
		}
		if flight++; flight == 3 {
			return [][]byte{record.AppendPlain(nil, record.Handshake, 7, verify), bytes.Clone(d)}
		}
		return [][]byte{d}
	})
	if done, err := c.Done(); !done || err != nil || s.result == nil || now != time.Second {
		t.Errorf("done %t, %v, after %v", done, err, now-time.Second)
	}
}

// A private key must belong to its certificate.
func TestNewCertificateChecks(t *testing.T) {
	device := handshaketest.NewAuthority(t, "test").Issue(t, "P-256", "device", nil)
	if _, err := handshake.NewCertificate(device.Chain, handshaketest.NewKey(t, "P-256")); err == nil {
		t.Error("another key is taken")
	}
	if _, err := handshake.NewCertificate(nil, handshaketest.NewKey(t, "P-521")); err == nil {
		t.Error("a key on P-521 is taken")
	}
	if _, err := handshake.NewCertificate([][]byte{{1, 2, 3}}, device.Key); err == nil {
		t.Error("three bytes are taken as a certificate")
	}
}
