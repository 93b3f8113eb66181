package embedded

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
)

// purpose is what the key is derived for.
const purpose = "weir: authority of the embedded store, version 1"

// Certificates are made at each start, so that nothing has to be renewed: their time is all of it.
func always() (from, to time.Time) {
	return time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
}

// authority is the one that all nodes with the same secret have.
func authority(secret []byte) (key ed25519.PrivateKey, certificate *x509.Certificate, err error) {
	seed, err := hkdf.Key(sha256.New, secret, nil, purpose, ed25519.SeedSize)
	if err != nil {
		return nil, nil, err
	}
	key = ed25519.NewKeyFromSeed(seed)
	template := x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "nodes of a Weir cluster"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, MaxPathLenZero: true,
	}
	template.NotBefore, template.NotAfter = always()
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, key.Public(), key)
	if err != nil {
		return nil, nil, err
	}
	certificate, err = x509.ParseCertificate(der)
	return key, certificate, err
}

// writeCertificates writes the certificates of a node, and its new key, to a directory, where etcd reads them.
func writeCertificates(directory string, secret []byte, node uint32, hosts []string) (info transport.TLSInfo, err error) {
	signer, root, err := authority(secret)
	if err != nil {
		return info, err
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return info, err
	}
	template := x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: fmt.Sprintf("node %d", node)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	template.NotBefore, template.NotAfter = always()
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	leaf, err1 := x509.CreateCertificate(rand.Reader, &template, root, public, signer)
	key, err2 := x509.MarshalPKCS8PrivateKey(private)
	if err := errors.Join(err1, err2, os.MkdirAll(directory, 0o700)); err != nil {
		return info, err
	}
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(directory, name)
		err = errors.Join(err, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	info = transport.TLSInfo{
		TrustedCAFile: write("authority.pem", "CERTIFICATE", root.Raw), CertFile: write("certificate.pem", "CERTIFICATE", leaf),
		KeyFile: write("key.pem", "PRIVATE KEY", key), ClientCertAuth: true,
		SkipClientSANVerify: true, // who has a certificate of the authority knows the secret, from whatever address it comes
	}
	return info, err
}
