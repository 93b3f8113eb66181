package check_test

import (
	"encoding/base64"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/coap/check"
	"github.com/weir-lb/weir/internal/coap/client"
	"github.com/weir-lb/weir/internal/coap/node"
)

// relayed puts a proxy before a DTLS server that passes the datagrams on for which pass is true. pass sees those of one client, with
// their direction, in their order.
func relayed(t *testing.T, server string, newPass func() func(up bool, datagram []byte) bool) string {
	t.Helper()
	front, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	var mu sync.Mutex
	links := map[string]net.Conn{}
	running.Go(func() {
		buffer := make([]byte, 65536)
		passes := map[string]func(bool, []byte) bool{}
		for {
			n, peer, err := front.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return
			}
			mu.Lock()
			link, pass := links[peer.String()], passes[peer.String()]
			if link == nil {
				if link, err = net.Dial("udp", strings.TrimPrefix(server, "coaps://")); err != nil {
					t.Error(err)
					mu.Unlock()
					return
				}
				pass = newPass()
				links[peer.String()], passes[peer.String()] = link, pass
				running.Go(func() {
					in := make([]byte, 65536)
					for {
						n, err := link.Read(in)
						if err != nil {
							return
						}
						mu.Lock()
						if pass(false, in[:n]) {
							front.WriteToUDPAddrPort(in[:n], peer) //nolint:errcheck // the peer repeats
						}
						mu.Unlock()
					}
				})
			}
			if pass(true, buffer[:n]) {
				link.Write(buffer[:n]) //nolint:errcheck // the peer repeats
			}
			mu.Unlock()
		}
	})
	t.Cleanup(func() {
		front.Close()
		mu.Lock()
		for _, link := range links {
			link.Close()
		}
		mu.Unlock()
		running.Wait()
	})
	return "coaps://" + front.LocalAddr().String()
}

// handshakeOnly loses the application data of clients.
func handshakeOnly() func(bool, []byte) bool {
	return func(up bool, b []byte) bool { return !up || b[0] != 23 && b[0] != 25 }
}

// unrepeated loses what comes late: a server that answers no retransmission.
func unrepeated() func(bool, []byte) bool {
	begun := time.Now()
	return func(bool, []byte) bool { return time.Since(begun) < 500*time.Millisecond }
}

// Faults of a server's DTLS, and the cases that they make fail.
func TestDTLSFaultsAreFound(t *testing.T) {
	clitest.TakesSeconds(t)
	known, own := rawKeyServer(t, false)
	careless, carelessOwn := rawKeyServer(t, true)
	alerted := false
	for _, f := range []struct {
		name, cases, want string
		server            node.Config
		own               client.Security
		pass              func() func(bool, []byte) bool
	}{
		{"no application data", "DTLS_01 DTLS_03 DTLS_04 DTLS_05 DTLS_07", "a response", known, own, handshakeOnly},
		{"no retransmission", "DTLS_03 DTLS_07", "a DTLS session after a retransmission", known, own, unrepeated},
		{"any client is trusted", "DTLS_06", "no session", careless, carelessOwn, nil},
		{"no handshake", "DTLS_01 DTLS_02 DTLS_04 DTLS_05", "", known, own, func() func(bool, []byte) bool {
			hellos := 0
			return func(up bool, b []byte) bool { // that of the discovery is let through
				if up && b[0] == 22 {
					hellos++
				}
				return false
			}
		}},
		{"an end after an alert", "DTLS_05", "a DTLS session", known, own, func() func(bool, []byte) bool {
			return func(up bool, b []byte) bool {
				alerted = alerted || up && b[0] == 21
				return !alerted
			}
		}},
	} {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel() // it waits for most of its time
			server := f.server
			server.Listen, server.TCP, server.TLS = nil, nil, nil
			uri := serve(t, server)[0]
			if f.pass != nil {
				uri = relayed(t, uri, firstWhole(f.pass))
			}
			out, err := check.Run(t.Context(), check.Config{URI: uri, Security: f.own, Known: f.own.Credentials != nil, Only: strings.Fields(f.cases), Timeout: 3 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range out.Cases {
				if c.Verdict != check.Fail || !strings.Contains(c.Expected, f.want) {
					t.Errorf("%s: %s, %q; want a failure that expected %q\n%s", c.ID, c.Verdict, c.Reason, f.want, strings.Join(c.Trace, "\n"))
				}
			}
		})
	}
}

// A server that does not know this client's raw public key has no fault: the cases that need a session say what is missing.
func TestUnknownRawKeyIsNoFault(t *testing.T) {
	known, _ := rawKeyServer(t, false)
	known.Listen, known.TCP, known.TLS = nil, nil, nil
	out, err := check.Run(t.Context(), check.Config{URI: serve(t, known)[0], Only: []string{"DTLS_04", "DTLS_05", "DTLS_06", "DTLS_07"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range out.Cases {
		if c.Verdict != check.Inconclusive || !strings.Contains(c.Reason, "--rpk") {
			t.Errorf("%s: %s, %q\n%s", c.ID, c.Verdict, c.Reason, strings.Join(c.Trace, "\n"))
		}
	}
}

// firstWhole lets the first client through, which asks what resources there are.
func firstWhole(pass func() func(bool, []byte) bool) func() func(bool, []byte) bool {
	first := true
	return func() func(bool, []byte) bool {
		if first {
			first = false
			return func(bool, []byte) bool { return true }
		}
		return pass()
	}
}

// A server that takes a wrong pre-shared key: its own one changes after the first session.
func TestWrongKeyIsFound(t *testing.T) {
	clitest.TakesSeconds(t)
	cfg := plugtest()
	cfg.Listen, cfg.TCP, cfg.TLS = nil, nil, nil
	cfg.PSKFile = filepath.Join(t.TempDir(), "keys")
	write := func(key string) {
		if err := os.WriteFile(cfg.PSKFile, []byte("device="+base64.StdEncoding.EncodeToString([]byte(key))+"\n"), 0o600); err != nil {
			t.Error(err)
		}
	}
	write("right")
	server := open(t, cfg)
	sessions := 0
	uri := relayed(t, server.Addresses()[0].URI, func() func(bool, []byte) bool {
		if sessions++; sessions == 2 {
			write("wrong")
			if err := server.ReloadCredentials(); err != nil {
				t.Error(err)
			}
		}
		return func(bool, []byte) bool { return true }
	})
	own := client.Security{Identity: "device", Secret: []byte("right")}
	out, err := check.Run(t.Context(), check.Config{URI: uri, Security: own, Only: []string{"DTLS_02"}})
	if err != nil {
		t.Fatal(err)
	}
	if c := out.Cases[0]; c.Verdict != check.Fail || !strings.Contains(c.Expected, "no session") {
		t.Errorf("%s: %s", c.Verdict, c.Reason)
	}
}
