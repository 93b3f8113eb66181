package coap

import (
	"crypto"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/cli/coap/coaptest"
)

// publicKey returns the SubjectPublicKeyInfo of a private key in a PEM file, in base64.
func publicKey(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(key.(crypto.Signer).Public())
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(der)
}

// A device store of Californium's cloud servers: pre-shared keys and raw public keys of devices, and of no other client.
func TestDeviceStore(t *testing.T) {
	certs := makeCerts(t)
	path := filepath.Join(t.TempDir(), "devices.txt")
	store := fmt.Sprintf("# devices\nDemo.1=Thing\n.label=station\n.psk='Client_identity',c2VjcmV0UFNL\n.rpk=%s\n\nDemo.2=Thing\n.psk='cali.0012345','secretPSK'\n",
		publicKey(t, filepath.Join(certs, "client-key.pem")))
	if err := os.WriteFile(path, []byte(store), 0o600); err != nil {
		t.Fatal(err)
	}
	s := coaptest.Start(t, 1, "--dtls-only", "--dtls", "127.0.0.1:0", "--psk-file", path, "--private-key", filepath.Join(certs, "server-key.pem"), "--client-auth", "wanted")
	get := func(args ...string) (string, error) {
		root := clitest.Root()
		var out strings.Builder
		root.SetOut(&out)
		root.SetErr(&out)
		root.SetArgs(append([]string{"coap", "get", s.Uris[0] + "/mycontext"}, args...))
		err := root.ExecuteContext(t.Context())
		return out.String(), err
	}
	for want, args := range map[string][]string{
		"peer: Client_identity\n": {"--identity", "Client_identity", "--secret", "secretPSK"},
		"peer: cali.0012345\n":    {"--identity", "cali.0012345", "--secret", "secretPSK"},
		"peer: ni:///sha-256;":    {"--rpk", filepath.Join(certs, "client-key.pem"), "--trust-all"},
	} {
		if out, err := get(args...); err != nil || !strings.Contains(out, want) {
			t.Errorf("%v: %v, no %q in\n%s", args, err, want, out)
		}
	}
	if out, err := get("--rpk", filepath.Join(makeCerts(t), "client-key.pem"), "--trust-all"); err == nil {
		t.Errorf("a raw public key that is not in the store is served: %s", out)
	}
	if out, err := get("--identity", "Demo.1", "--secret", "Thing"); err == nil {
		t.Errorf("the name of a device is taken for an identity: %s", out)
	}
}
