package engine_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/dtls/engine"
	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/handshake/handshaketest"
	"github.com/weir-lb/weir/internal/dtls/record"
)

var pskClient = handshake.ClientConfig{Identity: []byte("cali.own"), Key: []byte(".fornium"), OfferCID: true}

// A client that requests new keys is refused, in time, and its session goes on.
func TestRenegotiationIsRefused(t *testing.T) {
	e, _ := serve(t, engine.Config{Workers: 1, CIDs: engine.ByteOwnerCIDs(6, 1)})
	c := dialOwn(t, e, pskClient)
	answered(t, c, "before")
	hello := append([]byte{1, 0, 0, 41, 0, 0, 0, 0, 0, 0, 0, 41, 0xfe, 0xfd}, make([]byte, 39)...)
	refused := false
	for begin := time.Now(); !refused && time.Since(begin) < limit; { // the first ones come too soon after the handshake
		for range 5 {
			if err := c.Handshake(hello); err != nil {
				t.Fatal(err)
			}
		}
		b, typ, err := c.Read(300 * time.Millisecond)
		if refused = err == nil; refused && (typ != record.Alert || !bytes.Equal(b, []byte{1, 100})) {
			t.Fatalf("type %d, %x", typ, b)
		}
	}
	if !refused {
		t.Fatal("no alert")
	}
	answered(t, c, "after")
	stats(t, e, "few alerts", func(s engine.Stats) bool { return s.Renegotiations >= 1 && s.Renegotiations < 5 && s.Sessions == 1 })
}

// What a client says about the length of its records holds for ours.
func TestRecordLimits(t *testing.T) {
	a, cfg := certified(t, "P-256", handshake.ClientAuthWanted)
	h := new(echo)
	cfg.NewHandler = func(*engine.Worker) engine.Handler { return h }
	e, _ := serve(t, cfg)
	device := a.Issue(t, "P-256", "device", nil)
	own := handshaketest.Store(handshake.Credentials{Certificates: []*handshake.Certificate{device.Certificate}, Roots: a.Roots})
	for _, test := range []struct {
		name       string
		cid        bool
		limit, max int
		payload    int // that still fits
	}{
		{"none", true, 0, 0, 8000},
		{"limit", false, 300, 0, 300},
		{"limit with a connection id", true, 300, 0, 299},
		{"fragment length", false, 0, 512, 512},
		{"the limit goes first", false, 300, 512, 300},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := handshake.ClientConfig{
				Config: handshake.Config{Credentials: own}, RecordSizeLimit: test.limit, MaxFragmentLength: test.max,
			}
			if test.cid {
				cfg.OfferCID, cfg.CID = true, []byte{1, 2}
			}
			c := dialOwn(t, e, cfg)
			answered(t, c, strings.Repeat("x", test.payload))
			if test.limit == 0 && test.max == 0 {
				return
			}
			before := e.Stats().SendErrors
			// We may send what the server must not answer.
			c.Association.LimitPlaintext(record.MaxPlaintext)
			if err := c.Write(bytes.Repeat([]byte("x"), test.payload+1)); err != nil {
				t.Fatal(err)
			}
			stats(t, e, "the answer is not sent", func(s engine.Stats) bool { return s.SendErrors == before+1 })
			c.Association.LimitPlaintext(test.payload + 1)
			answered(t, c, "still there")
		})
	}
}

// A hello that comes in several datagrams is served, with one cookie. Its later parts without the cookie are ignored.
func TestFragmentedHello(t *testing.T) {
	a, cfg := certified(t, "P-256", handshake.ClientAuthNone)
	e, _ := serve(t, cfg)
	client := handshake.ClientConfig{
		Config:     handshake.Config{MTU: 128, Credentials: handshaketest.Store(handshake.Credentials{Roots: a.Roots})},
		ServerName: "server.test",
	}
	answered(t, dialOwn(t, e, client), "hello")
	stats(t, e, "one cookie", func(s engine.Stats) bool {
		return s.Handshakes == 1 && s.HelloVerifies == 1 && s.HellosIgnored >= 1 && s.HalfOpen == 0
	})
}

// A wrong key is refused with ECDHE_PSK as with PSK.
func TestWrongKeyWithECDHE(t *testing.T) {
	var alert handshake.AlertError
	e, _ := serve(t, engine.Config{Workers: 1})
	cfg := pskClient
	cfg.Suites = []record.Suite{record.ECDHEPSKWithAES256GCMSHA384}
	cfg.Key = []byte("wrong")
	if _, err := handshaketest.Dial(e.Addr(), cfg, limit); !errors.As(err, &alert) || alert != 51 {
		t.Errorf("a wrong key with ECDHE_PSK: %v", err)
	}
}
