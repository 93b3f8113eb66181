package kubelab

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"time"
)

// TLSSecret is a Secret with a new key and certificate, which is its own authority and is valid for an hour from now.
func TLSSecret(name string, template *x509.Certificate) (string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return "", err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return "", err
	}
	encode := func(kind string, der []byte) string {
		return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	return fmt.Sprintf(`
apiVersion: v1
kind: Secret
metadata: {name: %s}
type: kubernetes.io/tls
data: {tls.crt: %s, tls.key: %s, ca.crt: %[2]s}
`, name, encode("CERTIFICATE", der), encode("PRIVATE KEY", private)), nil
}
