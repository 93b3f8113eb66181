package coap

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/cli/coap/coaptest"
	"github.com/weir-lb/weir/internal/coap/client"
	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/handshake/handshaketest"
)

func startTinyDTLS(t testing.TB, args ...string) *peer {
	t.Helper()
	p := runTinyDTLS(t, args...)
	p.ready()
	return p
}

func runTinyDTLS(t testing.TB, args ...string) *peer {
	t.Helper()
	return runPeer(t, exec.Command(filepath.Join(peersHome(t), "bin", "tinydtls-peer"), args...))
}

// rawKey is a new P-256 key: as tinydtls wants it (private key, x and y), as PEM files of its two halves, as DER of the public one.
type rawKey struct {
	key                          *ecdsa.PrivateKey
	hex, public, file, trustFile string
	spki                         []byte
}

func newRawKey(t *testing.T) (k rawKey) {
	t.Helper()
	var err error
	if k.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	private, err := k.key.ECDH()
	if err != nil {
		t.Fatal(err)
	}
	k.public = hex.EncodeToString(private.PublicKey().Bytes()[1:])
	k.hex = hex.EncodeToString(private.Bytes()) + k.public
	pkcs8, err := x509.MarshalPKCS8PrivateKey(k.key)
	if err != nil {
		t.Fatal(err)
	}
	if k.spki, err = x509.MarshalPKIXPublicKey(k.key.Public()); err != nil {
		t.Fatal(err)
	}
	d := t.TempDir()
	k.file, k.trustFile = filepath.Join(d, "key.pem"), filepath.Join(d, "public.pem")
	for path, block := range map[string]*pem.Block{k.file: {Type: "PRIVATE KEY", Bytes: pkcs8}, k.trustFile: {Type: "PUBLIC KEY", Bytes: k.spki}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return k
}

// credentials are those of Weir's client with this key, which trusts another one.
func (k *rawKey) credentials(t *testing.T, other rawKey) *handshake.Credentials {
	t.Helper()
	own, err := handshake.NewCertificate(nil, k.key)
	if err != nil {
		t.Fatal(err)
	}
	return &handshake.Credentials{Certificates: []*handshake.Certificate{own}, RawKey: func(b []byte) bool { return bytes.Equal(b, other.spki) }}
}

// tinydtls as a DTLS client, with a pre-shared key and with raw public keys of both sides; and one whose key is not trusted.
func TestTinyDTLSClients(t *testing.T) {
	clitest.TakesSeconds(t)
	peersHome(t) // first: it may skip
	own, device := newRawKey(t), newRawKey(t)
	s := coaptest.Start(t, 1, "--dtls-only", "--dtls", "127.0.0.1:0", "--psk-file", secretFile(t, "device", "secret"), "--client-auth", "needed",
		"--private-key", own.file, "--trust", device.trustFile)
	port := portNumber(t, s.Uris[0])
	page := handshaketest.SuitesOfPage(t, "tinydtls", "client", nil)
	for _, c := range []struct{ suite, peer, mode, own, other string }{
		{"TLS_PSK_WITH_AES_128_CCM_8", "device", "psk", "device", "secret"},
		{"TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8", "ni:///sha-256;", "rpk", device.hex, own.public},
	} {
		t.Run(c.mode, func(t *testing.T) {
			p := startTinyDTLS(t, "client", c.mode, "127.0.0.1", port, c.own, c.other)
			for id := range uint16(3) {
				seen := fields(p.datagram(id, "mycontext"))
				if seen["cipher-suite"] != c.suite || !strings.HasPrefix(seen["peer"], c.peer) {
					t.Errorf("%v", seen)
				}
				page.Made(seen["cipher-suite"])
			}
		})
	}
	if line := runTinyDTLS(t, "client", "rpk", "127.0.0.1", port, newRawKey(t).hex, own.public).line(); !strings.HasPrefix(line, "ALERT ") {
		t.Errorf("a key that is not trusted: %s", line)
	}
}

// Weir's client against tinydtls's server, likewise; a wrong secret and a server's key that is not the one expected.
func TestTinyDTLSServers(t *testing.T) {
	clitest.TakesSeconds(t)
	peersHome(t) // first: it may skip
	own, device := newRawKey(t), newRawKey(t)
	_, host, pskPort := serverAddress(t)
	_, _, rawPort := serverAddress(t)
	startTinyDTLS(t, "server", "psk", host, pskPort, "device", "secret")
	startTinyDTLS(t, "server", "rpk", host, rawPort, own.hex, device.public)
	page := handshaketest.SuitesOfPage(t, "tinydtls", "server", nil)
	for _, c := range []struct {
		name, port string
		security   client.Security
		suite      string
		want       string // of the error; empty: none
	}{
		{"psk", pskPort, client.Security{Identity: "device", Secret: []byte("secret")}, "TLS_PSK_WITH_AES_128_CCM_8", ""},
		{"raw public keys", rawPort, client.Security{Credentials: device.credentials(t, own)}, "TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8", ""},
		{"another identity", pskPort, client.Security{Identity: "stranger", Secret: []byte("secret")}, "", "refused"},
		{"another server", rawPort, client.Security{Credentials: device.credentials(t, newRawKey(t))}, "", "not trusted"},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, err := client.Dial(t.Context(), "coaps://"+host+":"+c.port, client.DialConfig{Security: c.security, Timeout: 5 * time.Second})
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v, want %q", err, c.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if b := exchange(t, conn, client.Request{Path: []string{"any"}}, message.Content); string(b) != "tinydtls" || conn.Session().Suite != c.suite {
				t.Errorf("%q, %+v", b, conn.Session())
			}
			page.Made(conn.Session().Suite)
		})
	}
}
