package coap

import (
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/coap/node"
	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/handshake/handshaketest"
	"github.com/weir-lb/weir/internal/dtls/record"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// Californium's clients, of both versions, with certificates, raw public keys and ephemeral keys, with and without connection ids; each session is
// resumed by its id once.
func TestCaliforniumCertificates(t *testing.T) {
	clitest.TakesSeconds(t)
	a := handshaketest.NewAuthority(t, "test")
	own := a.Issue(t, "P-256", "server.test", func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)} })
	device := a.Issue(t, "P-256", "device", nil)
	chain, key := device.Files(t)
	pem := filepath.Join(t.TempDir(), "device.pem")
	var both []byte
	for _, file := range []string{key, chain} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		both = append(both, b...)
	}
	if err := os.WriteFile(pem, both, 0o600); err != nil {
		t.Fatal(err)
	}
	resumption, err := handshake.NewResumption(handshake.ResumptionConfig{})
	if err != nil {
		t.Fatal(err)
	}
	id := uint32(5)
	n, err := node.Open(node.Config{
		DTLS: []string{"127.0.0.1:0"}, NodeID: &id, ClientAuth: handshake.ClientAuthNeeded, Resumption: resumption, Log: slog.New(slog.DiscardHandler),
		Credentials: handshaketest.Store(handshake.Credentials{
			Certificates: []*handshake.Certificate{own.Certificate}, Roots: a.Roots, RawKey: func([]byte) bool { return true },
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	netlabtest.Run(t, n.Run)
	base := "coaps://" + n.Addresses()[0].Addr.String()
	handshakes, resumed := uint64(0), uint64(0)
	clients := map[int]*peer{}
	for major := 3; major <= 4; major++ {
		clients[major] = startJava(t, major, "weir.Client", "0", "cali.ephemeral", ".fornium", "TLS_PSK_WITH_AES_128_CCM_8")
	}
	pages := map[int]*handshaketest.Suites{
		3: handshaketest.SuitesOfPage(t, "Californium 3", "client", func(s record.Suite) bool { return s.KeyExchange() != record.PSK }),
		4: handshaketest.SuitesOfPage(t, "Californium 4", "client", nil),
	}
	for _, test := range []struct {
		major     int // version of Californium
		suite     string
		cidLength int
		mode      string
		peer      string
	}{
		{3, "TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8", 4, "X509", "CN=device"},
		{3, "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", -1, "X509", "CN=device"},
		{3, "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", 0, "X509", "CN=device"},
		{3, "TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8", 0, "RPK", "ni:///sha-256;"},
		{3, "TLS_ECDHE_PSK_WITH_AES_128_CCM_8_SHA256", 4, "", "cali.ephemeral"},
		{3, "TLS_ECDHE_PSK_WITH_AES_128_GCM_SHA256", -1, "", "cali.ephemeral"},
		{3, "TLS_ECDHE_PSK_WITH_AES_128_CCM_SHA256", 0, "", "cali.ephemeral"},
		{3, "TLS_ECDHE_PSK_WITH_AES_256_GCM_SHA384", 0, "", "cali.ephemeral"},
		{4, "TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8", 4, "X509", "CN=device"},
		{4, "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", 0, "RPK", "ni:///sha-256;"},
		{4, "TLS_ECDHE_PSK_WITH_AES_128_CCM_8_SHA256", 0, "", "cali.ephemeral"},
		{4, "TLS_PSK_WITH_AES_128_CCM_8", 6, "", "cali.ephemeral"},
	} {
		t.Run(fmt.Sprintf("%d/%s/cid%d%s", test.major, test.suite, test.cidLength, test.mode), func(t *testing.T) {
			args := []string{fmt.Sprint(test.cidLength), "cali.ephemeral", ".fornium", strings.Replace(test.suite, "PSK_WITH_AES_256_GCM_SHA384", "PSK_WITH_AES_256_GCM_SHA378", 1)} // as Californium calls it
			if test.mode != "" {
				args = append(args, test.mode, pem, a.File(t))
			}
			client := clients[test.major]
			client.session(t, args...)
			for i := range uint64(2) {
				code, payload := client.do("GET " + base + "/mycontext")
				seen := fields(payload)
				if code != "2.05" || !strings.HasPrefix(seen["peer"], test.peer) || seen["cipher-suite"] != test.suite {
					t.Fatalf("%s\n%s", code, payload)
				}
				pages[test.major].Made(seen["cipher-suite"])
				if len(seen["write-cid"]) != 2*max(test.cidLength, 0) {
					t.Errorf("write-cid %q", seen["write-cid"])
				}
				handshakes, resumed = handshakes+1, resumed+i
				if s := n.Status().Listeners[0].Engine; s.Handshakes != handshakes || s.Resumed != resumed {
					t.Errorf("%d handshakes, %d of them resumed: want %d and %d", s.Handshakes, s.Resumed, handshakes, resumed)
				}
				fmt.Fprintln(client.in, "RESUME")
			}
		})
	}
}
