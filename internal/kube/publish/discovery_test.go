package publish

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/control/discovery"
	"github.com/weir-lb/weir/internal/kube/operator"
)

const (
	plane = "l4"
	token = "0123456789abcdef"
)

// certificate writes one for 127.0.0.1 and its key.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, secret.Public(), secret)
	must(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(secret)
	must(t, err)
	folder := t.TempDir()
	cert, key = filepath.Join(folder, "cert.pem"), filepath.Join(folder, "key.pem")
	must(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	must(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	return cert, key
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// watch runs a load balancer's end, which refuses what has the word in it; end disconnects it.
func watch(t *testing.T, address, ca, node, refuses string) (end func()) {
	t.Helper()
	origin, err := discovery.ParseOrigin("https://" + address)
	must(t, err)
	secret := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(secret, []byte(token), 0o600))
	w := &discovery.Watcher{Origin: origin, Node: node, CAFile: ca, TokenFile: secret, Apply: func(config []byte) (uint64, error) {
		if strings.Contains(string(config), refuses) {
			return 0, errors.New("l4:1:1: services: " + refuses)
		}
		return 1, nil
	}}
	must(t, w.Check())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	return func() { cancel(); must(t, <-done) }
}

// Two load balancers over TLS, with a token: a revision is applied when both have applied it; one that refuses it is named with the reason,
// and the older revision stays the answer until it is gone.
func TestDiscoveryWaitsForEachConnectedNode(t *testing.T) {
	cert, key := certificate(t)
	d, err := NewDiscovery(plane, DiscoveryOptions{CertFile: cert, KeyFile: key, Token: func() (string, error) { return token, nil }})
	must(t, err)
	changes := make(chan struct{}, 1)
	d.changed = func() {
		select {
		case changes <- struct{}{}:
		default:
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- d.serve(ctx, listener) }()
	expect := func(what string, nodes int, applied, refused string) {
		t.Helper()
		limit := time.After(time.Minute)
		for d.Stats().Nodes != nodes || d.Applied()[plane] != applied || d.Refused()[plane] != refused {
			select {
			case <-changes:
			case <-limit:
				t.Fatalf("%s: applied %v, refused %v, want %q and %q: %+v", what, d.Applied(), d.Refused(), applied, refused, d.server.Nodes())
			}
		}
	}
	publish := func(text string) string {
		c := operator.Config{Plane: plane, Text: []byte(text)}
		must(t, d.Publish([]operator.Config{{Plane: "other", Text: []byte("x")}, c}))
		return c.Revision()
	}
	first := publish("one")
	if d.Applied() != nil {
		t.Error("applied without a node")
	}
	endA := watch(t, listener.Addr().String(), cert, "a", "nothing")
	expect("a node", 1, first, "")
	endB := watch(t, listener.Addr().String(), cert, "b", "bad")
	expect("another node", 2, first, "")
	second := publish("two")
	expect("both nodes", 2, second, "")
	third := publish("bad")
	expect("one refuses", 2, second, "node b: l4:1:1: services: bad")
	endB()
	expect("it is gone", 1, third, "")
	endA()
	expect("both are gone", 0, "", "")
	if s := d.Stats(); s.Nodes != 0 || s.Refused != 1 || s.Rejected != 0 {
		t.Errorf("%+v", s)
	}
	cancel()
	must(t, <-served)
}

// What cannot be published or served is an error that names the file or the limit.
func TestDiscoveryErrors(t *testing.T) {
	cert, _ := certificate(t)
	_, other := certificate(t)
	for _, key := range []string{other, cert + ".none"} {
		if _, err := NewDiscovery(plane, DiscoveryOptions{CertFile: cert, KeyFile: key}); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("key %s: %v", key, err)
		}
	}
	d, err := NewDiscovery(plane, DiscoveryOptions{Listen: "127.0.0.1:99999"})
	must(t, err)
	if err := d.Publish([]operator.Config{{Plane: plane, Text: make([]byte, discovery.MaxConfig+1)}}); err == nil {
		t.Error("a configuration that is too long is published")
	}
	must(t, d.Publish([]operator.Config{{Plane: plane, Text: []byte("one")}}))
	if err := d.Run(t.Context(), func() {}); err == nil {
		t.Error("served at a port that does not exist")
	}
}
