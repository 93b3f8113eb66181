package gateway

import (
	"bytes"
	"crypto/tls"
	"io"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/pion/stun/v4"

	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// A certificate that is renewed in place is shown from the next handshake on, and connections that are open go on; a bad
// one changes nothing.
func TestReloadSwapsCertificates(t *testing.T) {
	now := time.Now()
	certificate, key := pemFiles(t, "turn", now)
	at := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), netlabtest.UDPPort(t))
	c := Config{
		Auth:      AuthConfig{Mode: AuthNone},
		Listeners: []ListenerConfig{{Name: "tls", Protocol: TLS, Address: at.Addr(), Port: at.Port(), Certificate: certificate, Key: key}},
	}
	g, err := Open(c, Options{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	netlabtest.Run(t, g.Run)
	dial := func() *tls.Conn {
		t.Helper()
		conn, err := tls.Dial("tcp", at.String(), &tls.Config{InsecureSkipVerify: true}) // a test's certificate
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	old := dial()
	first := old.ConnectionState().PeerCertificates[0].Raw

	renewed, renewedKey := pemFiles(t, "renewed", now)
	move(t, renewed, certificate)
	if _, err := g.Apply(c); err == nil {
		t.Error("a certificate without its key is taken over")
	}
	if got := dial().ConnectionState().PeerCertificates[0].Raw; !bytes.Equal(got, first) {
		t.Error("the failed reload changed the certificate")
	}
	move(t, renewedKey, key)
	change, err := g.Apply(c)
	if err != nil || len(change.Certificates) != 1 || len(change.Restarted) != 0 {
		t.Fatalf("%+v, %v", change, err)
	}
	second := dial().ConnectionState().PeerCertificates[0].Raw
	if bytes.Equal(first, second) {
		t.Error("a new handshake shows the old certificate")
	}
	if change, err = g.Apply(c); err != nil || len(change.Certificates) != 0 {
		t.Errorf("the same certificate again: %+v, %v", change, err)
	}
	// From files to one made at start, which then stays.
	c.Listeners[0].Certificate, c.Listeners[0].Key, c.Listeners[0].SelfSigned = "", "", true
	if change, err = g.Apply(c); err != nil || len(change.Certificates) != 1 {
		t.Errorf("to self-signed: %+v, %v", change, err)
	}
	third := dial().ConnectionState().PeerCertificates[0].Raw
	if change, err = g.Apply(c); err != nil || len(change.Certificates) != 0 || !bytes.Equal(third, dial().ConnectionState().PeerCertificates[0].Raw) {
		t.Errorf("self-signed again: %+v, %v", change, err)
	}
	binding(t, old)
}

func move(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

// binding asks over a connection and wants an answer.
func binding(t *testing.T, conn io.ReadWriter) {
	t.Helper()
	m := stun.MustBuild(stun.TransactionID, stun.BindingRequest)
	if _, err := conn.Write(m.Raw); err != nil {
		t.Fatal(err)
	}
	head := make([]byte, 20)
	if _, err := io.ReadFull(conn, head); err != nil || !bytes.Equal(head[8:20], m.TransactionID[:]) {
		t.Errorf("the open connection is answered %x, %v", head, err)
	}
}
