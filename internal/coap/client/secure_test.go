package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pion/dtls/v3"

	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/handshake/handshaketest"
	"github.com/weir-lb/weir/internal/dtls/record"
)

// A server with certificates of another implementation: it is trusted by its root and its name, it requests the client's.
func TestRequestWithCertificates(t *testing.T) {
	authority := handshaketest.NewAuthority(t, "test")
	server := authority.Issue(t, "P-256", "server.test", func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)} })
	device := authority.Issue(t, "P-256", "device", nil)
	stranger := handshaketest.NewAuthority(t, "stranger")
	p := newPeerWith(t, &dtls.Config{
		Certificates: []tls.Certificate{server.TLS()}, ClientAuth: dtls.RequireAndVerifyClientCert, ClientCAs: authority.Roots,
		ConnectionIDGenerator: dtls.RandomCIDGenerator(6),
	})
	both := handshake.Credentials{Certificates: []*handshake.Certificate{device.Certificate}, Roots: authority.Roots}
	for _, test := range []struct {
		name, server string
		credentials  handshake.Credentials
		want         string // of the error; empty: none
	}{
		{"both", "", both, ""},
		{"name", "server.test", both, ""},
		{"everybody", "other.test", handshake.Credentials{Certificates: both.Certificates, TrustAll: true}, ""},
		{"other name", "other.test", both, "certificate not trusted: x509: certificate is valid for server.test"},
		{"other root", "", handshake.Credentials{Certificates: both.Certificates, Roots: stranger.Roots}, "certificate not trusted: x509: certificate signed by unknown authority"},
		{"no certificate", "", handshake.Credentials{Roots: authority.Roots}, "does not accept the certificate of this client"},
	} {
		t.Run(test.name, func(t *testing.T) {
			x, err := Do(t.Context(), RequestConfig{URI: p.uri, Security: Security{Credentials: &test.credentials, ServerName: test.server}, Timeout: 20 * time.Second})
			if test.want != "" {
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("got %v, want %q", err, test.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if s := x.Session; s.Auth != handshake.AuthX509 || s.Identity != "CN=server.test" || len(s.WriteCID) != 12 {
				t.Errorf("%+v", s)
			}
			var b strings.Builder
			if err := x.Print(&b); err != nil || !strings.Contains(b.String(), ">>> X509 Certificate Path [CN=server.test]\n") {
				t.Errorf("%v\n%s", err, b.String())
			}
		})
	}
}

// A handshake ends with its cause: nobody, silence, a refused key.
func TestDialNamesTheCause(t *testing.T) {
	silent, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	gone, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	nobody := gone.LocalAddr().String()
	gone.Close()
	p := newPeer(t, true)
	for _, test := range []struct {
		uri      string
		security Security
		want     string
		is       error
	}{
		{"coaps://" + nobody, Security{}, "nothing listens there", syscall.ECONNREFUSED},
		{"coap://" + nobody, Security{}, "nothing listens there", syscall.ECONNREFUSED},
		{"coaps://" + silent.LocalAddr().String(), Security{}, "ms; is a DTLS server there?", handshake.ErrNoAnswer},
		{p.uri, Security{Secret: []byte("wrong")}, "", nil},
		{p.uri, Security{Suites: []record.Suite{record.PSKWithAES256CCM8}}, "no cipher suite, group or certificate in common", nil},
	} {
		_, err := Do(t.Context(), RequestConfig{URI: test.uri, Security: test.security, Timeout: 300 * time.Millisecond})
		if err == nil || !strings.Contains(err.Error(), test.want) || test.is != nil && !errors.Is(err, test.is) {
			t.Errorf("%s: %v, want %q", test.uri, err, test.want)
		}
	}
}

// One connection carries many requests at a time, and ends with its server.
func TestConnCarriesManyRequests(t *testing.T) {
	for _, secure := range []bool{false, true} {
		p := newPeer(t, secure)
		conn, err := Dial(t.Context(), p.uri, DialConfig{Timeout: 20 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		results := make(chan error)
		for range 50 {
			go func() {
				x, err := conn.Do(t.Context(), &Request{})
				var m message.Message
				if err == nil && (message.Parse(x.Response, &m) != nil || m.Code != message.Content) {
					err = errors.New("another response")
				}
				results <- err
			}()
		}
		for range 50 {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		if _, err := conn.Do(context.Background(), &Request{}); !errors.Is(err, errConnClosed) {
			t.Errorf("after the end: %v", err)
		}
	}
}
