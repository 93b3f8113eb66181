package node_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/coap/node"
	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/handshake/handshaketest"
)

// A node serves clients with certificates, and /context shows the client.
func TestCertificates(t *testing.T) {
	a := handshaketest.NewAuthority(t, "test")
	own, device := a.Issue(t, "P-256", "server.test", nil), a.Issue(t, "P-256", "device", nil)
	n := serve(t, node.Config{
		DTLS: []string{"127.0.0.1:0"}, ClientAuth: handshake.ClientAuthNeeded,
		Credentials: handshaketest.Store(handshake.Credentials{Certificates: []*handshake.Certificate{own.Certificate}, Roots: a.Roots}),
	})
	c, err := handshaketest.Dial(n.Addresses()[0].Addr, handshake.ClientConfig{
		Config: handshake.Config{Credentials: handshaketest.Store(handshake.Credentials{
			Certificates: []*handshake.Certificate{device.Certificate}, Roots: a.Roots,
		})},
		ServerName: "server.test", OfferCID: true,
	}, 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	get := append([]byte{0x40, 1, 0x12, 0x34, 0xb7}, "context"...) // CON GET /context
	for range 4 {
		if err := c.Write(get); err != nil {
			t.Fatal(err)
		}
		b, _, err := c.Read(5 * time.Second)
		if err != nil {
			continue
		}
		if !bytes.HasPrefix(b, []byte{0x60, 0x45, 0x12, 0x34}) || !strings.Contains(string(b), "CN=device") {
			t.Fatalf("%q", b)
		}
		return
	}
	t.Fatal("no answer")
}
