package handshake_test

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/handshake/handshaketest"
	"github.com/weir-lb/weir/internal/dtls/record"
)

// issuer issues certificates for a test.
type issuer struct {
	*handshaketest.Authority
	t testing.TB
}

func newAuthority(t testing.TB, name string) issuer {
	return issuer{handshaketest.NewAuthority(t, name), t}
}

func (i issuer) issue(kind, name string, edit func(*x509.Certificate)) *handshake.Certificate {
	i.t.Helper()
	return i.Issue(i.t, kind, name, edit).Certificate
}

var credentials = handshaketest.Store

func trusted([]byte) bool { return true }

// shake runs a handshake without losses.
func shake(t testing.TB, client handshake.ClientConfig, config handshake.ServerConfig) (*handshake.Client, *server, error) {
	t.Helper()
	return shakeWith(t, client, config)
}

func shakeWith(t testing.TB, client handshake.ClientConfig, config handshake.ServerConfig, options ...handshake.ConfigOption) (*handshake.Client, *server, error) {
	t.Helper()
	c, err := handshake.NewClient(client)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range options {
		o(c)
	}
	s := serverWith(t, []byte{1, 2, 3, 4, 5, 6}, config)
	run(t, c, s, asIs)
	done, err := c.Done()
	if !done {
		t.Fatal("the handshake does not end")
	}
	return c, s, err
}

func TestCertificates(t *testing.T) {
	a := newAuthority(t, "test")
	for _, suite := range record.Suites() {
		if suite.KeyExchange() != record.ECDHEECDSA {
			continue
		}
		keys := []string{"P-256", "P-384", "Ed25519"}
		if suite.RSA() {
			keys = []string{"RSA"}
		}
		for _, kind := range keys {
			for _, group := range handshake.DefaultGroups() {
				for _, raw := range []bool{false, true} {
					for _, auth := range []handshake.ClientAuth{handshake.ClientAuthNone, handshake.ClientAuthWanted, handshake.ClientAuthNeeded} {
						t.Run(fmt.Sprintf("%s/%s/group-%d/raw-%t/auth-%d", suite, kind, group, raw, auth), func(t *testing.T) {
							mine := handshake.Credentials{Certificates: []*handshake.Certificate{a.issue(kind, "device", nil)}, Roots: a.Roots}
							theirs := handshake.Credentials{Certificates: []*handshake.Certificate{a.issue(kind, "server.test", nil)}, Roots: a.Roots}
							if raw {
								mine.Roots, mine.RawKey = nil, trusted
								theirs.Roots, theirs.RawKey = nil, trusted
								mine.Certificates[0] = handshaketest.RawKey(t, kind)
								theirs.Certificates[0] = handshaketest.RawKey(t, kind)
							}
							suites := []record.Suite{suite}
							c, s, err := shake(t, handshake.ClientConfig{
								Config: handshake.Config{Credentials: credentials(mine), Suites: suites}, ServerName: "server.test", OfferCID: true,
							}, handshake.ServerConfig{
								Config: handshake.Config{
									Credentials: credentials(theirs), Suites: suites,
									Groups: []handshake.Group{group},
								},
								ClientAuth: auth,
							})
							if err != nil {
								t.Fatal(err)
							}
							wantServer, wantClient, wantAuth := "CN=server.test", "CN=device", handshake.AuthX509
							if raw {
								wantServer, wantClient, wantAuth = "ni:///sha-256;", "ni:///sha-256;", handshake.AuthRawKey
							}
							r := c.Result()
							if !strings.HasPrefix(r.Identity, wantServer) || r.Auth != wantAuth || !r.HasCID || !r.ExtendedMaster {
								t.Errorf("client: %+v", r)
							}
							if auth == handshake.ClientAuthNone {
								wantClient, wantAuth = "", handshake.AuthNone
							}
							if !strings.HasPrefix(s.result.Identity, wantClient) || s.result.Auth != wantAuth || s.result.Association.Suite() != suite {
								t.Errorf("server: %+v", s.result)
							}
							exchange(t, r.Association, s.result.Association)
							exchange(t, s.result.Association, r.Association)
						})
					}
				}
			}
		}
	}
}

// Who is not trusted, or has nothing in common, is refused with the alert that RFC 5246 section 7.2.2 names.
func TestRefusedCertificates(t *testing.T) {
	a, other := newAuthority(t, "test"), newAuthority(t, "other")
	expired := func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	}
	device := a.issue("P-256", "device", nil)
	rawKey := handshaketest.RawKey(t, "P-256")
	good := handshake.Credentials{Certificates: []*handshake.Certificate{a.issue("P-256", "server.test", nil)}, Roots: a.Roots}
	with := func(edit func(*handshake.Credentials)) handshake.Credentials {
		c := good
		edit(&c)
		return c
	}
	own := func(own ...*handshake.Certificate) handshake.Credentials {
		return handshake.Credentials{Certificates: own, Roots: a.Roots}
	}
	for _, test := range []struct {
		name           string
		client, server handshake.Credentials
		auth           handshake.ClientAuth
		alert          byte   // of the server
		text           string // of the client's error, without an alert
	}{
		{"client needs a certificate", own(), good, handshake.ClientAuthNeeded, 40, ""},
		{"client's authority unknown", own(other.issue("P-256", "device", nil)), good, handshake.ClientAuthWanted, 48, ""},
		{"client's certificate expired", own(a.issue("P-256", "device", expired)), good, handshake.ClientAuthWanted, 45, ""},
		{"client's certificate is for servers", own(a.issue("P-256", "device", func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		})), good, handshake.ClientAuthWanted, 42, ""},
		{"client has a raw key only", handshake.Credentials{Certificates: []*handshake.Certificate{rawKey}, Roots: a.Roots}, good, handshake.ClientAuthNeeded, 40, ""},
		{"raw key not trusted", handshake.Credentials{Certificates: []*handshake.Certificate{rawKey}, Roots: a.Roots}, with(func(c *handshake.Credentials) {
			c.RawKey = func([]byte) bool { return false }
		}), handshake.ClientAuthNeeded, 42, ""},
		{"server has no certificate", own(device), with(func(c *handshake.Credentials) { c.Certificates = nil }), 0, 40, ""},
		{"server's authority unknown", own(), with(func(c *handshake.Credentials) {
			c.Certificates = []*handshake.Certificate{other.issue("P-256", "server.test", nil)}
		}), 0, 0, "unknown authority"},
		{"server's name is another", own(), with(func(c *handshake.Credentials) {
			c.Certificates = []*handshake.Certificate{a.issue("P-256", "another.test", nil)}
		}), 0, 0, "another.test"},
		{"server's certificate expired", own(), with(func(c *handshake.Credentials) {
			c.Certificates = []*handshake.Certificate{a.issue("P-256", "server.test", expired)}
		}), 0, 0, "expired"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, s, err := shake(t, handshake.ClientConfig{
				Config: handshake.Config{Credentials: credentials(test.client)}, ServerName: "server.test",
			}, handshake.ServerConfig{Config: handshake.Config{Credentials: credentials(test.server)}, ClientAuth: test.auth})
			var alert handshake.AlertError
			switch {
			case err == nil || s.result != nil && test.text == "":
				t.Fatal("the handshake succeeds")
			case test.alert != 0 && (!errors.As(err, &alert) || byte(alert) != test.alert):
				t.Errorf("%v, want alert %d", err, test.alert)
			case test.alert == 0 && !strings.Contains(err.Error(), test.text):
				t.Errorf("%v, want %q", err, test.text)
			}
		})
	}
}

// The server takes the certificate for the name that the client requests.
func TestServerName(t *testing.T) {
	a := newAuthority(t, "test")
	server := handshake.ServerConfig{Config: handshake.Config{Credentials: credentials(handshake.Credentials{Certificates: []*handshake.Certificate{
		a.issue("P-256", "one.test", nil), a.issue("P-384", "two.test", nil), a.issue("Ed25519", "three.test", nil),
	}})}}
	for _, name := range []string{"one.test", "two.test", "three.test"} {
		c, _, err := shake(t, handshake.ClientConfig{Config: handshake.Config{Credentials: credentials(handshake.Credentials{Roots: a.Roots})}, ServerName: name}, server)
		if err != nil || c.Result().Identity != "CN="+name {
			t.Errorf("%s: %v, %s", name, err, c.Result().Identity)
		}
	}
}

// counter counts the signatures made with a key.
type counter struct {
	crypto.Signer
	n int
}

func (c *counter) Sign(r io.Reader, d []byte, o crypto.SignerOpts) ([]byte, error) {
	c.n++
	return c.Signer.Sign(r, d, o)
}

// No signature is made before the cookie has returned, and one is made for each handshake, however often its hello comes.
func TestSignaturesCostACookie(t *testing.T) {
	key := &counter{Signer: handshaketest.NewKey(t, "P-256")}
	own, err := handshake.NewCertificate(nil, key)
	if err != nil {
		t.Fatal(err)
	}
	c, _ := handshake.NewClient(handshake.ClientConfig{Config: handshake.Config{Credentials: credentials(handshake.Credentials{TrustAll: true})}})
	s := serverWith(t, nil, handshake.ServerConfig{Config: handshake.Config{Credentials: credentials(handshake.Credentials{Certificates: []*handshake.Certificate{own}})}})
	var hello []byte
	send := func(d []byte) { hello = bytes.Clone(d) }
	c.Start(0, send)
	for range 100 {
		replies := s.datagram(bytes.Clone(hello), 0)
		if len(replies) != 1 || len(replies[0]) > len(hello) || s.pending != nil || key.n != 0 {
			t.Fatalf("%d replies, %d signatures, state %v", len(replies), key.n, s.pending)
		}
	}
	c.Receive(new(record.Scratch), s.datagram(bytes.Clone(hello), 0)[0], 0, send)
	for range 100 {
		if s.datagram(bytes.Clone(hello), 0); key.n != 1 {
			t.Fatalf("%d signatures", key.n)
		}
	}
}
