package coap

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/cli/coap/coaptest"
	"github.com/weir-lb/weir/internal/coap/client"
	"github.com/weir-lb/weir/internal/dtls/record"
)

// losing is a path to a server that loses a session: from then on what the client sends is dropped, and answered by a message that is
// not authenticated, as anybody can send it.
type losing struct {
	conn *net.UDPConn

	mu       sync.Mutex
	server   *net.UDPAddr
	answers  [][]byte // nil: the session is there
	records  int      // of epoch 1 since then
	hellos   int      // since then
	reaction chan int // one for each record: its number, or 0 for the first ClientHello
}

func newLosing(t *testing.T, server string) *losing {
	t.Helper()
	to, err := net.ResolveUDPAddr("udp4", server)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	l := &losing{conn: conn, server: to, reaction: make(chan int, 64)}
	t.Cleanup(func() { conn.Close() })
	go l.run()
	return l
}

func (l *losing) run() {
	var client *net.UDPAddr
	b := make([]byte, 4096)
	for {
		n, from, err := l.conn.ReadFromUDP(b)
		if err != nil {
			return
		}
		server := l.to()
		if from.Port == server.Port {
			if !l.isLost() {
				_, _ = l.conn.WriteToUDP(b[:n], client)
			}
			continue
		}
		client = from
		answers, pass := l.fromClient(b[:n])
		if pass {
			_, _ = l.conn.WriteToUDP(b[:n], server)
		}
		for _, answer := range answers {
			_, _ = l.conn.WriteToUDP(answer, client)
		}
	}
}

func (l *losing) to() *net.UDPAddr {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.server
}

// moveTo leads to another server, which has no session of the client. The one before must have ended.
func (l *losing) moveTo(server string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.server = net.UDPAddrFromAddrPort(netip.MustParseAddrPort(server))
}

func (l *losing) isLost() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.answers != nil
}

func (l *losing) fromClient(d []byte) (answers [][]byte, pass bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.answers == nil {
		return nil, true
	}
	var r record.Record
	if _, err := record.Next(d, 6, &r); err != nil || r.Epoch == 0 && l.hellos > 0 {
		return nil, false
	}
	if r.Epoch == 0 {
		l.hellos++
		l.reaction <- 0
		return nil, false
	}
	if l.records++; l.records < cap(l.reaction)/2 {
		l.reaction <- l.records
	}
	return l.answers, false
}

func (l *losing) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers = lostAnswers()
}

// lostAnswers are what a server without the session's keys could say: close_notify, a fatal alert, and HelloRequest.
func lostAnswers() [][]byte {
	return [][]byte{
		record.AppendPlain(nil, record.Alert, 1<<20, []byte{1, 0}),
		record.AppendPlain(nil, record.Alert, 1<<20+1, []byte{2, 80}),
		record.AppendPlain(nil, record.Handshake, 1<<20+2, make([]byte, 12)),
	}
}

// lostClient makes a session through a port, and returns what begins a request in it, and what the client has printed about its end.
type lostClient func(t *testing.T, port string) (request func(), output func() string)

func ofPeer(p *peer, line string) (func(), func() string) {
	var mu sync.Mutex
	var read sync.Once
	output := ""
	p.t.Cleanup(func() { _ = p.process.Process.Kill() }) // it waits for an answer that never comes
	return func() {
			_, _ = fmt.Fprintln(p.in, line)
			go read.Do(func() {
				for p.out.Scan() {
					mu.Lock()
					output += p.out.Text() + "; "
					mu.Unlock()
				}
				mu.Lock()
				output += "ended; "
				mu.Unlock()
			})
		}, func() string {
			mu.Lock()
			defer mu.Unlock()
			return output
		}
}

func lostClients() map[string]lostClient {
	return map[string]lostClient{
		"tinydtls": func(t *testing.T, port string) (func(), func() string) {
			p := startTinyDTLS(t, "client", "psk", "127.0.0.1", port, "device", "secret")
			p.datagram(1, "mycontext")
			return ofPeer(p, get(t, 2, "mycontext"))
		},
		"Scandium 3": scandium(3), "Scandium 4": scandium(4),
		"libcoap on OpenSSL": libcoap("coap-client-openssl"), "libcoap on GnuTLS": libcoap("coap-client-gnutls"),
		"Weir": func(t *testing.T, port string) (func(), func() string) {
			conn := connect(t, "coaps://127.0.0.1:"+port, client.Security{Identity: "device", Secret: []byte("secret")})
			if _, err := conn.Do(t.Context(), &client.Request{Path: []string{"mycontext"}}); err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			output := ""
			return func() {
					go func() {
						_, err := conn.Do(context.Background(), &client.Request{Path: []string{"mycontext"}})
						mu.Lock()
						defer mu.Unlock()
						output = fmt.Sprint(err)
					}()
				}, func() string {
					mu.Lock()
					defer mu.Unlock()
					return output
				}
		},
	}
}

func scandium(major int) lostClient {
	return func(t *testing.T, port string) (func(), func() string) {
		p := startJava(t, major, "weir.Client", "0", "device", "secret", "TLS_PSK_WITH_AES_128_CCM_8")
		request := "GET coaps://127.0.0.1:" + port + "/mycontext"
		if code, text := p.do(request); code != "2.05" {
			t.Fatal(code, text)
		}
		return ofPeer(p, request)
	}
}

// libcoap observes a resource, and pings the server each second.
func libcoap(program string) lostClient {
	return func(t *testing.T, port string) (func(), func() string) {
		path, err := exec.LookPath(program)
		if err != nil {
			t.Skip(err)
		}
		cmd := exec.Command(path, "-u", "device", "-k", "secret", "-K", "1", "-s", "30", "-m", "get", "coaps://127.0.0.1:"+port+"/obs")
		out := new(clitest.LockedBuffer)
		cmd.Stdout, cmd.Stderr = out, out
		if err := clitest.StartChild(cmd); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { _ = cmd.Wait(); close(ended) }()
		t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
		for end := time.Now().Add(20 * time.Second); out.String() == "" && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
		}
		return func() {}, func() string {
			select {
			case <-ended:
				return out.String() + " ended"
			default:
				return out.String()
			}
		}
	}
}

// An answer without authentication, which anybody can send, makes no client begin a handshake: it still repeats its request, or its ping,
// in the session that is lost. So a server must not rely on one (docs/adr/0018).
func TestClientsOfLostSessions(t *testing.T) {
	clitest.TakesSeconds(t)
	s := coaptest.Start(t, 1, "--dtls-only", "--plugtest", "--dtls", "127.0.0.1:0", "--psk-file", secretFile(t, "device", "secret"))
	server := strings.TrimPrefix(s.Uris[0], "coaps://")
	for name, start := range lostClients() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLosing(t, server)
			_, port, err := net.SplitHostPort(l.conn.LocalAddr().String())
			if err != nil {
				t.Fatal(err)
			}
			request, output := start(t, port)
			l.lose()
			request()
			for wanted := 1; wanted <= 2; wanted++ {
				select {
				case n := <-l.reaction:
					if n != wanted {
						t.Errorf("a ClientHello after %d records that were answered; it says %q", wanted-1, output())
						return
					}
				case <-time.After(30 * time.Second):
					t.Fatalf("%d records; it says %q", wanted-1, output())
				}
				if wanted == 1 && !repeats(name) {
					request()
				}
			}
		})
	}
}

// repeats reports whether a client repeats its request by itself: it has CoAP.
func repeats(name string) bool { return name != "tinydtls" }
