package handshake_test

import (
	"bytes"
	"testing"

	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/record"
)

// Both sides derive the same two further keys, of the length of the suite's, and none unless they are wanted.
func TestMACKeys(t *testing.T) {
	for _, suite := range []record.Suite{record.PSKWithAES128CCM8, record.PSKWithAES256GCMSHA384, record.ECDHEPSKWithAES128GCMSHA256} {
		for _, wanted := range []bool{true, false} {
			common := handshake.Config{Suites: []record.Suite{suite}, MACKeys: wanted}
			s := serverWith(t, []byte{1, 2}, handshake.ServerConfig{Config: common, PSK: func([]byte) ([]byte, bool) { return []byte("key"), true }})
			c, err := handshake.NewClient(handshake.ClientConfig{Config: common, Identity: []byte("node"), Key: []byte("key")})
			if err != nil {
				t.Fatal(err)
			}
			run(t, c, s, func(_ bool, d []byte) [][]byte { return [][]byte{d} })
			if done, err := c.Done(); !done || err != nil || s.result == nil {
				t.Fatalf("%s: done %t, %v", suite, done, err)
			}
			r := c.Result()
			if !bytes.Equal(r.ClientMAC, s.result.ClientMAC) || !bytes.Equal(r.ServerMAC, s.result.ServerMAC) {
				t.Errorf("%s: the sides have different keys", suite)
			}
			if n := suite.KeyLength(); wanted && (len(r.ClientMAC) != n || len(r.ServerMAC) != n || bytes.Equal(r.ClientMAC, r.ServerMAC)) ||
				!wanted && (r.ClientMAC != nil || r.ServerMAC != nil) {
				t.Errorf("%s, wanted %t: %x and %x", suite, wanted, r.ClientMAC, r.ServerMAC)
			}
		}
	}
}
