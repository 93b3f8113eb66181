package engine_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pion/dtls/v3"

	"github.com/weir-lb/weir/internal/dtls/engine"
	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/handshake/handshaketest"
	"github.com/weir-lb/weir/internal/dtls/record"
)

// certified is a configuration of a server with a certificate for server.test, and of clients that trust its authority.
func certified(t *testing.T, kind string, auth handshake.ClientAuth) (a *handshaketest.Authority, cfg engine.Config) {
	t.Helper()
	a = handshaketest.NewAuthority(t, "test")
	own := a.Issue(t, kind, "server.test", nil)
	return a, engine.Config{
		Workers: 1, CIDs: engine.ByteOwnerCIDs(6, 7), ClientAuth: auth,
		Credentials: handshaketest.Store(handshake.Credentials{Certificates: []*handshake.Certificate{own.Certificate}, Roots: a.Roots}),
	}
}

func TestPionClientsWithCertificates(t *testing.T) {
	suites := []dtls.CipherSuiteID{
		dtls.TLS_ECDHE_ECDSA_WITH_AES_128_CCM, dtls.TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8,
		dtls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, dtls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
	}
	page := handshaketest.SuitesOfPage(t, "pion", "client", func(s record.Suite) bool { return s.KeyExchange() != record.PSK })
	for _, suite := range suites {
		for _, kind := range []string{"P-256", "P-384", "Ed25519"} {
			for _, auth := range []handshake.ClientAuth{handshake.ClientAuthNone, handshake.ClientAuthNeeded} {
				t.Run(fmt.Sprintf("%s/%s/auth-%d", suite, kind, auth), func(t *testing.T) {
					a, cfg := certified(t, kind, auth)
					e, h := serve(t, cfg)
					device := a.Issue(t, kind, "device", nil)
					socket, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
					if err != nil {
						t.Fatal(err)
					}
					c, err := dtls.ClientWithOptions(socket, net.UDPAddrFromAddrPort(e.Addr()), dtls.WithCipherSuites(suite),
						dtls.WithRootCAs(a.Roots), dtls.WithServerName("server.test"), dtls.WithCertificates(device.TLS()),
						dtls.WithConnectionIDGenerator(dtls.RandomCIDGenerator(4)))
					if err != nil {
						t.Fatal(err)
					}
					defer c.Close()
					ctx, cancel := context.WithTimeout(context.Background(), limit)
					defer cancel()
					if err := c.HandshakeContext(ctx); err != nil {
						t.Fatal(err)
					}
					roundTrip(t, c, []byte("info"))
					i := h.last(t)
					want, identity := handshake.AuthNone, ""
					if auth == handshake.ClientAuthNeeded {
						want, identity = handshake.AuthX509, "CN=device"
					}
					if i.Auth != want || i.Identity != identity || i.Suite != suite.String() || len(i.ReadCID) != 6 || len(i.WriteCID) != 4 {
						t.Errorf("%+v", i)
					}
					page.Made(i.Suite)
				})
			}
		}
	}
}

// Certificates are replaced while the engine runs: old sessions go on, new ones see the new certificate.
func TestReload(t *testing.T) {
	a, cfg := certified(t, "P-256", handshake.ClientAuthNone)
	e, _ := serve(t, cfg)
	client := handshake.ClientConfig{Config: handshake.Config{Credentials: handshaketest.Store(handshake.Credentials{Roots: a.Roots})}}
	before := dialOwn(t, e, client)
	renewed := a.Issue(t, "P-384", "renewed.test", nil)
	cfg.Credentials.Store(&handshake.Credentials{Certificates: []*handshake.Certificate{renewed.Certificate}})
	after := dialOwn(t, e, client)
	if before.Identity != "CN=server.test" || after.Identity != "CN=renewed.test" {
		t.Errorf("%s, then %s", before.Identity, after.Identity)
	}
	answered(t, before, "before")
	answered(t, after, "after")
}

func dialOwn(t *testing.T, e *engine.Engine, cfg handshake.ClientConfig) *handshaketest.Conn {
	t.Helper()
	c, err := handshaketest.Dial(e.Addr(), cfg, limit)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// answered sends a request, again if need be, and expects it back.
func answered(t *testing.T, c *handshaketest.Conn, request string) {
	t.Helper()
	for range 4 {
		if err := c.Write([]byte(request)); err != nil {
			t.Fatal(err)
		}
		if b, typ, err := c.Read(limit / 4); err == nil {
			if typ != record.ApplicationData || string(b) != request {
				t.Fatalf("%d: %q", typ, b)
			}
			return
		}
	}
	t.Fatalf("no answer to %q", request)
}

// Every suite, with raw public keys and X.509, and with each group, over real sockets.
func TestEverySuiteOverSockets(t *testing.T) {
	a, cfg := certified(t, "P-256", handshake.ClientAuthWanted)
	cfg.Credentials.Load().RawKey = func([]byte) bool { return true }
	cfg.PSK = psk
	e, h := serve(t, cfg)
	device := a.Issue(t, "Ed25519", "device", nil)
	for _, suite := range record.Suites() {
		if suite.RSA() {
			continue // see handshake.TestCertificates
		}
		client := handshake.ClientConfig{Config: handshake.Config{Suites: []record.Suite{suite}}, OfferCID: true, CID: []byte{1, 2}}
		want := handshake.AuthPSK
		if suite.KeyExchange() == record.ECDHEECDSA {
			want = handshake.AuthX509
			client.Credentials = handshaketest.Store(handshake.Credentials{Certificates: []*handshake.Certificate{device.Certificate}, Roots: a.Roots})
		} else {
			client.Identity, client.Key = []byte("cali.own"), []byte(".fornium")
		}
		c := dialOwn(t, e, client)
		answered(t, c, "info")
		if i := h.last(t); i.Auth != want || i.Suite != suite.String() || len(i.WriteCID) != 2 {
			t.Errorf("%s: %+v", suite, i)
		}
	}
	raw := handshake.ClientConfig{Config: handshake.Config{Credentials: handshaketest.Store(handshake.Credentials{
		Certificates: []*handshake.Certificate{handshaketest.RawKey(t, "P-256")}, RawKey: func([]byte) bool { return true },
	})}}
	c := dialOwn(t, e, raw)
	answered(t, c, "info")
	if i := h.last(t); i.Auth != handshake.AuthRawKey || c.Auth != handshake.AuthRawKey {
		t.Errorf("%+v, %+v", i, c.Result)
	}
}

// program returns the path of a program, or skips the test.
func program(t *testing.T, name, packages string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skip("not installed: " + packages)
	}
	return path
}

// request is what other libraries' clients send; none of them prints it by itself.
const request = "info-of-the-session"

// client runs another library's client, which sends what it reads, until the answer to request has come.
func client(t *testing.T, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(in, request+"\n")
	var printed []string
	found := false
	for lines := bufio.NewScanner(out); !found && lines.Scan(); {
		printed = append(printed, lines.Text())
		found = strings.Contains(lines.Text(), request)
	}
	cancel()
	_ = cmd.Wait()
	if !found {
		t.Fatalf("%s does not print the answer:\n%s", name, strings.Join(printed, "\n"))
	}
	return strings.Join(printed, "\n")
}

// described checks what the handler has seen of the only session.
func described(t *testing.T, e *engine.Engine, h *echo, auth handshake.Auth, identity string) {
	t.Helper()
	if i := h.last(t); i.Auth != auth || i.Identity != identity {
		t.Errorf("%s, %q: want %s, %q", i.Auth, i.Identity, auth, identity)
	}
	stats(t, e, "one handshake", func(s engine.Stats) bool { return s.Handshakes == 1 && s.HandshakesFailed == 0 && s.Malformed == 0 })
}

func TestOpenSSLClients(t *testing.T) {
	openssl := program(t, "openssl", "openssl")
	a, cfg := certified(t, "P-256", handshake.ClientAuthWanted)
	cfg.PSK, cfg.CIDs = psk, nil
	device := a.Issue(t, "P-384", "device", nil)
	chain, key := device.Files(t)
	root := a.File(t)
	page := handshaketest.SuitesOfPage(t, "OpenSSL", "client", func(s record.Suite) bool { return !s.RSA() })
	for _, test := range []struct {
		cipher string
		auth   handshake.Auth
		args   []string
	}{
		{"ECDHE-ECDSA-AES128-CCM8", handshake.AuthX509, []string{"-cert", chain, "-key", key, "-cert_chain", chain}},
		{"ECDHE-ECDSA-AES128-CCM", handshake.AuthNone, nil},
		{"ECDHE-ECDSA-AES256-CCM8", handshake.AuthNone, nil},
		{"ECDHE-ECDSA-AES256-CCM", handshake.AuthNone, nil},
		{"ECDHE-ECDSA-AES128-GCM-SHA256", handshake.AuthX509, []string{"-cert", chain, "-key", key, "-cert_chain", chain, "-mtu", "256"}},
		{"ECDHE-ECDSA-AES256-GCM-SHA384", handshake.AuthNone, []string{"-curves", "X25519:P-256"}},
		{"ECDHE-ECDSA-AES256-GCM-SHA384", handshake.AuthNone, []string{"-curves", "P-384:P-256"}},
		{"PSK-AES128-CCM8", handshake.AuthPSK, nil},
		{"PSK-AES128-CCM", handshake.AuthPSK, nil},
		{"PSK-AES128-GCM-SHA256", handshake.AuthPSK, nil},
		{"PSK-AES256-CCM8", handshake.AuthPSK, nil},
		{"PSK-AES256-CCM", handshake.AuthPSK, nil},
		{"PSK-AES256-GCM-SHA384", handshake.AuthPSK, nil},
		{"PSK-AES128-CCM8", handshake.AuthPSK, []string{"-mtu", "256"}},
		{"ALL", handshake.AuthNone, []string{"-mtu", "256"}}, // a hello in fragments
		{"ECDHE-ECDSA-AES128-GCM-SHA256", handshake.AuthNone, []string{"-maxfraglen", "512"}},
	} {
		t.Run(fmt.Sprintf("%s/%s/%d", test.cipher, test.auth, len(test.args)), func(t *testing.T) {
			e, h := serve(t, cfg)
			args := []string{"s_client", "-dtls1_2", "-connect", e.Addr().String(), "-cipher", test.cipher + "@SECLEVEL=0", "-quiet", "-ign_eof"}
			if test.auth == handshake.AuthPSK {
				args = append(args, "-psk_identity", "cali.openssl", "-psk", "2e666f726e69756d") // .fornium
			} else {
				args = append(args, "-CAfile", root, "-verify_return_error", "-verify_hostname", "server.test", "-servername", "server.test")
			}
			client(t, openssl, append(args, test.args...)...)
			described(t, e, h, test.auth, map[handshake.Auth]string{handshake.AuthPSK: "cali.openssl", handshake.AuthX509: "CN=device"}[test.auth])
			page.Made(h.last(t).Suite)
		})
	}
}

// A server with an RSA certificate serves clients that have one too, and none that cannot verify it.
func TestOpenSSLClientsWithRSA(t *testing.T) {
	openssl := program(t, "openssl", "openssl")
	a, cfg := certified(t, "RSA", handshake.ClientAuthNeeded)
	cfg.CIDs = nil
	device := a.Issue(t, "RSA", "device", nil)
	chain, key := device.Files(t)
	root := a.File(t)
	page := handshaketest.SuitesOfPage(t, "OpenSSL", "client", record.Suite.RSA)
	for _, args := range [][]string{
		{"-cipher", "ECDHE-RSA-AES128-GCM-SHA256"}, {"-cipher", "ECDHE-RSA-AES256-GCM-SHA384", "-sigalgs", "RSA+SHA256:ECDSA+SHA256"},
	} {
		e, h := serve(t, cfg)
		client(t, openssl, append([]string{
			"s_client", "-dtls1_2", "-connect", e.Addr().String(), "-quiet", "-cert", chain, "-key", key, "-cert_chain", chain,
			"-CAfile", root, "-verify_return_error", "-verify_hostname", "server.test",
		}, args...)...)
		described(t, e, h, handshake.AuthX509, "CN=device")
		page.Made(h.last(t).Suite)
	}
}

func TestGnuTLSClients(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	gnutls := program(t, "gnutls-cli", "gnutls-bin")
	a, cfg := certified(t, "P-256", handshake.ClientAuthWanted)
	cfg.PSK, cfg.CIDs = psk, nil
	device := a.Issue(t, "P-256", "device", nil)
	chain, key := device.Files(t)
	root := a.File(t)
	page := handshaketest.SuitesOfPage(t, "GnuTLS", "client", nil)
	for _, priority := range []string{
		"+ECDHE-ECDSA:+AES-128-CCM-8", "+ECDHE-ECDSA:+AES-128-CCM", "+ECDHE-ECDSA:+AES-128-GCM", "+ECDHE-ECDSA:+AES-256-GCM",
		"+ECDHE-ECDSA:+AES-256-CCM-8", "+ECDHE-ECDSA:+AES-256-CCM", "+PSK:+AES-128-CCM-8", "+PSK:+AES-128-CCM", "+PSK:+AES-128-GCM",
		"+PSK:+AES-256-CCM-8", "+PSK:+AES-256-CCM", "+PSK:+AES-256-GCM",
	} {
		t.Run(priority, func(t *testing.T) {
			e, h := serve(t, cfg)
			addr := e.Addr()
			auth, identity := handshake.AuthX509, "CN=device"
			args := []string{
				"--udp", "--port", fmt.Sprint(addr.Port()), "--mtu", "600",
				"--priority", "NONE:+VERS-DTLS1.2:+COMP-NULL:+MAC-ALL:+SIGN-ALL:+GROUP-ALL:+CTYPE-ALL:%NO_ETM:" + priority,
			}
			if strings.HasPrefix(priority, "+PSK") {
				auth, identity = handshake.AuthPSK, "cali.gnutls"
				args = append(args, "--pskusername", "cali.gnutls", "--pskkey", "2e666f726e69756d")
			} else {
				args = append(args, "--x509cafile", root, "--verify-hostname", "server.test", "--x509certfile", chain, "--x509keyfile", key)
			}
			client(t, gnutls, append(args, addr.Addr().String())...)
			described(t, e, h, auth, identity)
			page.Made(h.last(t).Suite)
		})
	}
}

// GnuTLS's client with raw public keys of both sides (RFC 7250).
func TestGnuTLSClientsWithRawKeys(t *testing.T) {
	gnutls := program(t, "gnutls-cli", "gnutls-bin")
	device := handshaketest.NewKey(t, "P-256")
	spki, err := x509.MarshalPKIXPublicKey(device.Public())
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(device)
	if err != nil {
		t.Fatal(err)
	}
	d := t.TempDir()
	for name, block := range map[string]*pem.Block{"key": {Type: "PRIVATE KEY", Bytes: pkcs8}, "public": {Type: "PUBLIC KEY", Bytes: spki}} {
		if err := os.WriteFile(filepath.Join(d, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	sum := sha256.Sum256(spki)
	identity := "ni:///sha-256;" + base64.RawURLEncoding.EncodeToString(sum[:])
	for _, cipher := range []string{"AES-128-CCM-8", "AES-128-GCM", "AES-256-GCM"} {
		t.Run(cipher, func(t *testing.T) {
			e, h := serve(t, engine.Config{
				Workers: 1, ClientAuth: handshake.ClientAuthNeeded,
				Credentials: handshaketest.Store(handshake.Credentials{
					Certificates: []*handshake.Certificate{handshaketest.RawKey(t, "P-256")}, RawKey: func(b []byte) bool { return bytes.Equal(b, spki) },
				}),
			})
			out := client(t, gnutls, "--udp", "--port", portOf(e.Addr()), "--mtu", "600", "--insecure",
				"--rawpkkeyfile", filepath.Join(d, "key"), "--rawpkfile", filepath.Join(d, "public"),
				"--priority", "NONE:+VERS-DTLS1.2:+COMP-NULL:+MAC-ALL:+SIGN-ALL:+GROUP-ALL:+CTYPE-CLI-RAWPK:+CTYPE-SRV-RAWPK:%NO_ETM:+ECDHE-ECDSA:+"+cipher,
				e.Addr().Addr().String())
			if !strings.Contains(out, "Raw Public Key") {
				t.Error(out)
			}
			described(t, e, h, handshake.AuthRawKey, identity)
		})
	}
}
