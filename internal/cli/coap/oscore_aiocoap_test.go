package coap

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/cli/coap/coaptest"
	"github.com/weir-lb/weir/internal/coap/client"
	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/coap/oscore"
)

// startOSCOREPeer runs aiocoap_oscore.py with the test context until the test ends. restarted: its replay window is lost, as after a crash.
func startOSCOREPeer(t testing.TB, role string, restarted bool, args ...string) *peer {
	t.Helper()
	folder := t.TempDir()
	ids := map[string][2]string{"server": {"02", "01"}, "client": {"01", "02"}}[role]
	settings := fmt.Sprintf(`{"secret_hex": "0102030405060708090a0b0c0d0e0f10", "salt_hex": "9e7ca92223786340", "id-context_hex": "37cbf3210017a2d3", "sender-id_hex": %q, "recipient-id_hex": %q}`, ids[0], ids[1])
	clitest.Must(t.(*testing.T), os.WriteFile(filepath.Join(folder, "settings.json"), []byte(settings), 0o600))
	if restarted {
		clitest.Must(t.(*testing.T), os.WriteFile(filepath.Join(folder, "sequence.json"), []byte(`{"next-to-send": 100, "received": "unknown"}`), 0o600))
	}
	return startPython(t, "aiocoap_oscore.py", append([]string{role, folder}, args...)...)
}

// aiocoap's client against Weir's server: requests, blocks both ways, observation, errors.
func TestOSCOREOfAiocoapClient(t *testing.T) {
	clitest.TakesSeconds(t)
	server := coaptest.Start(t, 1, "--listen", "127.0.0.1:0", "--dtls", "127.0.0.1:0", "--plugtest", "--notify-interval", "100ms")
	uri := server.Uris[0]
	peer := startOSCOREPeer(t, "client", false, uri)
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
			startOSCOREPeer(t, "server", restarted, host, port)
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
