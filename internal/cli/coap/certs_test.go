package coap

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
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
	"github.com/weir-lb/weir/internal/coap/stream"
	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/handshake/handshaketest"
	"github.com/weir-lb/weir/internal/dtls/record"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// makeCerts runs weir coap certs and returns the directory.
func makeCerts(t *testing.T, args ...string) string {
	t.Helper()
	directory := filepath.Join(t.TempDir(), "demo")
	root := clitest.Root()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetArgs(append([]string{"coap", "certs", directory, "--json"}, args...))
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	var files []struct{ Path, What string }
	if err := json.Unmarshal(out.Bytes(), &files); err != nil || len(files) != 7 {
		t.Fatalf("%s: %v", out.Bytes(), err)
	}
	for _, f := range files {
		info, err := os.Stat(f.Path)
		if err != nil || f.What == "" || strings.Contains(f.Path, "-key") != (info.Mode().Perm() == 0o600) {
			t.Errorf("%+v: %v %v", f, info, err)
		}
	}
	return directory
}

func TestCertsVerifyAndNeverExpire(t *testing.T) {
	netlabtest.Tools(t, "openssl")
	d := makeCerts(t, "--host", "example.test,192.0.2.7")
	for _, end := range []string{"server", "client"} {
		output, err := exec.Command("openssl", "verify", "-attime", "4000000000", "-CAfile", d+"/root.pem", "-untrusted", d+"/"+end+".pem", "-purpose", "ssl"+end, d+"/"+end+".pem").CombinedOutput()
		if err != nil {
			t.Errorf("%s in the year 2096: %v %s", end, err, output)
		}
	}
	root := clitest.Root()
	root.SetArgs([]string{"coap", "certs", d})
	root.SetErr(new(bytes.Buffer))
	if err := root.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "--force") {
		t.Errorf("files that exist: %v", err)
	}
}

// run runs another program for at most a minute and returns what it prints.
func run(t *testing.T, input, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(input)
	output, err := cmd.CombinedOutput()
	return string(output) + "\n" + errText(err)
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// libcoapPeers are the columns of the page of suites of libcoap's clients.
func libcoapPeers() map[string]string {
	return map[string]string{"coap-client-openssl": "libcoap on OpenSSL", "coap-client-gnutls": "libcoap on GnuTLS"}
}

// Other people's programs over TCP, TLS and DTLS with the certificates of weir coap certs, as a server that needs its clients'.
func TestPeersWithCertificates(t *testing.T) {
	clitest.TakesSeconds(t)
	netlabtest.Tools(t, "coap-client-openssl", "coap-client-gnutls", "openssl")
	d := makeCerts(t)
	s := coaptest.Start(t, 4, "--listen", "127.0.0.1:0", "--dtls", "127.0.0.1:0", "--listen-tcp", "127.0.0.1:0", "--listen-tls", "127.0.0.1:0",
		"--certificate", d+"/server.pem", "--private-key", d+"/server-key.pem", "--trust", d+"/trust-client.pem", "--client-auth", "needed")
	own := []string{"-B", "20", "-c", d + "/client.pem", "-j", d + "/client-key.pem", "-R", d + "/root.pem"}
	if !strings.HasPrefix(s.Uris[2], "coap+tcp://") || !strings.HasPrefix(s.Uris[3], "coaps+tcp://") {
		t.Fatalf("%q", s.Uris)
	}
	pages := map[string]*handshaketest.Suites{}
	for program, peer := range libcoapPeers() {
		pages[program] = handshaketest.SuitesOfPage(t, peer, "client", func(s record.Suite) bool { return s.KeyExchange() != record.PSK })
	}
	for _, c := range []struct {
		name, program string
		args          []string
		want          string
	}{
		{"libcoap TCP", "coap-client-openssl", []string{"-B", "20", s.Uris[2] + "/context"}, "server: Weir"},
		{"libcoap TCP, long", "coap-client-gnutls", []string{"-B", "20", "-m", "post", s.Uris[2] + "/benchmark?rlen=8000"}, strings.Repeat("*", 7985)},
		{"libcoap TCP, 404", "coap-client-openssl", []string{"-B", "20", s.Uris[2] + "/nothing"}, "4.04"},
		{"libcoap TLS, OpenSSL", "coap-client-openssl", append(own, s.Uris[3]+"/mycontext"), "peer: CN=Weir demo client\ncipher-suite: TLS_"},
		{"libcoap TLS, GnuTLS", "coap-client-gnutls", append(own, s.Uris[3]+"/mycontext"), "peer: CN=Weir demo client\ncipher-suite: TLS_"},
		{"libcoap DTLS, OpenSSL", "coap-client-openssl", append(own, s.Uris[1]+"/mycontext"), "peer: CN=Weir demo client\ncipher-suite: TLS_ECDHE_ECDSA"},
		{"libcoap DTLS, GnuTLS", "coap-client-gnutls", append(own, s.Uris[1]+"/mycontext"), "peer: CN=Weir demo client\ncipher-suite: TLS_ECDHE_ECDSA"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := run(t, "", c.program, c.args...)
			if !strings.Contains(got, c.want) {
				t.Errorf("%s %q: %s", c.program, c.args, got)
			}
			if strings.HasPrefix(c.name, "libcoap DTLS") {
				pages[c.program].Made(fields(got)["cipher-suite"])
			}
		})
	}
	// Without a certificate nothing is served.
	if got := run(t, "", "coap-client-openssl", "-B", "5", "-R", d+"/root.pem", s.Uris[3]+"/mycontext"); strings.Contains(got, "server: Weir") {
		t.Errorf("served without a certificate: %s", got)
	}
	address := strings.TrimPrefix(s.Uris[1], "coaps://")
	got := run(t, "", "openssl", "s_client", "-dtls1_2", "-connect", address, "-CAfile", d+"/root.pem", "-verify_return_error",
		"-cert", d+"/client.pem", "-key", d+"/client-key.pem", "-verify_hostname", "localhost")
	if !strings.Contains(got, "Verify return code: 0 (ok)") || !strings.Contains(got, "ECDHE-ECDSA-AES128") {
		t.Errorf("openssl s_client: %s", got)
	}
}

// A new certificate and key count for the next handshake; a TLS connection and a DTLS session that are open go on.
func TestReloadedCertificates(t *testing.T) {
	first, second := makeCerts(t), makeCerts(t)
	d := t.TempDir()
	put := func(from string, names ...string) {
		t.Helper()
		for _, name := range names {
			text, err := os.ReadFile(filepath.Join(from, name))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(d, "new"), text, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(filepath.Join(d, "new"), filepath.Join(d, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	put(first, "server.pem", "server-key.pem")
	s := coaptest.Start(t, 2, "--dtls-only", "--dtls", "127.0.0.1:0", "--listen-tls", "127.0.0.1:0", "--certificate", d+"/server.pem", "--private-key", d+"/server-key.pem")
	address := strings.TrimPrefix(s.Uris[1], "coaps+tcp://")
	poolOf := func(roots string) *x509.CertPool {
		text, err := os.ReadFile(filepath.Join(roots, "root.pem"))
		if err != nil {
			t.Fatal(err)
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(text)
		return pool
	}
	connect := func(roots string) (*stream.Conn, error) {
		c, err := stream.Dial(t.Context(), address, &tls.Config{RootCAs: poolOf(roots)}, stream.Settings{})
		if err == nil {
			t.Cleanup(func() { _ = c.Close() })
			_ = c.SetDeadline(time.Now().Add(30 * time.Second))
		}
		return c, err
	}
	old, err := connect(first)
	if err != nil {
		t.Fatal(err)
	}
	ask(t, old)
	session, err := client.Dial(t.Context(), s.Uris[0]+"/mycontext", client.DialConfig{Security: client.Security{Credentials: &handshake.Credentials{Roots: poolOf(first)}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	request := func() {
		t.Helper()
		if _, err := session.Do(t.Context(), &client.Request{}); err != nil {
			t.Error(err)
		}
		if n := s.Metric("weir_coap_engine_handshakes_total"); n != 1 {
			t.Errorf("%v DTLS handshakes, want 1", n)
		}
	}
	request()
	put(second, "server-key.pem") // does not fit the certificate: refused as a whole
	s.Await("weir_coap_credentials_failed", 1)
	put(second, "server.pem")
	s.Await("weir_coap_credentials_failed", 0)
	if s.Metric("weir_coap_credentials_failed") != 0 {
		t.Fatal(s.Get("/status"))
	}
	if c, err := connect(second); err != nil {
		t.Error(err)
	} else {
		ask(t, c)
	}
	if _, err := connect(first); err == nil {
		t.Error("the certificate before is still in use")
	}
	ask(t, old)
	request()
}

// ask expects an answer over a connection.
func ask(t *testing.T, c *stream.Conn) {
	t.Helper()
	var b message.Builder
	b.Reset(make([]byte, 0, 64), message.Non, message.GET, 0, []byte{1})
	b.Text(message.URIPath, "context")
	datagram, err := b.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Send(datagram); err != nil {
		t.Fatal(err)
	}
	var m message.Message
	if err := c.Receive(&m); err != nil || m.Code != message.Content {
		t.Fatal(m.Code, err)
	}
}
