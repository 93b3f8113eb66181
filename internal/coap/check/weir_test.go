package check_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"flag"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/coap/check"
	"github.com/weir-lb/weir/internal/coap/client"
	"github.com/weir-lb/weir/internal/coap/node"
	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// serve runs a server until the test ends, and returns its URIs.
func serve(t testing.TB, cfg node.Config) []string {
	t.Helper()
	var uris []string
	for _, a := range open(t, cfg).Addresses() {
		uris = append(uris, a.URI)
	}
	return uris
}

// open runs a server until the test ends.
func open(t testing.TB, cfg node.Config) *node.Node {
	t.Helper()
	cfg.Version = "test"
	n, err := node.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	netlabtest.Run(t, n.Run)
	return n
}

// plugtest is a server with the plugtest profile that changes its resources often.
func plugtest() node.Config {
	const any = "127.0.0.1:0"
	return node.Config{
		Listen: []string{any}, DTLS: []string{any}, TCP: []string{any}, TLS: []string{any}, Workers: 1, Plugtest: true,
		NotifyInterval: 300 * time.Millisecond, SeparateDelay: 200 * time.Millisecond,
	}
}

// newKey makes a raw public key, and its SubjectPublicKeyInfo.
func newKey(t testing.TB) (*handshake.Certificate, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c, err := handshake.NewCertificate(nil, key)
	if err != nil {
		t.Fatal(err)
	}
	spki, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return c, spki
}

// rawKeyServer is a plugtest server that demands the raw public key of a client that it knows.
func rawKeyServer(t testing.TB, trustAll bool) (node.Config, client.Security) {
	t.Helper()
	cfg := plugtest()
	cfg.TCP, cfg.TLS, cfg.Listen = nil, nil, nil
	server, serverKey := newKey(t)
	device, deviceKey := newKey(t)
	cfg.ClientAuth = handshake.ClientAuthNeeded
	cfg.Credentials = new(atomic.Pointer[handshake.Credentials])
	cfg.Credentials.Store(&handshake.Credentials{Certificates: []*handshake.Certificate{server}, TrustAll: trustAll, RawKey: func(b []byte) bool { return string(b) == string(deviceKey) }})
	return cfg, client.Security{Credentials: &handshake.Credentials{
		Certificates: []*handshake.Certificate{device}, RawKey: func(b []byte) bool { return string(b) == string(serverKey) },
	}}
}

// run runs the checker and shows what did not pass.
func run(t testing.TB, cfg check.Config) *v1.CoAPCheck {
	t.Helper()
	out, err := check.Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range out.Cases {
		if c.Verdict != check.Pass {
			t.Logf("%s %s %s: %s\n%s", cfg.URI, c.ID, c.Verdict, c.Reason, strings.Join(c.Trace[max(0, len(c.Trace)-12):], "\n"))
		}
	}
	return out
}

// TestMain lets far more tests go on at a time than there are processors: each waits for what a server does next.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "40"); err != nil {
		panic(err)
	}
	m.Run()
}

// switchedOff waits for the end of all retransmissions.
const switchedOff = "TD_COAP_OBS_05"

// Weir's own plugtest server passes every case that its transport has.
func TestWeirPasses(t *testing.T) {
	clitest.TakesSeconds(t)
	var quick []string
	for _, c := range check.Cases() {
		if c.ID != switchedOff {
			quick = append(quick, c.ID)
		}
	}
	for _, test := range []struct {
		name, scheme string
		only         []string
		inconclusive []string
	}{
		{"client off", "coap", []string{switchedOff}, nil},
		{"UDP", "coap", quick, []string{"TD_COAP_DTLS_"}},
		{"DTLS", "coaps", quick, []string{"TD_COAP_DTLS_06"}}, // the server demands no key
		{"TCP", "coap+tcp", quick, withoutDatagrams},
		{"TLS", "coaps+tcp", []string{"CORE", "LINK", "BLOCK"}, withoutDatagrams},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := plugtest()
			if test.only[0] == switchedOff {
				server.AckTimeout = 500 * time.Millisecond
			}
			uris := serve(t, server) // of its own: the cases change what it has
			i := slices.IndexFunc(uris, func(u string) bool { return strings.HasPrefix(u, test.scheme+"://") })
			security := client.Security{}
			if test.scheme == "coaps+tcp" {
				security.Credentials = &handshake.Credentials{TrustAll: true}
			}
			out := run(t, check.Config{URI: uris[i], Only: test.only, Security: security})
			if len(out.Cases) == 0 {
				t.Error("no case has run")
			}
			for _, c := range out.Cases {
				want := check.Pass
				if slices.ContainsFunc(test.inconclusive, func(id string) bool { return strings.HasPrefix(c.ID, id) }) {
					want = check.Inconclusive
				}
				if c.Verdict != want {
					t.Errorf("%s: %s, want %s", c.ID, c.Verdict, want)
				}
			}
		})
	}
}

// withoutDatagrams are the cases that TCP and TLS do not have, and those for which messages over them are too long to be in blocks.
var withoutDatagrams = []string{
	"TD_COAP_DTLS_", "TD_COAP_CORE_05", "TD_COAP_CORE_06", "TD_COAP_CORE_07", "TD_COAP_CORE_08", "TD_COAP_CORE_09", "TD_COAP_CORE_11",
	"TD_COAP_CORE_15", "TD_COAP_CORE_16", "TD_COAP_CORE_17", "TD_COAP_OBS_02", "TD_COAP_OBS_05", "TD_COAP_OBS_06", "TD_COAP_OBS_11",
	"TD_COAP_BLOCK_02", "TD_COAP_BLOCK_05", "TD_COAP_OBS_13", "TD_COAP_OBS_14",
}

// A server with raw public keys passes the cases that are about them.
func TestWeirPassesRawKeys(t *testing.T) {
	clitest.TakesSeconds(t)
	cfg, own := rawKeyServer(t, false)
	out := run(t, check.Config{URI: serve(t, cfg)[0], Security: own, Known: true, Only: []string{"DTLS"}})
	if out.Failed != 0 || out.Inconclusive != 0 || out.Passed != 7 {
		t.Errorf("%d passed, %d failed, %d inconclusive", out.Passed, out.Failed, out.Inconclusive)
	}
}
