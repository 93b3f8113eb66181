package coap

import (
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/cli/coap/coaptest"
	"github.com/weir-lb/weir/internal/coap/client"
	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/handshake/handshaketest"
	"github.com/weir-lb/weir/internal/dtls/record"
)

// mbedTLSSuites are the suites that both have, by their name here; mbedTLS has hyphens in them.
var mbedTLSSuites = []string{
	"TLS_PSK_WITH_AES_128_CCM_8", "TLS_PSK_WITH_AES_128_CCM", "TLS_PSK_WITH_AES_128_GCM_SHA256", "TLS_PSK_WITH_AES_256_CCM_8",
	"TLS_PSK_WITH_AES_256_CCM", "TLS_PSK_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8",
	"TLS_ECDHE_ECDSA_WITH_AES_128_CCM", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_256_CCM_8",
	"TLS_ECDHE_ECDSA_WITH_AES_256_CCM", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
}

func mbedTLSName(suite string) string { return strings.ReplaceAll(suite, "_", "-") }

// mbedTLS as a DTLS client: every suite that both have, with pre-shared keys and with certificates of both sides.
func TestMbedTLSClients(t *testing.T) {
	clitest.TakesSeconds(t)
	peersHome(t) // first: it may skip
	d := makeCerts(t)
	s := coaptest.Start(t, 1, "--dtls-only", "--dtls", "127.0.0.1:0", "--psk-file", secretFile(t, "device", "secret"), "--client-auth", "wanted",
		"--certificate", d+"/server.pem", "--private-key", d+"/server-key.pem", "--trust", d+"/trust-client.pem")
	port := portNumber(t, s.Uris[0])
	page := handshaketest.SuitesOfPage(t, "mbedTLS", "client", nil)
	for i, suite := range mbedTLSSuites {
		t.Run(suite, func(t *testing.T) {
			t.Parallel()
			args := []string{"client", "127.0.0.1", port, "suites=" + mbedTLSName(suite)}
			identity := "device"
			if strings.HasPrefix(suite, "TLS_PSK") {
				args = append(args, "identity=device", "secret=secret")
			} else {
				identity = "CN=Weir demo client"
				args = append(args, "certificate="+d+"/client.pem", "key="+d+"/client-key.pem", "root="+d+"/root.pem", "name=localhost")
			}
			p := startPython(t, "mbedtls_peer.py", args...)
			for id := range uint16(3) {
				seen := fields(p.datagram(uint16(i)<<8|id, "mycontext"))
				if seen["cipher-suite"] != suite || seen["peer"] != identity {
					t.Errorf("%v", seen)
				}
				page.Made(seen["cipher-suite"])
			}
		})
	}
}

// Weir's client against mbedTLS's server: pre-shared keys and certificates of both sides; a wrong key and a server that is not trusted.
func TestMbedTLSServers(t *testing.T) {
	clitest.TakesSeconds(t)
	peersHome(t) // first: it may skip
	authority := handshaketest.NewAuthority(t, "test")
	server, device := authority.Issue(t, "P-256", "server.test", nil), authority.Issue(t, "P-256", "device", nil)
	chain, key := server.Files(t)
	own := handshake.Credentials{Certificates: []*handshake.Certificate{device.Certificate}, Roots: authority.Roots}
	_, host, pskPort := serverAddress(t)
	_, _, certificatePort := serverAddress(t)
	all := make([]string, len(mbedTLSSuites))
	for i, suite := range mbedTLSSuites {
		all[i] = mbedTLSName(suite)
	}
	startPython(t, "mbedtls_peer.py", "server", host, pskPort, "suites="+strings.Join(all[:6], ","), "identity=device", "secret=secret")
	startPython(t, "mbedtls_peer.py", "server", host, certificatePort, "suites="+strings.Join(all[6:], ","),
		"certificate="+chain, "key="+key, "root="+authority.File(t))
	page := handshaketest.SuitesOfPage(t, "mbedTLS", "server", nil)
	for i, suite := range mbedTLSSuites {
		t.Run(suite, func(t *testing.T) { // one after the other: this server takes one handshake at a time
			id, _ := record.SuiteNamed(suite)
			security, uri := client.Security{Identity: "device", Secret: []byte("secret"), Suites: []record.Suite{id}}, "coaps://"+host+":"+pskPort
			if i >= 6 {
				security, uri = client.Security{Credentials: &own, Suites: []record.Suite{id}, ServerName: "server.test"}, "coaps://"+host+":"+certificatePort
			}
			conn := connect(t, uri, security)
			if b := exchange(t, conn, client.Request{Path: []string{"any"}}, message.Content); string(b) != all[i] || conn.Session().Suite != suite {
				t.Errorf("%q, %+v", b, conn.Session())
			}
			page.Made(conn.Session().Suite)
		})
	}
	for _, c := range []struct {
		port     string
		security client.Security
		want     string
	}{
		{certificatePort, client.Security{Credentials: &own}, "certificate not trusted"}, // it is not for 127.0.0.1
		{pskPort, client.Security{Identity: "device", Secret: []byte("wrong")}, "to the keys of this client"},
	} {
		_, err := client.Dial(t.Context(), "coaps://"+host+":"+c.port, client.DialConfig{Security: c.security, Timeout: 2 * time.Second})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}
