package coap

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/cli/coap/coaptest"
)

// Weir's server takes and gives several blocks in a message over TCP (RFC 8323 section 6), as `weir coap` asks it to.
func TestCoapBlocksOverTCP(t *testing.T) {
	s := coaptest.Start(t, 2, "--dtls", "127.0.0.1:0", "--listen-tcp", "127.0.0.1:0", "--plugtest")
	uri := s.Uris[1]
	body := strings.Repeat("weir", 2000)
	file, copied := filepath.Join(t.TempDir(), "body"), filepath.Join(t.TempDir(), "copy")
	clitest.Must(t, os.WriteFile(file, []byte(body), 0o600))
	for _, size := range []string{"1024", "3072", "7168"} {
		if _, code := clitest.Weir(t, "coap", "put", uri+"/large-update", "--file", file, "--content-format", "text", "--block-size", size); code != 0 {
			t.Fatalf("put: %d", code)
		}
		out, code := clitest.Weir(t, "coap", "get", uri+"/large-update", "--block-size", size, "--output", copied)
		got, err := os.ReadFile(copied)
		if code != 0 || err != nil || string(got) != body {
			t.Errorf("size %s: %d, %v, %d bytes\n%s", size, code, err, len(got), out)
		}
	}
	if out, code := clitest.Weir(t, "coap", "get", "coap://127.0.0.1/x", "--block-size", "2048"); code != 2 || !strings.Contains(out, "write coap+tcp://") {
		t.Errorf("%d %s", code, out)
	}
}

// Every mode of a load over TCP and TLS, against Weir's own server.
func TestBenchOverTCP(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "certs")
	if out, code := clitest.Weir(t, "coap", "certs", dir); code != 0 {
		t.Fatal(out)
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	s := coaptest.Start(t, 3, "--dtls", "127.0.0.1:0", "--listen-tcp", "127.0.0.1:0", "--listen-tls", "127.0.0.1:0", "--workers", "2",
		"--certificate", file("server.pem"), "--private-key", file("server-key.pem"))
	for _, uri := range s.Uris[1:] {
		var trust []string
		if strings.HasPrefix(uri, "coaps") {
			trust = []string{"--trust", file("trust-server.pem")}
		}
		for _, test := range []struct {
			name, path string
			args       []string
			check      func(s *v1.CoAPBenchStats) bool
		}{
			{"requests", "/benchmark?rlen=40", nil, func(s *v1.CoAPBenchStats) bool { return s.Requests == 400 && s.Handshakes == 20 }},
			{"separate", "/benchmark?rlen=40&ack", nil, func(s *v1.CoAPBenchStats) bool { return s.Requests == 400 }},
			{"long", "/benchmark?rlen=8000", []string{"--payload-size", "8000"}, func(s *v1.CoAPBenchStats) bool { return s.Requests == 400 && s.FirstBlocks == 0 }},
			{"blocks", "/benchmark?rlen=5000", []string{"--payload-size", "5000", "--block-size", "512"}, func(s *v1.CoAPBenchStats) bool { return s.Requests == 400 && s.Blocks >= 400*9 }},
			{"BERT", "/benchmark?rlen=5000", []string{"--payload-size", "5000", "--block-size", "2048"}, func(s *v1.CoAPBenchStats) bool { return s.Requests == 400 && s.Blocks >= 400*2 && s.Blocks < 400*9 }},
			{"reverse requests", "/reverse-request?req=10&res=feed-CON", []string{"--mode", "reverse-request"}, func(s *v1.CoAPBenchStats) bool { return s.Served >= 400 }},
			{"reverse observation", "/reverse-observe?obs=10&res=feed-CON", []string{"--mode", "reverse-observe"}, func(s *v1.CoAPBenchStats) bool { return s.Served >= 400 }},
			{"handshakes", "/benchmark?rlen=40", []string{"--handshake-every", "5"}, func(s *v1.CoAPBenchStats) bool { return s.Requests == 400 && s.Handshakes == 80 && s.Resumed == 0 }},
		} {
			handshakes := strings.Contains(strings.Join(test.args, " "), "--handshake-every")
			if handshakes && trust == nil {
				continue
			}
			t.Run(uri[:strings.Index(uri, ":")]+"/"+test.name, func(t *testing.T) {
				args := append([]string{"coap", "bench", uri + test.path, "--clients", "20", "--requests", "20", "--json", "--quiet"}, trust...)
				out, text, err := clitest.Both(t, append(args, test.args...)...)
				var result v1.CoAPBench
				if err != nil || json.Unmarshal([]byte(out), &result) != nil || !test.check(&result.Stats) {
					t.Errorf("%v\n%s\n%s", err, out, text)
				}
				if s := &result.Stats; s.Lost+s.Failed+s.Errors+s.Retransmissions+s.LostSessions+s.HandshakeErrors > 0 {
					t.Errorf("%+v", s)
				}
			})
		}
	}
}
