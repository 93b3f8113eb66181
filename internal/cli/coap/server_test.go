package coap

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/cli/coap/coaptest"
	"github.com/weir-lb/weir/internal/dtls/handshake/handshaketest"
	"github.com/weir-lb/weir/internal/dtls/record"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

func TestCoapServerAdmin(t *testing.T) {
	s := coaptest.Start(t, 2, "--listen", "127.0.0.1:0", "--dtls", "127.0.0.1:0", "--node-id", "9")
	if !strings.HasPrefix(s.Uris[0], "coap://127.0.0.1:") || !strings.HasPrefix(s.Uris[1], "coaps://127.0.0.1:") {
		t.Errorf("listening on %q", s.Uris)
	}
	s.Get("/livez")
	s.Get("/readyz")
	if status := s.Get("/status"); !strings.Contains(status, s.Uris[1]) || !strings.Contains(status, `"node_id": 9`) || strings.Contains(status, "secretPSK") {
		t.Errorf("status %s", status)
	}
	if n := s.Metric("weir_coap_exchange_requests_total"); n != 0 {
		t.Errorf("%v requests before the first", n)
	}
	s.Metric("weir_coap_engine_bad_macs_total")
	s.Metric("weir_coap_engine_sessions")
	if err := s.Stop(); err != nil {
		t.Errorf("interrupted: %v", err)
	}
}

func TestCoapServerBadInput(t *testing.T) {
	file := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct {
		want string
		args []string
	}{
		{`listen[0]: "5683" is no address`, []string{"--listen", "5683"}},
		{"--dtls-cluster: cluster node 1", []string{"--dtls-cluster", "x"}},
		{"--dtls-only and --listen exclude each other", []string{"--dtls-only", "--listen", ":0"}},
		{"--no-dtls-cluster-backward: there is no cluster", []string{"--no-dtls-cluster-backward"}},
		{`--log: no format "xml"`, []string{"--log", "xml"}},
		{"node_id: 300 does not fit", []string{"--node-id", "300"}},
		{`--trusted: "10.0.0.0" is no prefix`, []string{"--trusted", "10.0.0.0"}},
		{"devices.psk:1: no identity", []string{"--check", "--psk-file", file("devices.psk", "nonsense")}},
		{"node.yaml:2:", []string{"-c", file("node.yaml", "listen: [\":0\"]\nlisten2: x\n")}},
		{"node.yaml:2:", []string{"-c", file("node.yaml", "listen: [\":0\"]\nworkers: 1000\n")}},
		{"no such file", []string{"-c", "/does/not/exist"}},
	} {
		root := clitest.Root()
		root.SetArgs(append([]string{"coap", "server"}, c.args...))
		root.SetErr(io.Discard)
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // should the input be taken, the server ends at once
		if err := root.ExecuteContext(ctx); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %s", c.args, err, c.want)
		}
	}
}

func TestCoapServerExamples(t *testing.T) {
	examples, err := filepath.Glob("../../../examples/coap/*.yaml")
	if err != nil || len(examples) == 0 {
		t.Fatal("no examples", err)
	}
	for _, example := range examples {
		root := clitest.Root()
		root.SetArgs([]string{"coap", "server", "-c", example, "--check"})
		var out strings.Builder
		root.SetOut(&out)
		if err := root.Execute(); err != nil || !strings.Contains(out.String(), "fine") {
			t.Errorf("%s: %v %s", example, err, &out)
		}
	}
}

func TestCoapServerFromFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "node.yaml")
	addresses := clitest.FreeAddresses(t, 2)
	text := fmt.Sprintf("listen: [\"127.0.0.1:0\"]\ncluster:\n  nodes:\n  - {id: 4, dtls: %q, management: %q}\nseparate_delay: 1s\n", addresses[0], addresses[1])
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := coaptest.Start(t, 2, "-c", path)
	if status := s.Get("/status"); !strings.Contains(status, addresses[1]) {
		t.Errorf("status %s", status)
	}
}

// A changed PSK file counts for the next handshake; a broken one does not, and the status says so.
func TestCoapServerReloadsKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "devices.psk")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	write("one=AAECAw==\n")
	s := coaptest.Start(t, 1, "--dtls-only", "--dtls", "127.0.0.1:0", "--psk-file", path)
	await := func(want string) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); !strings.Contains(s.Get("/status"), want); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("no %s in %s", want, s.Get("/status"))
			}
		}
	}
	await(`"identities": 1`)
	write("one=AAECAw==\ntwo=AAECBA==\n")
	await(`"identities": 2`)
	write("one=AAECAw==\nnonsense\n")
	await("devices.psk:2: no identity")
	await(`"identities": 2`)
	if n := s.Metric("weir_coap_credentials_failed"); n != 1 {
		t.Errorf("failed is %v", n)
	}
	write("three=AAECAw==\n")
	await(`"identities": 1`)
	if strings.Contains(s.Get("/status"), "no identity") {
		t.Error("the error stays after a good reload")
	}
}

// Ten thousand datagrams of noise at every port of a cluster node, half of them beginning like what the port expects: then a
// client is served as if nothing had been, and the noise was counted.
func TestCoapServerSurvivesNoise(t *testing.T) {
	netlabtest.Tools(t, "coap-client-openssl")
	addresses := clitest.FreeAddresses(t, 3)
	s := coaptest.Start(t, 2, "--listen", addresses[2], "--dtls-cluster", addresses[0]+";"+addresses[1]+";1,---;127.0.0.1:9;2")
	random, served := rand.New(rand.NewPCG(5, 6)), 0
	beginnings := [][]byte{
		{0x16, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0},
		{0x16, 0xfe, 0xff, 0, 0},
		{0x17, 0xfe, 0xfd, 0, 1},
		{0x19, 0xfe, 0xfd, 0, 1, 0, 0, 0, 0, 0, 1, 1},
		{0x19, 0xfe, 0xfd, 0, 1, 0, 0, 0, 0, 0, 1, 2},
		{0x14},
		{0x15, 0xfe, 0xfd},
		{0x1b},
		{62, 1, 1, 4, 127, 0, 0, 1},
		{63, 1, 1, 16},
		{61, 2},
		{60, 2},
		{0x41, 2, 0, 1},
	}
	for i, address := range addresses {
		conn, err := net.Dial("udp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		for j := range 10000 {
			datagram := make([]byte, random.IntN(200))
			for k := range datagram {
				datagram[k] = byte(random.Uint32())
			}
			if j%2 == 0 {
				datagram = append(bytes.Clone(beginnings[random.IntN(len(beginnings))]), datagram...)
			}
			_, _ = conn.Write(datagram) // a full queue may refuse
		}
		for range 20 { // the client asks again by itself; a queue still full may outlast one run of it
			scheme, port := "coaps://", addresses[0]
			if i == 2 {
				scheme, port = "coap://", address
			}
			output, _ := exec.Command("coap-client-openssl", "-B", "15", "-u", "Client_identity", "-k", "secretPSK", scheme+port+"/mycontext").CombinedOutput()
			if strings.Contains(string(output), "node-id: 1") || i == 2 && strings.Contains(string(output), "server: Weir") {
				served++
				break
			}
			t.Logf("%s: %s", address, output)
		}
	}
	if served != len(addresses) {
		t.Errorf("served after %d of %d floods", served, len(addresses))
	}
	if n := s.Metric("weir_coap_engine_handshakes_total"); n < 2 {
		t.Errorf("%v handshakes after the noise", n)
	} else if timed := s.Await("weir_coap_engine_handshake_duration_seconds_count", n); timed < n {
		t.Errorf("%v handshakes of %v were timed", timed, n)
	}
	if n := s.Await("weir_coap_engine_request_duration_seconds_count", -1); n < 2 {
		t.Errorf("%v requests were timed", n)
	}
	for _, name := range []string{"engine_malformed", "exchange_malformed", "cluster_strangers"} {
		if n := s.Await("weir_coap_"+name+"_total", -1); n == 0 {
			t.Errorf("%s: nothing was counted", name)
		}
	}
}

// pion/dtls, by way of `weir coap get`: a session with connection ids both ways.
func TestPionClient(t *testing.T) {
	s := coaptest.Start(t, 1, "--dtls-only", "--dtls", "127.0.0.1:0", "--node-id", "6")
	root := clitest.Root()
	var out strings.Builder
	root.SetOut(&out)
	root.SetArgs([]string{"coap", "get", s.Uris[0] + "/mycontext"})
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, want := range []string{"Status : 2.05 - CONTENT", "node-id: 6\n", "peer: cali.", "read-cid: 06"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}

// libcoap in its builds against the server: other people's CoAP and DTLS.
func TestLibcoapClients(t *testing.T) {
	clitest.TakesSeconds(t)
	netlabtest.Tools(t, "coap-client-notls", "coap-client-openssl", "coap-client-gnutls")
	s := coaptest.Start(t, 2, "--listen", "127.0.0.1:0", "--dtls", "127.0.0.1:0", "--node-id", "3")
	pages := map[string]*handshaketest.Suites{}
	for program, peer := range libcoapPeers() {
		pages[program] = handshaketest.SuitesOfPage(t, peer, "client", func(s record.Suite) bool { return s.KeyExchange() == record.PSK })
	}
	for _, c := range []struct {
		name    string
		program string
		base    string
		args    []string
		want    []string
	}{
		{"plain context", "coap-client-notls", s.Uris[0] + "/context", nil, []string{"ip: 127.0.0.1\n", "node-id: 3\n", "server: Weir"}},
		{"plain separate", "coap-client-notls", s.Uris[0] + "/separate", nil, []string{"Type: 0 (CON)"}},
		{"plain non-confirmable", "coap-client-notls", s.Uris[0] + "/separate", []string{"-N"}, []string{"Type: 1 (NON)"}},
		{"plain blocks", "coap-client-notls", s.Uris[0] + "/benchmark?rlen=3000", []string{"-m", "post"}, []string{"hello benchmark" + strings.Repeat("*", 2985)}},
		{"plain small blocks", "coap-client-notls", s.Uris[0] + "/.well-known/core", []string{"-b", "64"}, []string{"</benchmark>", "</separate>"}},
		{"plain error", "coap-client-notls", s.Uris[0] + "/benchmark?ahead=1", nil, []string{"4.02"}},
		{"OpenSSL", "coap-client-openssl", s.Uris[1] + "/mycontext", []string{"-u", "Client_identity", "-k", "secretPSK"}, []string{"peer: Client_identity\n", "cipher-suite: TLS_PSK_WITH_AES_128_"}},
		{"GnuTLS", "coap-client-gnutls", s.Uris[1] + "/mycontext", []string{"-u", "cali.libcoap", "-k", ".fornium"}, []string{"peer: cali.libcoap\n"}},
		{"GnuTLS blocks", "coap-client-gnutls", s.Uris[1] + "/benchmark?rlen=2500", []string{"-m", "post", "-u", "password", "-k", "sesame"}, []string{strings.Repeat("*", 2485)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			output, err := exec.CommandContext(ctx, c.program, append(append([]string{"-B", "30"}, c.args...), c.base)...).CombinedOutput()
			for _, want := range c.want {
				if !strings.Contains(string(output), want) {
					t.Errorf("output %q (%v) lacks %q", output, err, want)
				}
			}
			if strings.HasSuffix(c.base, "/mycontext") {
				pages[c.program].Made(fields(string(output))["cipher-suite"])
			}
		})
	}
	if n := s.Await("weir_coap_engine_handshakes_total", 3); n != 3 {
		t.Errorf("%v handshakes, want 3", n)
	}
	output, _ := exec.Command("coap-client-openssl", "-B", "10", "-u", "Client_identity", "-k", "wrong", s.Uris[1]+"/mycontext").CombinedOutput()
	if strings.Contains(string(output), "ip:") {
		t.Errorf("a wrong key was served: %s", output)
	}
}
