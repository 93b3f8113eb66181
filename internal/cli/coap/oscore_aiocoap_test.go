package coap

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/cli/coap/coaptest"
	"github.com/weir-lb/weir/internal/coap/client"
	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/coap/oscore"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// aiocoapVersion is the version of aiocoap that the tests install, with what it needs for OSCORE.
const aiocoapVersion = "aiocoap[oscore]==0.4.17"

// aiocoapOnce makes one test of a process install it.
var aiocoapOnce sync.Mutex

// aiocoap returns a Python that has aiocoap: in a virtual environment that is installed once, from PyPI. Its Python works in any folder.
func aiocoap(t testing.TB) string {
	t.Helper()
	netlabtest.Tools(t, "python3")
	aiocoapOnce.Lock()
	defer aiocoapOnce.Unlock()
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	cache = filepath.Join(cache, "weir")
	home := filepath.Join(cache, "aiocoap-0.4.17")
	python := filepath.Join(home, "bin", "python")
	if exec.Command(python, "-c", "import aiocoap.oscore").Run() == nil {
		return python
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		t.Fatal(err)
	}
	scratch, err := os.MkdirTemp(cache, "build-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(scratch)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if output, err := exec.CommandContext(ctx, "python3", "-m", "venv", scratch).CombinedOutput(); err != nil {
		t.Skipf("python3 -m venv: %v (.ci/deps test installs it)\n%s", err, output)
	}
	install := []string{"-m", "pip", "install", "-q", "--disable-pip-version-check", aiocoapVersion}
	for try := 1; ; try++ { // it downloads
		output, err := exec.CommandContext(ctx, filepath.Join(scratch, "bin", "python"), install...).CombinedOutput()
		if err == nil {
			break
		}
		if try == 3 {
			t.Fatalf("pip install %s: %v\n%s", aiocoapVersion, err, output)
		}
	}
	if err := os.Rename(scratch, home); err != nil && !os.IsExist(err) {
		if _, taken := os.Stat(home); taken != nil { // another test process may have been first
			t.Fatal(err)
		}
	}
	return python
}

// startAiocoap runs aiocoap_oscore.py with the test context until the test ends. restarted: its replay window is lost, as after a crash.
func startAiocoap(t testing.TB, role string, restarted bool, args ...string) *peer {
	t.Helper()
	python, folder := aiocoap(t), t.TempDir()
	ids := map[string][2]string{"server": {"02", "01"}, "client": {"01", "02"}}[role]
	settings := fmt.Sprintf(`{"secret_hex": "0102030405060708090a0b0c0d0e0f10", "salt_hex": "9e7ca92223786340", "id-context_hex": "37cbf3210017a2d3", "sender-id_hex": %q, "recipient-id_hex": %q}`, ids[0], ids[1])
	clitest.Must(t.(*testing.T), os.WriteFile(filepath.Join(folder, "settings.json"), []byte(settings), 0o600))
	if restarted {
		clitest.Must(t.(*testing.T), os.WriteFile(filepath.Join(folder, "sequence.json"), []byte(`{"next-to-send": 100, "received": "unknown"}`), 0o600))
	}
	process := exec.Command(python, append([]string{"testdata/peers/aiocoap_oscore.py", role, folder}, args...)...)
	process.Stderr = os.Stderr
	in, err := process.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	p := &peer{t: t, in: in, out: bufio.NewScanner(out), process: process}
	t.Cleanup(func() {
		in.Close() // ends it
		dead := time.AfterFunc(30*time.Second, func() { _ = process.Process.Kill() })
		defer dead.Stop()
		_ = process.Wait()
	})
	if line := p.line(); line != "READY" {
		t.Fatalf("aiocoap says %q", line)
	}
	return p
}

// aiocoap's client against Weir's server: requests, blocks both ways, observation, errors.
func TestOSCOREOfAiocoapClient(t *testing.T) {
	clitest.TakesSeconds(t)
	server := coaptest.Start(t, 1, "--listen", "127.0.0.1:0", "--dtls", "127.0.0.1:0", "--plugtest", "--notify-interval", "100ms")
	uri := server.Uris[0]
	peer := startAiocoap(t, "client", false, uri)
	for _, test := range [][3]string{
		{"GET " + uri + "/oscore", "2.05", "OSCORE Resource"},
		{"POST " + uri + "/oscore 5", "2.01", ""},
		{"PUT " + uri + "/large-update 3000", "2.04", ""},
		{"GET " + uri + "/large-update", "2.05", strings.Repeat("x", 3000)},
		{"DELETE " + uri + "/oscore", "2.02", ""},
		{"GET " + uri + "/nosuch", "4.04", ""},
		{"GET " + uri + "/separate", "2.05", ""},
		{"GET " + uri + "/mycontext", "2.05", "ip: 127.0.0.1"},
		{"OBSERVE " + uri + "/obs 4", "2.05", ""},
	} {
		code, payload := peer.do(test[0])
		if code != test[1] || !strings.HasPrefix(payload, test[2]) {
			t.Errorf("%s: %s %.200q, want %s %.40q", test[0], code, payload, test[1], test[2])
		}
	}
	if n := server.Await("weir_coap_oscore_requests_total", -1); n < 80 {
		t.Errorf("%v protected requests", n)
	}
}

// Weir's client against aiocoap's server, whose replay window is lost as after a crash: it asks for an Echo first (RFC 8613 Appendix B.1.2).
func TestOSCOREOfAiocoapServer(t *testing.T) {
	clitest.TakesSeconds(t)
	address := clitest.FreeAddresses(t, 1)[0]
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	for _, restarted := range []bool{false, true} {
		t.Run(fmt.Sprintf("restarted %v", restarted), func(t *testing.T) {
			startAiocoap(t, "server", restarted, host, port)
			conn, err := client.Dial(t.Context(), "coap://"+address, client.DialConfig{Protector: oscore.NewClient(testContext(t), 65536)})
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			body := []byte(strings.Repeat("0123456789abcdef", 200))
			for _, test := range []struct {
				request client.Request
				code    message.Code
				payload string
			}{
				{client.Request{Path: []string{"oscore"}}, message.Content, "OSCORE Resource"},
				{client.Request{Method: message.PUT, Path: []string{"oscore"}, Payload: body}, message.Changed, ""},
				{client.Request{Path: []string{"oscore"}, BlockSize: 256}, message.Content, string(body)},
				{client.Request{Path: []string{"nosuch"}}, message.NotFound, ""},
				{client.Request{Method: message.POST, Path: []string{"oscore"}}, message.MethodNotAllowed, ""},
			} {
				if m := do(t, conn, test.request); m.Code != test.code || !strings.HasPrefix(string(m.Payload), test.payload) {
					t.Errorf("%s %v: %s %.200q", test.request.Method.Name(), test.request.Path, m.Code, m.Payload)
				}
			}
			states := 0
			err = conn.Observe(t.Context(), client.ObserveConfig{Request: client.Request{Path: []string{"obs"}}}, func(client.Notification) bool {
				states++
				return states < 4
			})
			if err != nil || states != 4 {
				t.Errorf("%d states, %v", states, err)
			}
		})
	}
}
