package coap

import (
	"encoding/base64"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/cli/coap/coaptest"
	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/handshake/handshaketest"
)

// Nodes with one file of ticket secrets resume each other's sessions, also after a new secret was put first and the old one kept; a node
// with another file makes full handshakes, and so does every node once the old secret is gone.
func TestTicketsOfOtherNodes(t *testing.T) {
	clitest.TakesSeconds(t)
	secret := func(b byte) string {
		return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(b), 32))) + "\n"
	}
	shared, alone := filepath.Join(t.TempDir(), "shared"), filepath.Join(t.TempDir(), "alone")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	write(shared, secret('a'))
	write(alone, secret('z'))
	start := func(file string) *coaptest.Server {
		return coaptest.Start(t, 1, "--dtls-only", "--dtls", "127.0.0.1:0", "--ticket-secrets", file)
	}
	one, two, three := start(shared), start(shared), start(alone)
	// shake makes a handshake with a session of before, and returns its own.
	shake := func(s *coaptest.Server, before *handshake.Session, resumed bool) *handshake.Session {
		t.Helper()
		c, err := handshaketest.Dial(netip.MustParseAddrPort(strings.TrimPrefix(s.Uris[0], "coaps://")), handshake.ClientConfig{
			Identity: []byte("cali.tickets"), Key: []byte(".fornium"), OfferCID: true, Resumable: true, Session: before,
		}, 20*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if c.Resumed != resumed {
			t.Errorf("resumed is %t, want %t", c.Resumed, resumed)
		}
		return c.Session
	}
	reload := func(text string, generation string) {
		t.Helper()
		write(shared, text)
		for _, s := range []*coaptest.Server{one, two} {
			for end := time.Now().Add(30 * time.Second); !strings.Contains(s.Get("/status"), `"generation": `+generation); time.Sleep(20 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("no generation %s in %s", generation, s.Get("/status"))
				}
			}
		}
	}
	session := shake(one, nil, false)
	shake(two, session, true)
	shake(three, session, false)
	reload(secret('b')+secret('a'), "2")
	shake(two, session, true)
	sealedByB := shake(one, nil, false)
	reload(secret('b'), "3")
	shake(two, session, false)
	shake(two, sealedByB, true)
}
