package coap

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/coap/client"
	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/handshake/handshaketest"
	"github.com/weir-lb/weir/internal/dtls/record"
)

// Weir's client against Californium's server: pre-shared keys, ephemeral ones too, certificates and raw public keys of both sides;
// connection ids; blocks both ways, observation; a wrong key and a server that is not trusted.
func TestClientOfCalifornium(t *testing.T) {
	clitest.TakesSeconds(t)
	for _, major := range []int{3, 4} {
		t.Run(fmt.Sprint(major), func(t *testing.T) { testClientOfCalifornium(t, major) })
	}
}

func testClientOfCalifornium(t *testing.T, major int) {
	t.Helper()
	t.Parallel()
	authority := handshaketest.NewAuthority(t, "test")
	server := authority.Issue(t, "P-256", "server.test", func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)} })
	device := authority.Issue(t, "P-256", "device", nil)
	chain, key := server.Files(t)
	var both []byte
	for _, file := range []string{key, chain} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		both = append(both, b...)
	}
	pem := filepath.Join(t.TempDir(), "server.pem")
	if err := os.WriteFile(pem, both, 0o600); err != nil {
		t.Fatal(err)
	}
	spki, err := x509.MarshalPKIXPublicKey(server.Key.Public())
	if err != nil {
		t.Fatal(err)
	}
	host, port, err := net.SplitHostPort(clitest.FreeAddresses(t, 1)[0])
	if err != nil {
		t.Fatal(err)
	}
	startJava(t, major, "weir.Peer", host, port, pem, authority.File(t))
	uri := fmt.Sprintf("coaps://%s:%s/large", host, port)
	own := []*handshake.Certificate{device.Certificate}
	page := handshaketest.SuitesOfPage(t, fmt.Sprint("Californium ", major), "server", nil)
	for _, test := range []struct {
		name     string
		security client.Security
		auth     handshake.Auth
		identity string
		want     string // of the error; empty: none
	}{
		{"psk", client.Security{Identity: "device", Secret: []byte("secret")}, handshake.AuthPSK, "device", ""},
		{"psk gcm, own connection id", client.Security{Identity: "device", Secret: []byte("secret"), CIDLength: 4, Suites: []record.Suite{record.PSKWithAES128GCMSHA256}}, handshake.AuthPSK, "device", ""},
		{"ephemeral", client.Security{Identity: "device", Secret: []byte("secret"), Suites: []record.Suite{record.ECDHEPSKWithAES128CCM8SHA256}}, handshake.AuthPSK, "device", ""},
		{"certificates", client.Security{Credentials: &handshake.Credentials{Certificates: own, Roots: authority.Roots}}, handshake.AuthX509, "CN=server.test", ""},
		{"raw public keys", client.Security{Credentials: &handshake.Credentials{
			Certificates: []*handshake.Certificate{handshaketest.RawKey(t, "P-256")}, RawKey: func(b []byte) bool { return bytes.Equal(b, spki) },
		}}, handshake.AuthRawKey, "ni:///sha-256;", ""},
		{"another root", client.Security{Credentials: &handshake.Credentials{Certificates: own, Roots: handshaketest.NewAuthority(t, "stranger").Roots}}, 0, "", "certificate not trusted"},
		{"wrong key", client.Security{Identity: "device", Secret: []byte("wrong")}, 0, "", "to the keys of this client"},
	} {
		t.Run(test.name, func(t *testing.T) {
			limit := 30 * time.Second
			if test.want != "" {
				limit = 5 * time.Second
			}
			conn, err := client.Dial(t.Context(), uri, client.DialConfig{Security: test.security, Timeout: limit})
			if test.want != "" {
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("%v, want %q", err, test.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if s := conn.Session(); s.Auth != test.auth || !strings.HasPrefix(s.Identity, test.identity) || len(s.WriteCID) != 12 || len(s.ReadCID) != 2*test.security.CIDLength {
				t.Errorf("%+v", s)
			}
			page.Made(conn.Session().Suite)
			body := []byte(strings.Repeat(test.name+" ", 300))
			for _, r := range []client.Request{{Method: message.PUT, Payload: body}, {}, {BlockSize: 64}} {
				x, err := conn.Do(t.Context(), &r)
				var m message.Message
				if err != nil || message.Parse(x.Response, &m) != nil || m.Code.Class() != 2 || r.Payload == nil && !bytes.Equal(m.Payload, body) {
					t.Fatalf("%s with %d of %d bytes, %v", m.Code, len(m.Payload), len(body), err)
				}
			}
			seen := 0
			err = conn.Observe(t.Context(), client.ObserveConfig{Request: client.Request{Path: []string{"obs"}}}, func(n client.Notification) bool {
				seen++
				return seen < 3
			})
			if err != nil || seen != 3 {
				t.Errorf("%d states, %v", seen, err)
			}
		})
	}
}
