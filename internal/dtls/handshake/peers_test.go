package handshake_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pion/dtls/v3"

	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/handshake/handshaketest"
	"github.com/weir-lb/weir/internal/dtls/record"
)

const limit = 20 * time.Second // for a step that takes milliseconds

// echoed sends a request, again if need be, and expects it back.
func echoed(t *testing.T, c *handshaketest.Conn, request string) {
	t.Helper()
	for range 4 {
		if err := c.Write([]byte(request)); err != nil {
			t.Fatal(err)
		}
		if b, typ, err := c.Read(limit / 4); err == nil {
			if typ != record.ApplicationData || string(b) != request {
				t.Fatalf("type %d: %q", typ, b)
			}
			return
		}
	}
	t.Fatalf("no answer to %q", request)
}

// Our client makes sessions with pion's server.
func TestPionServers(t *testing.T) {
	a := handshaketest.NewAuthority(t, "test")
	page := handshaketest.SuitesOfPage(t, "pion", "server", nil)
	for _, test := range []struct {
		suite dtls.CipherSuiteID
		kind  string
		auth  dtls.ClientAuthType
		cid   int
	}{
		{dtls.TLS_PSK_WITH_AES_128_CCM_8, "", 0, 0},
		{dtls.TLS_PSK_WITH_AES_128_CCM, "", 0, 6},
		{dtls.TLS_PSK_WITH_AES_256_CCM_8, "", 0, 6},
		{dtls.TLS_PSK_WITH_AES_128_GCM_SHA256, "", 0, 0},
		{dtls.TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8, "P-256", dtls.NoClientCert, 6},
		{dtls.TLS_ECDHE_ECDSA_WITH_AES_128_CCM, "P-384", dtls.RequireAndVerifyClientCert, 0},
		{dtls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, "Ed25519", dtls.RequireAndVerifyClientCert, 6},
		{dtls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, "P-256", dtls.RequireAndVerifyClientCert, 6},
	} {
		t.Run(fmt.Sprintf("%s/%s/%d", test.suite, test.kind, test.auth), func(t *testing.T) {
			opts := []dtls.ServerOption{dtls.WithCipherSuites(test.suite)}
			client := handshake.ClientConfig{OfferCID: true, CID: []byte{1, 2, 3}, ServerName: "server.test"}
			if test.kind == "" {
				opts = append(opts, dtls.WithPSK(func([]byte) ([]byte, error) { return []byte(".fornium"), nil }))
				client.Identity, client.Key = []byte("cali.own"), []byte(".fornium")
			} else {
				own, device := a.Issue(t, test.kind, "server.test", nil), a.Issue(t, test.kind, "device", nil)
				opts = append(opts, dtls.WithCertificates(own.TLS()), dtls.WithClientAuth(test.auth), dtls.WithClientCAs(a.Roots))
				client.Credentials = credentials(handshake.Credentials{Certificates: []*handshake.Certificate{device.Certificate}, Roots: a.Roots})
			}
			if test.cid > 0 {
				opts = append(opts, dtls.WithConnectionIDGenerator(dtls.RandomCIDGenerator(test.cid)))
			}
			l, err := dtls.ListenWithOptions("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}, opts...)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() {
				c, err := l.Accept()
				if err == nil {
					_, _ = io.Copy(c, c)
				}
			}()
			c, err := handshaketest.Dial(l.Addr().(*net.UDPAddr).AddrPort(), client, limit)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			echoed(t, c, "hello")
			if c.HasCID != (test.cid > 0) || c.Association.Suite().String() != test.suite.String() {
				t.Errorf("%+v", c.Result)
			}
			page.Made(c.Association.Suite().String())
		})
	}
}

// output is what a program prints.
type output struct {
	mu   sync.Mutex
	b    bytes.Buffer
	more chan struct{}
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	select {
	case o.more <- struct{}{}:
	default:
	}
	return o.b.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// wait waits until the program has printed want.
func (o *output) wait(t *testing.T, want string) {
	t.Helper()
	deadline := time.After(limit)
	for !strings.Contains(o.String(), want) {
		select {
		case <-o.more:
		case <-deadline:
			t.Fatalf("%q is not printed:\n%s", want, o)
		}
	}
}

// freePort returns a UDP port that no one has.
func freePort(t *testing.T) uint16 {
	t.Helper()
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Port()
}

// program starts a program that the test ends, and returns what it prints, and its input.
func program(t *testing.T, name string, args ...string) (*output, io.Writer) {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skip("not installed: " + name)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, path, args...)
	out := &output{more: make(chan struct{}, 1)}
	cmd.Stdout, cmd.Stderr = out, out
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
	})
	return out, in
}

// Our client makes sessions with OpenSSL's server: every suite and mode that it has.
func TestOpenSSLServers(t *testing.T) {
	a := handshaketest.NewAuthority(t, "test")
	own, device := a.Issue(t, "P-256", "server.test", nil), a.Issue(t, "P-384", "device", nil)
	chain, key := own.Files(t)
	withRSA := a.Issue(t, "RSA", "server.test", nil)
	rsaChain, rsaKey := withRSA.Files(t)
	rsa := []string{"-cert", rsaChain, "-key", rsaKey, "-cert_chain", rsaChain}
	root := a.File(t)
	page := handshaketest.SuitesOfPage(t, "OpenSSL", "server", nil)
	for _, test := range []struct {
		suite  string
		args   []string
		client handshake.ClientConfig
	}{
		{"TLS_PSK_WITH_AES_128_CCM_8", nil, handshake.ClientConfig{}},
		{"TLS_PSK_WITH_AES_128_CCM", nil, handshake.ClientConfig{}},
		{"TLS_PSK_WITH_AES_256_CCM_8", nil, handshake.ClientConfig{}},
		{"TLS_PSK_WITH_AES_256_CCM", nil, handshake.ClientConfig{}},
		{"TLS_PSK_WITH_AES_128_GCM_SHA256", nil, handshake.ClientConfig{}},
		{"TLS_PSK_WITH_AES_256_GCM_SHA384", nil, handshake.ClientConfig{}},
		{"TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8", nil, handshake.ClientConfig{}},
		{"TLS_ECDHE_ECDSA_WITH_AES_128_CCM", []string{"-Verify", "3"}, handshake.ClientConfig{}},
		{"TLS_ECDHE_ECDSA_WITH_AES_256_CCM_8", []string{"-verify", "3"}, handshake.ClientConfig{}},
		{"TLS_ECDHE_ECDSA_WITH_AES_256_CCM", []string{"-mtu", "300"}, handshake.ClientConfig{}},
		{"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", []string{"-Verify", "3"}, handshake.ClientConfig{Config: handshake.Config{MTU: 300}}},
		{"TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", nil, handshake.ClientConfig{MaxFragmentLength: 512}},
		{"TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", []string{"-curves", "X25519:P-256"}, handshake.ClientConfig{}},
		{"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", rsa, handshake.ClientConfig{}},
		{"TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", rsa, handshake.ClientConfig{}},
	} {
		t.Run(fmt.Sprintf("%s/%s", test.suite, strings.Join(test.args, "")), func(t *testing.T) {
			port := freePort(t)
			args := append([]string{
				"s_server", "-dtls1_2", "-4", "-accept", fmt.Sprint("127.0.0.1:", port), "-cipher", "ALL@SECLEVEL=0",
				"-cert", chain, "-key", key, "-cert_chain", chain, "-CAfile", root, "-psk", "2e666f726e69756d", "-listen",
			}, test.args...)
			out, in := program(t, "openssl", args...)
			out.wait(t, "ACCEPT")
			suite, _ := record.SuiteNamed(test.suite)
			cfg := test.client
			cfg.Suites = []record.Suite{suite}
			cfg.ServerName = "server.test"
			if suite.KeyExchange() == record.PSK {
				cfg.Identity, cfg.Key = []byte("Client_identity"), []byte(".fornium")
			} else {
				cfg.Credentials = credentials(handshake.Credentials{Certificates: []*handshake.Certificate{device.Certificate}, Roots: a.Roots})
			}
			c, err := handshaketest.Dial(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port), cfg, limit)
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			defer c.Close()
			if err := c.Write([]byte("from the client\n")); err != nil {
				t.Fatal(err)
			}
			out.wait(t, "from the client")
			if len(test.args) > 0 && strings.EqualFold(test.args[0], "-verify") {
				out.wait(t, "CN = device")
			}
			_, _ = io.WriteString(in, "from the server\n")
			if b, _, err := c.Read(limit); err != nil || !bytes.Contains(b, []byte("from the server")) {
				t.Errorf("%q, %v", b, err)
			}
			page.Made(c.Association.Suite().String())
		})
	}
}

// Our client makes sessions with GnuTLS's server, which echoes.
func TestGnuTLSServers(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	a := handshaketest.NewAuthority(t, "test")
	own, device := a.Issue(t, "P-256", "server.test", nil), a.Issue(t, "P-256", "device", nil)
	chain, key := own.Files(t)
	port := freePort(t)
	out, _ := program(t, "gnutls-serv", "--udp", "--echo", "--port", fmt.Sprint(port), "--mtu", "500",
		"--x509certfile", chain, "--x509keyfile", key, "--x509cafile", a.File(t), "--require-client-cert", "--verify-client-cert",
		"--priority", "NORMAL:+ECDHE-ECDSA:+AES-128-CCM-8:+AES-256-CCM-8")
	out.wait(t, "listening")
	page := handshaketest.SuitesOfPage(t, "GnuTLS", "server", nil)
	for _, name := range []string{
		"TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8", "TLS_ECDHE_ECDSA_WITH_AES_128_CCM", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
		"TLS_ECDHE_ECDSA_WITH_AES_256_CCM", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
	} {
		t.Run(name, func(t *testing.T) {
			suite, _ := record.SuiteNamed(name)
			cfg := handshake.ClientConfig{
				Config: handshake.Config{
					Suites:      []record.Suite{suite},
					Credentials: credentials(handshake.Credentials{Certificates: []*handshake.Certificate{device.Certificate}, Roots: a.Roots}),
				},
				ServerName: "server.test", RecordSizeLimit: 1024, Resumable: true,
			}
			for _, resumed := range []bool{false, true, true} {
				c, err := handshaketest.Dial(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port), cfg, limit)
				if err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				echoed(t, c, "hello")
				if c.Close(); c.Resumed != resumed || c.Identity != "CN=server.test" {
					t.Errorf("%+v", c.Result)
				}
				page.Made(c.Association.Suite().String())
				cfg.Session = c.Session
			}
		})
	}
}
