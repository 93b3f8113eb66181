package coap

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/cli/coap/coaptest"
	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/coap/stream"
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
			{"many clients", "/benchmark?rlen=40", []string{"--clients", "150", "--requests", "2"}, func(s *v1.CoAPBenchStats) bool { return s.Requests == 300 && s.Handshakes == 150 }},
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

// The rounds of bench-all over TCP and TLS, on the ports of Weir's server.
func TestBenchAllOverTCP(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "certs")
	if out, code := clitest.Weir(t, "coap", "certs", dir); code != 0 {
		t.Fatal(out)
	}
	s := coaptest.Start(t, 3, "--dtls", "127.0.0.1:0", "--listen-tcp", "127.0.0.1:0", "--listen-tls", "127.0.0.1:0", "--workers", "1", "--notify-interval", "100ms",
		"--certificate", filepath.Join(dir, "server.pem"), "--private-key", filepath.Join(dir, "server-key.pem"))
	port := func(uri string) string { return uri[strings.LastIndex(uri, ":")+1:] }
	args := []string{
		"coap", "bench-all", "127.0.0.1", "--udp=false", "--plain-port", port(s.Uris[1]), "--secure-port", port(s.Uris[2]), "--tcp-clients", "4", "--observe-clients", "2",
		"--requests", "5", "--requests-large", "2", "--handshakes", "3", "--reverse-notifies", "10", "--notifies", "2", "--quiet", "--json", "--allow-errors",
	}
	for trust, want := range map[string][]string{
		"":              {"coap+tcp con", "coap+tcp separate", "coap+tcp blocks", "coap+tcp observe", "coap+tcp reverse-request", "coap+tcp reverse-observe"},
		"--secure":      {"coap+tcp con", "coap+tcp separate", "coap+tcp blocks", "coap+tcp observe", "coap+tcp reverse-request", "coap+tcp reverse-observe"},
		"--plain=false": {"coaps+tcp con", "coaps+tcp separate", "coaps+tcp blocks", "coaps+tcp observe", "coaps+tcp reverse-request", "coaps+tcp reverse-observe", "coaps+tcp handshakes"},
	} {
		all := append(args, "--tests", "con,separate,non,blocks,observe,reverse-request,reverse-observe,handshakes")
		if trust != "" {
			all = append(all, trust)
		}
		if trust == "--plain=false" {
			all = append(all, "--trust", filepath.Join(dir, "trust-server.pem"))
		}
		out, text, err := clitest.Both(t, all...)
		var runs []v1.CoAPBenchRun
		if err != nil || json.Unmarshal([]byte(out), &runs) != nil {
			t.Fatalf("%v\n%s\n%s", err, out, text)
		}
		var names []string
		for _, r := range runs {
			names = append(names, r.Test)
			requests := map[string]uint64{"blocks": 8, "observe": 4, "reverse-request": 20, "reverse-observe": 20, "handshakes": 12}[r.Test[strings.Index(r.Test, " ")+1:]]
			if requests == 0 {
				requests = 20
			}
			if r.Error != "" || r.Bench == nil || r.Bench.Stats.Requests < requests {
				t.Errorf("%s: %s, want %d requests: %+v", r.Test, r.Error, requests, r.Bench)
			}
		}
		if !slices.Equal(names, want) {
			t.Errorf("%q: %q", trust, names)
		}
	}
}

// Each variable of Californium's benchmark.sh has its flag, or the documentation says what to do instead.
func TestBenchmarkVariables(t *testing.T) {
	page, err := os.ReadFile("../../../docs/coap-bench.md")
	clitest.Must(t, err)
	for _, variable := range strings.Fields(`USE_TCP USE_UDP USE_PLAIN USE_SECURE USE_CON USE_NON USE_LARGE_BLOCK1 USE_REQUEST USE_OBSERVE USE_REVERSE
		USE_REVERSE_OBSERVE USE_HANDSHAKES USE_PROXY USE_HTTP USE_NONESTOP USE_NSTART REQS NOTIFIES REV_NOTIFIES PAYLOAD PAYLOAD_MEDIUM PAYLOAD_LARGE
		REQS_LARGE UDP_CLIENTS TCP_CLIENTS OBS_CLIENTS PLAIN_PORT SECURE_PORT RESOURCE_PATH CALI_AUTH CALIFORNIUM_STATISTIC`) {
		if !strings.Contains(string(page), "`"+variable+"`") {
			t.Errorf("docs/coap-bench.md does not say what became of %s", variable)
		}
	}
	help, _ := clitest.Weir(t, "coap", "bench-all", "--help")
	for _, row := range regexp.MustCompile("(?m)^\\| (`--[^|]*) \\|").FindAllStringSubmatch(string(page), -1) {
		if !strings.Contains(string(page[:strings.Index(string(page), row[0])]), "## bench-all") || strings.Contains(string(page[:strings.Index(string(page), row[0])]), "## receive") {
			continue
		}
		for _, flag := range regexp.MustCompile("`(--[a-z-]+)`").FindAllStringSubmatch(row[1], -1) {
			if !strings.Contains(help, flag[1]+" ") {
				t.Errorf("bench-all has no %s", flag[1])
			}
		}
	}
}

// Clients that could not connect are an error, though no request was lost.
func TestBenchFailsWithoutConnections(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	clitest.Must(t, err)
	defer listener.Close()
	go func() {
		for n := 0; ; n++ {
			raw, err := listener.Accept()
			if err != nil {
				return
			}
			if n >= 3 {
				_ = raw.Close()
				continue
			}
			go answerAll(raw)
		}
	}()
	uri := "coap+tcp://" + listener.Addr().String()
	out, code := clitest.Weir(t, "coap", "bench", uri, "--clients", "10", "--requests", "5", "--quiet")
	if code != 1 || !strings.Contains(out, "15 requests in ") || !strings.Contains(out, "7 handshakes failed") {
		t.Errorf("%d\n%s", code, out)
	}
	if out, code := clitest.Weir(t, "coap", "bench", uri, "--clients", "1", "--requests", "5", "--quiet"); code != 1 || !strings.Contains(out, "first request to "+uri) {
		t.Errorf("%d\n%s", code, out)
	}
}

// answerAll answers each request with 2.04.
func answerAll(raw net.Conn) {
	conn, err := stream.NewConn(raw, stream.Settings{})
	if err != nil {
		return
	}
	defer conn.Close()
	var m message.Message
	for conn.Receive(&m) == nil {
		var b message.Builder
		b.Reset(make([]byte, 0, 64), message.Non, message.Changed, 0, m.Token)
		if datagram, err := b.Bytes(); err != nil || conn.Send(datagram) != nil {
			return
		}
	}
}
