package credentials

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/netip"
	"time"

	"github.com/weir-lb/weir/internal/dtls/handshake"
)

// File is one file of a demonstration chain.
type File struct {
	Name    string
	Content []byte
	Secret  bool   // only its owner may read it
	What    string // for people
}

// noExpiry is the time that stands for no end (RFC 5280 section 4.1.2.5).
func noExpiry() time.Time { return time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC) }

// begin is in the past of every clock that was ever set.
func begin() time.Time { return time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC) }

// issued is a key with its certificate.
type issued struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

// Demo makes a chain on P-256 that never expires: a root, an authority below it, a server for the hosts, and a client. The private keys
// of root and authority are not kept, so nothing more can be signed with them.
func Demo(hosts []string) ([]File, error) {
	root, err := issue("Weir demo root", nil, func(t *x509.Certificate) { ca(t, 1) })
	if err != nil {
		return nil, err
	}
	authority, err := issue("Weir demo CA", root, func(t *x509.Certificate) { ca(t, 0) })
	if err != nil {
		return nil, err
	}
	files := []File{{Name: "root.pem", Content: certificatePEM(root.cert), What: "root certificate, to trust"}}
	for _, end := range []struct {
		name  string
		usage x509.ExtKeyUsage
	}{{"server", x509.ExtKeyUsageServerAuth}, {"client", x509.ExtKeyUsageClientAuth}} {
		leaf, err := issue("Weir demo "+end.name, authority, func(t *x509.Certificate) {
			t.KeyUsage, t.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{end.usage}
			if end.name == "server" {
				name(t, hosts)
			}
		})
		if err != nil {
			return nil, err
		}
		more, err := leaf.files(end.name, authority.cert, root.cert)
		if err != nil {
			return nil, err
		}
		files = append(files, more...)
	}
	return files, nil
}

// files are those of one end: certificate, key, public key, and what the other end trusts.
func (i *issued) files(name string, authority, root *x509.Certificate) ([]File, error) {
	der, err := x509.MarshalPKCS8PrivateKey(i.key)
	if err != nil {
		return nil, err
	}
	raw, err := public(i.key)
	if err != nil {
		return nil, err
	}
	return []File{
		{Name: name + ".pem", Content: append(certificatePEM(i.cert), certificatePEM(authority)...), What: "certificate chain of the " + name},
		{Name: name + "-key.pem", Content: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), Secret: true, What: "private key of the " + name},
		{Name: "trust-" + name + ".pem", Content: bytes.Join([][]byte{certificatePEM(root), certificatePEM(authority), raw}, nil), What: "what trusts the " + name + ": root, authority (some clients do not send it), raw public key"},
	}, nil
}

func certificatePEM(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

func ca(t *x509.Certificate, below int) {
	t.IsCA, t.BasicConstraintsValid, t.KeyUsage = true, true, x509.KeyUsageCertSign
	t.MaxPathLen, t.MaxPathLenZero = below, below == 0
}

// name enters host names and addresses.
func name(t *x509.Certificate, hosts []string) {
	for _, host := range hosts {
		if ip, err := netip.ParseAddr(host); err == nil {
			t.IPAddresses = append(t.IPAddresses, ip.AsSlice())
		} else {
			t.DNSNames = append(t.DNSNames, host)
		}
	}
}

// issue makes a key and its certificate, signed by a parent or, without one, by itself.
func issue(subject string, parent *issued, edit func(*x509.Certificate)) (*issued, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: subject}, NotBefore: begin(), NotAfter: noExpiry()}
	edit(template)
	signer := &issued{key, template}
	if parent != nil {
		signer = parent
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer.cert, key.Public(), signer.key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return &issued{key, cert}, err
}

// Ephemeral makes a self-signed server certificate for tests, whose key no other program has and which ends with the process. Every raw
// public key of a client is trusted, as by Californium's servers.
func Ephemeral(hosts []string) (*handshake.Credentials, error) {
	own, err := issue("Weir demo server", nil, func(t *x509.Certificate) {
		t.KeyUsage, t.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		name(t, hosts)
	})
	if err != nil {
		return nil, err
	}
	certificate, err := handshake.NewCertificate([][]byte{own.cert.Raw}, own.key)
	if err != nil {
		return nil, fmt.Errorf("demo certificate: %w", err)
	}
	return &handshake.Credentials{Certificates: []*handshake.Certificate{certificate}, RawKey: func([]byte) bool { return true }}, nil
}

// public returns the public key of a signer as PEM.
func public(key *ecdsa.PrivateKey) ([]byte, error) {
	spki, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: spki}), nil
}
