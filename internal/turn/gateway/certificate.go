package gateway

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"time"

	"github.com/weir-lb/weir/internal/keyerror"
	"github.com/weir-lb/weir/internal/readfile"
)

// maxPEM bounds a certificate or key file.
const maxPEM = 1 << 20

// certificate reads the certificate of a tls or dtls listener. An error is a [keyerror.Error] with the key that
// is wrong, below that of the listener.
func (l *ListenerConfig) certificate(now time.Time) (*tls.Certificate, error) {
	if l.SelfSigned {
		return selfSigned(l, now)
	}
	chain, key := l.CertificatePEM, l.KeyPEM
	if l.Certificate != "" {
		var err error
		if chain, err = readfile.Read(l.Certificate, maxPEM); err != nil {
			return nil, keyerror.At("certificate", err)
		}
		if key, err = readfile.Read(l.Key, maxPEM); err != nil {
			return nil, keyerror.At("key", err)
		}
	}
	if !bytes.Contains(chain, []byte("-----BEGIN CERTIFICATE-----")) {
		return nil, keyerror.Errorf("certificate", "%s holds no PEM certificate; write the chain, the server's own first", orInline(l.Certificate))
	}
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return nil, keyerror.Errorf("key", "%s does not fit the certificate %s (%w); name the key that the certificate was made for", orInline(l.Key), orInline(l.Certificate), err)
	}
	if now.After(pair.Leaf.NotAfter) {
		return nil, keyerror.Errorf("certificate", "%s ended on %s; renew it", orInline(l.Certificate), pair.Leaf.NotAfter.Format(time.DateOnly))
	}
	if now.Before(pair.Leaf.NotBefore) {
		return nil, keyerror.Errorf("certificate", "%s begins on %s only; look at the clock, or take another one", orInline(l.Certificate), pair.Leaf.NotBefore.Format(time.DateOnly))
	}
	return &pair, nil
}

func orInline(path string) string {
	if path == "" {
		return "in the configuration"
	}
	return path
}

// selfSigned makes a certificate for the listener's addresses that is valid for a year. It is for tests and for
// clients that do not verify certificates.
func selfSigned(l *ListenerConfig, now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, keyerror.At("self_signed", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, keyerror.At("self_signed", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "weir turn gateway"}, DNSNames: []string{"localhost"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(1, 0, 0), BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, a := range append([]netip.Addr{l.Address}, l.Relay...) {
		if a.IsValid() && !a.IsUnspecified() {
			template.IPAddresses = append(template.IPAddresses, a.AsSlice())
		}
	}
	if host, _, err := net.SplitHostPort(l.Public); err == nil {
		if a, err := netip.ParseAddr(host); err == nil {
			template.IPAddresses = append(template.IPAddresses, a.AsSlice())
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, keyerror.At("self_signed", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, keyerror.At("self_signed", err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}

// CheckCertificates reads every certificate without using it, to check a configuration. As with Validate, the error
// is a [keyerror.Error].
func (c *Config) CheckCertificates() error {
	var wrong keyerror.List
	for i := range c.Listeners {
		l := &c.Listeners[i]
		if l.Protocol.Secure() && !l.SelfSigned {
			_, err := l.certificate(time.Now())
			wrong.Add(keyerror.At(fmt.Sprintf("listeners[%d]", i), err))
		}
	}
	return wrong.Err()
}
