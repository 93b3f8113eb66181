package coap

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/coap/client"
	"github.com/weir-lb/weir/internal/coap/message"
)

// peersHome is the folder in which testdata/peers/install has put the Python peers and the one on tinydtls.
func peersHome(t testing.TB) string {
	t.Helper()
	sum := sha256.New()
	for _, name := range []string{"install", "requirements.txt", "tinydtls_peer.c"} {
		text, err := os.ReadFile(filepath.Join("testdata/peers", name))
		if err != nil {
			t.Fatal(err)
		}
		sum.Write(text)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(cache, "weir", fmt.Sprintf("peers-%x", sum.Sum(nil)[:8]))
	if _, err := os.Stat(filepath.Join(home, "ready")); err != nil {
		if os.Getenv("WEIR_ROOT") == "1" {
			t.Fatalf("%v: run .ci/deps test", err)
		}
		t.Skip("the peers are not installed: run .ci/deps test")
	}
	return home
}

// startPython runs a script of testdata/peers until the test ends.
func startPython(t testing.TB, script string, args ...string) *peer {
	t.Helper()
	p := runPeer(t, exec.Command(filepath.Join(peersHome(t), "bin", "python"), append([]string{filepath.Join("testdata/peers", script)}, args...)...))
	p.ready()
	return p
}

// serverAddress is an address of loopback for another program's server, and its two parts.
func serverAddress(t *testing.T) (address, host, port string) {
	t.Helper()
	address = clitest.FreeAddresses(t, 1)[0]
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return address, host, port
}

// after is the URI of the port behind that of an address.
func after(t *testing.T, scheme, address string) string {
	t.Helper()
	a, err := netip.ParseAddrPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return scheme + netip.AddrPortFrom(a.Addr(), a.Port()+1).String()
}

// secretFile is a PSK file with one identity.
func secretFile(t *testing.T, identity, secret string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "psk")
	if err := os.WriteFile(path, fmt.Appendf(nil, "%s=:0x%s\n", identity, hex.EncodeToString([]byte(secret))), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// connect opens a connection of Weir's client until the test ends.
func connect(t *testing.T, uri string, security client.Security) *client.Conn {
	t.Helper()
	conn, err := client.Dial(t.Context(), uri, client.DialConfig{Security: security, Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// exchange sends a request and expects a code.
func exchange(t *testing.T, conn *client.Conn, r client.Request, want message.Code) []byte {
	t.Helper()
	x, err := conn.Do(t.Context(), &r)
	var m message.Message
	if err != nil || message.Parse(x.Response, &m) != nil || m.Code != want {
		t.Fatalf("%s: %s %q, %v", r.Path, m.Code, m.Payload, err)
	}
	return bytes.Clone(m.Payload)
}

// get is the datagram of a GET, with the path's segments.
func get(t *testing.T, id uint16, path ...string) string {
	t.Helper()
	var b message.Builder
	b.Reset(make([]byte, 0, 64), message.Con, message.GET, id, []byte{byte(id)})
	for _, segment := range path {
		b.Text(message.URIPath, segment)
	}
	datagram, err := b.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(datagram)
}

// datagram sends a request through a peer that carries datagrams in hex, and returns the response's payload.
func (c *peer) datagram(id uint16, path ...string) string {
	c.t.Helper()
	if _, err := fmt.Fprintln(c.in, get(c.t.(*testing.T), id, path...)); err != nil {
		c.t.Fatal(err)
	}
	raw, err := hex.DecodeString(c.line())
	var m message.Message
	if err != nil || message.Parse(raw, &m) != nil || m.ID != id || m.Code != message.Content {
		c.t.Fatalf("%x, %v", raw, err)
	}
	return string(m.Payload)
}

// What other people's clients do with every resource that the plugtest server has for them, over each transport.
func wantAnswers(t *testing.T, client *peer, base string) {
	t.Helper()
	for _, c := range []struct{ request, want string }{
		{"GET " + base + "/test", "2.05 "},
		{"GET " + base + "/nothing", "4.04 "},
		{"GET " + base + "/separate", "2.05 "},
		{"GET " + base + "/large", "2.05 " + strings.Repeat("?", 1000)},
		{"PUT " + base + "/large-update 3000", "2.04 "},
		{"GET " + base + "/large-update", "2.05 " + strings.Repeat("x", 3000)},
		{"POST " + base + "/large-post 700", "2.04 "},
		{"GET " + base + "/.well-known/core", "2.05 </"},
		{"DELETE " + base + "/test", "2.02 "},
		{"OBSERVE " + base + "/obs 3", "2.05 3 states"},
	} {
		code, payload := client.do(c.request)
		wantCode, text, _ := strings.Cut(c.want, " ")
		long := strings.HasPrefix(text, "?") && len(payload) >= len(text)
		if code != wantCode || !long && !strings.HasPrefix(payload, text) {
			t.Errorf("%s: %s %.80q (%d bytes), want %.80q", c.request, code, payload, len(payload), c.want)
		}
	}
}

// exercise is what Weir's client does with another program's server.
func exercise(t *testing.T, conn *client.Conn) {
	t.Helper()
	body := []byte(strings.Repeat("a long body in blocks ", 200))
	large := []string{"large"}
	exchange(t, conn, client.Request{Method: message.PUT, Path: large, Payload: body}, message.Changed)
	for _, size := range []int{0, 64} {
		if b := exchange(t, conn, client.Request{Path: large, BlockSize: size}, message.Content); !bytes.Equal(b, body) {
			t.Errorf("%d of %d bytes came back", len(b), len(body))
		}
	}
	exchange(t, conn, client.Request{Path: []string{"nothing"}}, message.NotFound)
	if b := exchange(t, conn, client.Request{Path: []string{"slow"}}, message.Content); string(b) != "done" {
		t.Errorf("a separate answer: %q", b)
	}
	links, err := client.ParseLinks(string(exchange(t, conn, client.Request{Path: []string{".well-known", "core"}}, message.Content)))
	if err != nil || !slices.ContainsFunc(links, func(l client.Link) bool { return l.Has("obs") }) {
		t.Errorf("%+v, %v", links, err)
	}
	states := map[string]bool{}
	err = conn.Observe(t.Context(), client.ObserveConfig{Request: client.Request{Path: []string{"obs"}}}, func(n client.Notification) bool {
		var m message.Message
		if message.Parse(n.Response, &m) == nil {
			states[string(m.Payload)] = true
		}
		return len(states) < 3
	})
	if err != nil || len(states) != 3 {
		t.Errorf("%v, %v", states, err)
	}
}

func portNumber(t *testing.T, uri string) string {
	t.Helper()
	n, err := strconv.Atoi(uri[strings.LastIndexByte(uri, ':')+1:])
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(n)
}
