package coap

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/cli/coap/coaptest"
	"github.com/weir-lb/weir/internal/coap/client"
	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/record"
)

// aiocoap's client over UDP, TCP, DTLS (tinydtls) and TLS against Weir's plugtest server.
func TestAiocoapClients(t *testing.T) {
	clitest.TakesSeconds(t)
	peersHome(t) // first: it may skip
	d := makeCerts(t)
	s := coaptest.Start(t, 4, "--plugtest", "--notify-interval", "200ms", "--listen", "127.0.0.1:0", "--dtls", "127.0.0.1:0",
		"--listen-tcp", "127.0.0.1:0", "--listen-tls", "127.0.0.1:0", "--certificate", d+"/server.pem", "--private-key", d+"/server-key.pem",
		"--psk-file", secretFile(t, "device", "secret"))
	base := s.Uris[1]
	psk := `{"` + base + `/*": {"dtls": {"psk": {"ascii": "secret"}, "client-identity": {"ascii": "device"}}}}`
	tls, err := json.Marshal(map[string]any{s.Uris[3] + "/*": map[string]any{"tlscert": map[string]string{"certfile": d + "/root.pem"}}})
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct{ name, transport, credentials string }{
		{"UDP", "udp6", "{}"}, {"DTLS", "tinydtls", psk}, {"TCP", "tcpclient", "{}"}, {"TLS", "tlsclient", string(tls)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			wantAnswers(t, startPython(t, "aiocoap_client.py", c.transport, c.credentials), s.Uris[i])
		})
	}
}

// Weir's client against aiocoap's server over UDP, TCP, DTLS (tinydtls) and TLS.
func TestAiocoapServer(t *testing.T) {
	clitest.TakesSeconds(t)
	address, host, port := serverAddress(t)
	d := makeCerts(t)
	startPython(t, "aiocoap_server.py", host, port, d+"/server.pem", d+"/server-key.pem")
	for _, c := range []struct {
		name, uri string
		security  client.Security
		suite     string
	}{
		{"UDP", "coap://" + address, client.Security{}, ""},
		{"TCP", "coap+tcp://" + address, client.Security{}, ""},
		{"DTLS", after(t, "coaps://", address), client.Security{Identity: "device", Secret: []byte("secret")}, record.PSKWithAES128CCM8.String()},
		{"TLS", after(t, "coaps+tcp://", address), client.Security{Credentials: &handshake.Credentials{TrustAll: true}}, "TLS_AES_256_GCM_SHA384"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			conn := connect(t, c.uri, c.security)
			if s := conn.Session(); s.Suite != c.suite {
				t.Errorf("%+v", s)
			}
			exercise(t, conn)
		})
	}
}

// Tests of aiocoap's own: what no client should send, over UDP and TCP.
func TestAiocoapSuite(t *testing.T) {
	clitest.TakesSeconds(t)
	home := peersHome(t)
	port := portNumber(t, "coap://"+clitest.FreeAddresses(t, 1)[0])
	coaptest.Start(t, 2, "--plugtest", "--listen", "[::1]:"+port, "--listen-tcp", "[::1]:"+port)
	output, err := exec.Command(filepath.Join(home, "bin", "python"), "testdata/peers/aiocoap_suite.py", filepath.Join(home, "aiocoap"), port,
		"test_noncoap_client.TestNoncoapClient", "test_noncoap_tcp_client").CombinedOutput()
	if n := strings.Count("\n"+string(output), "\nok test_"); err != nil || n != 19 || strings.Contains(string(output), "failed") {
		t.Errorf("%d of 19 are ok, %v\n%s", n, err, output)
	}
}
