package handshake_test

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"strings"
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

// alterServer changes the first byte string old of what the server sends to new.
func alterServer(old, now []byte) func(bool, []byte) [][]byte {
	return func(fromClient bool, d []byte) [][]byte {
		if !fromClient {
			d = bytes.Replace(d, old, now, 1)
		}
		return [][]byte{d}
	}
}

// What somebody changes in the server's flight ends the handshake where it is found, before the client proves anything.
func TestClientChecksTheKeyExchange(t *testing.T) {
	a := newAuthority(t, "test")
	for name, test := range map[string]struct {
		old, now []byte
		text     string
	}{
		"signature":                 {[]byte{4, 3, 0}, []byte{8, 7, 0}, "the signature is wrong"},
		"group that is not offered": {[]byte{3, 0, 23, 65}, []byte{3, 0, 24, 65}, "makes no sense"},
		"public key":                {[]byte{3, 0, 23, 65, 4}, []byte{3, 0, 23, 65, 5}, "the signature is wrong"},
		"suite":                     {[]byte{0xc0, 0x2b, 0}, []byte{0xc0, 0x30, 0}, "not offered"},
	} {
		suites := []record.Suite{record.ECDHEECDSAWithAES128GCMSHA256}
		groups := []handshake.Group{handshake.P256}
		c, err := handshake.NewClient(handshake.ClientConfig{Config: handshake.Config{
			Credentials: credentials(handshake.Credentials{Roots: a.Roots}), Suites: suites, Groups: groups,
		}})
		if err != nil {
			t.Fatal(err)
		}
		s := serverWith(t, nil, handshake.ServerConfig{Config: handshake.Config{Credentials: credentials(handshake.Credentials{
			Certificates: []*handshake.Certificate{handshakeCertificate(a)},
		}), Suites: suites}})
		run(t, c, s, alterServer(test.old, test.now))
		if _, err := c.Done(); err == nil || !strings.Contains(err.Error(), test.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func handshakeCertificate(a issuer) *handshake.Certificate {
	return a.issue("P-256", "server.test", nil)
}

// No datagram is longer than the MTU, and no record of a flight than the client has requested.
func TestFlightsKeepTheirLimits(t *testing.T) {
	client, server := kinds(t)["mutual"]()
	client.MaxFragmentLength = 512
	client.MTU, server.MTU = 300, 700
	c, err := handshake.NewClient(client)
	if err != nil {
		t.Fatal(err)
	}
	s := serverWith(t, nil, server)
	longest := [2]int{}
	run(t, c, s, func(fromClient bool, d []byte) [][]byte {
		side, mtu := 0, 700
		if fromClient {
			side, mtu = 1, 300
		}
		if len(d) > mtu {
			t.Errorf("a datagram of %d bytes: want at most %d", len(d), mtu)
		}
		var r record.Record
		for rest := d; len(rest) > 0; {
			var err error
			if rest, err = record.Next(rest, -1, &r); err != nil {
				t.Fatal(err)
			}
			longest[side] = max(longest[side], len(r.Body))
		}
		return [][]byte{d}
	})
	if done, err := c.Done(); !done || err != nil || longest[0] > 512 || longest[0] < 450 || longest[1] < 250 {
		t.Errorf("done %t, %v, records of up to %d bytes", done, err, longest)
	}
}

// A server whose Finished is wrong has not seen the same handshake.
func TestClientChecksTheFinished(t *testing.T) {
	client, server := kinds(t)["x509"]()
	c, err := handshake.NewClient(client)
	if err != nil {
		t.Fatal(err)
	}
	s := serverWith(t, nil, server)
	s.corrupt = true
	run(t, c, s, asIs)
	if _, err := c.Done(); err == nil || !strings.Contains(err.Error(), "Finished is wrong") {
		t.Error(err)
	}
}
