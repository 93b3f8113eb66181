package turncat

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

func TestEveryTransport(t *testing.T) {
	server := startCoturn(t, "127.0.0.1")
	peer := udpEcho(t, "127.0.0.1")
	for _, transport := range []Transport{UDP, TCP, TLS, DTLS} {
		t.Run(string(transport), func(t *testing.T) {
			r := startTunnel(t, server.config(transport, peer))
			for i := range 3 {
				conn := r.dial()
				for _, size := range []int{1, 2, 3, 4, 100, 1000, 1191} { // also those that are padded in a stream
					exchange(t, conn, fmt.Sprintf("%d %s", i, strings.Repeat("x", size)))
				}
			}
			r.stop()
			s := r.Stats()
			if s.Allocations != 3 || s.ClientsEver != 3 || s.PeakClients != 3 || s.UpPackets < 21 || s.DownPackets < 21 {
				t.Errorf("3 clients: %+v", s)
			}
		})
	}
}

// A user with one allocation can have another one at once only if the first one was given back.
func TestAllocationsAreGivenBack(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	server := startCoturn(t, "127.0.0.1", "--user-quota=2")
	peer := udpEcho(t, "127.0.0.1")
	for i, transport := range []Transport{UDP, TCP, TLS, DTLS, UDP} {
		r := startTunnel(t, server.config(transport, peer))
		exchange(t, r.dial(), fmt.Sprint("round ", i))
		exchange(t, r.dial(), fmt.Sprint("second ", i))
		r.stop()
	}
}

func TestIPv6(t *testing.T) {
	server := startCoturn(t, "::1")
	c := server.config(UDP, udpEcho(t, "::1"))
	c.Listen.Host = "::1"
	r := startTunnel(t, c)
	exchange(t, r.dial(), "six")
	r.stop()
}

func TestRefusals(t *testing.T) {
	server := startCoturn(t, "127.0.0.1", "--denied-peer-ip=127.0.0.9")
	for _, test := range []struct {
		name, want string
		code       int
		change     func(*Config)
	}{
		{"password", "is \"user1\" the right user", 401, func(c *Config) { c.Credentials = Static("user1", "wrong") }},
		{"user", "is \"nobody\" the right user", 401, func(c *Config) { c.Credentials = Static("nobody", "passwd1") }},
		{"peer", "does not let clients reach this peer", 403, func(c *Config) { c.Peer.Host = "127.0.0.9" }},
		{"nobody there", "no program listens", 0, func(c *Config) { c.Server.Host = "127.0.0.8" }},
		{"name", "--sni", 0, func(c *Config) {
			c.Server.Port, c.Server.Transport, c.ServerName = server.tlsPort, TLS, "other.test"
		}},
		{"authority", "certificate", 0, func(c *Config) { c.Server.Port, c.Server.Transport, c.Roots = server.tlsPort, DTLS, nil }},
		{"tcp user", "is \"nobody\" the right user", 401, func(c *Config) {
			c.Server.Transport, c.Listen.Kind, c.Peer.Kind, c.Credentials = TCP, KindTCP, KindTCP, Static("nobody", "x")
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := server.config(UDP, "udp://127.0.0.1:9")
			test.change(&c)
			r := startTunnel(t, c)
			err := <-r.ended
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("%v; want %q", err, test.want)
			}
			var refusal *Refusal
			if errors.As(err, &refusal) != (test.code != 0) || refusal != nil && refusal.Code != test.code {
				t.Errorf("%v; want code %d", err, test.code)
			}
		})
	}
}

func TestServerRestarts(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	server := startCoturn(t, "127.0.0.1")
	peer := udpEcho(t, "127.0.0.1")
	for _, transport := range []Transport{UDP, TCP, DTLS} {
		t.Run(string(transport), func(t *testing.T) {
			c := server.config(transport, peer)
			c.CheckEvery = 500 * time.Millisecond
			r := startTunnel(t, c)
			conn := r.dial()
			exchange(t, conn, "before")
			server.stop(syscall.SIGKILL)
			netlabtest.Eventually(t, "a datagram that is dropped", func() bool {
				conn.Write([]byte("lost"))
				return r.Stats().DroppedGap > 0
			})
			server.start()
			exchange(t, conn, "after")
			if s := r.Stats(); s.AllocationsLost == 0 || s.Clients != 1 || s.Sessions != 1 {
				t.Errorf("%+v", s)
			}
			r.stop()
		})
	}
}

// No program sends while the server is away: only the check finds out that the allocation is gone.
func TestSilentRestartIsNoticed(t *testing.T) {
	server := startCoturn(t, "127.0.0.1")
	c := server.config(UDP, udpEcho(t, "127.0.0.1"))
	c.CheckEvery = 200 * time.Millisecond
	r := startTunnel(t, c)
	conn := r.dial()
	exchange(t, conn, "before")
	netlabtest.Eventually(t, "a check after the last datagram", func() bool { return strings.Count(server.out.String(), "REFRESH processed, success") > 0 })
	server.stop(syscall.SIGKILL)
	server.start()
	exchange(t, conn, "after")
	if s := r.Stats(); s.AllocationsLost != 1 {
		t.Errorf("%+v", s)
	}
	r.stop()
}

func TestManyClients(t *testing.T) {
	const clients = 200
	server := startCoturn(t, "127.0.0.1")
	c := server.config(UDP, udpEcho(t, "127.0.0.1"))
	c.MaxClients = clients
	r := startTunnel(t, c)
	var group sync.WaitGroup
	for i := range clients {
		conn := r.dial()
		group.Go(func() {
			for k := range 3 {
				exchange(t, conn, fmt.Sprintf("%d of %d", k, i))
			}
		})
	}
	group.Wait()
	one := r.dial()
	netlabtest.Eventually(t, "a client too many", func() bool {
		one.Write([]byte("one more"))
		return r.Stats().DroppedFull > 0
	})
	if s := r.Stats(); s.Clients != clients || s.Sessions != clients || s.PeakClients != clients {
		t.Errorf("%+v", s)
	}
	netlabtest.Eventually(t, "a word on the clients that were refused", func() bool { return strings.Contains(r.log.String(), "--max-clients") }) // counted before it is said
	r.stop()
}

func TestIdleClientsAreForgotten(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	server := startCoturn(t, "127.0.0.1", "--user-quota=1")
	c := server.config(UDP, udpEcho(t, "127.0.0.1"))
	c.IdleTimeout = time.Second
	r := startTunnel(t, c)
	exchange(t, r.dial(), "first")
	netlabtest.Eventually(t, "nobody left", func() bool { return r.Stats().Clients == 0 })
	exchange(t, r.dial(), "second")  // the quota has room again
	if s := r.Stats(); s.Idle == 0 { // more where this machine paused for a second
		t.Errorf("%+v", s)
	}
	r.stop()
}

func TestStreamListeners(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	server := startCoturn(t, "127.0.0.1")
	peer := udpEcho(t, "127.0.0.1")
	for _, listen := range []Endpoint{{Kind: KindTCP, Host: "127.0.0.1"}, {Kind: KindUnix, Path: filepath.Join(t.TempDir(), "s")}} {
		for _, transport := range []Transport{UDP, TLS} {
			t.Run(string(listen.Kind)+" "+string(transport), func(t *testing.T) {
				c := server.config(transport, peer)
				c.Listen, c.MTU, c.MaxClients = listen, 8, 1
				r := startTunnel(t, c)
				conn := r.dial()
				streamExchange(t, conn, "line\n", "echo:line\n")
				streamExchange(t, conn, "0123456789ab", "echo:01234567", "echo:89ab") // two datagrams, cut at MTU; each answer is one write
				second := r.dial()
				second.SetReadDeadline(time.Now().Add(time.Minute))
				if _, err := second.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("a client too many: %v", err)
				}
				conn.(interface{ CloseWrite() error }).CloseWrite()
				conn.SetReadDeadline(time.Now().Add(time.Minute))
				if _, err := io.Copy(io.Discard, conn); err != nil {
					t.Errorf("after the end of the input: %v", err)
				}
				netlabtest.Eventually(t, "the client's end", func() bool { return r.Stats().Clients == 0 })
				r.stop()
			})
		}
	}
}

// streamExchange sends until all of the answers have come: datagrams behind a stream may be lost, too.
func streamExchange(t *testing.T, conn net.Conn, text string, answers ...string) {
	t.Helper()
	var got []byte
	buffer := make([]byte, 4096)
	missing := func() bool {
		return slices.ContainsFunc(answers, func(a string) bool { return !bytes.Contains(got, []byte(a)) })
	}
	netlabtest.Eventually(t, "the answer to "+text, func() bool {
		if _, err := conn.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		for err := error(nil); err == nil && missing(); {
			var n int
			conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
			n, err = conn.Read(buffer)
			got = append(got, buffer[:n]...)
		}
		return !missing()
	})
}

func TestStaleUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	if err := removeStale(path); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("a socket in use: %v", err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	if err := removeStale(path); err != nil {
		t.Error(err)
	}
	if err := removeStale(filepath.Dir(path)); err == nil {
		t.Error("a folder was no error")
	}
}

func TestTCPPeer(t *testing.T) {
	server := startCoturn(t, "127.0.0.1")
	peer := tcpEcho(t, "127.0.0.1")
	for _, transport := range []Transport{TCP, TLS} {
		t.Run(string(transport), func(t *testing.T) {
			c := server.config(transport, peer)
			c.Listen = Endpoint{Kind: KindTCP, Host: "127.0.0.1"}
			r := startTunnel(t, c)
			data := bytes.Repeat([]byte("0123456789abcde\n"), 1<<16) // 1 MiB
			conn := r.dial()
			// coturn stops for good where both directions are full: it resumes reading on one side when that, not the other, has room.
			const window = 64 << 10
			room := make(chan struct{}, len(data)/window)
			room <- struct{}{}
			go func() {
				for at := 0; at < len(data); at += window {
					<-room
					conn.Write(data[at : at+window])
				}
				conn.(*net.TCPConn).CloseWrite()
			}()
			conn.SetReadDeadline(time.Now().Add(time.Minute))
			for at := 0; at < len(data); at += window {
				got := make([]byte, window)
				if n, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, data[at:at+window]) {
					t.Fatalf("%d of %d bytes, %v", at+n, len(data), err)
				}
				room <- struct{}{}
			}
			r.stop()
		})
	}
}

// Credentials that last seconds: the session must outlive them.
func TestEphemeralCredentialsAreRenewed(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	server := startCoturn(t, "127.0.0.1", "--use-auth-secret", "--static-auth-secret=secret")
	c := server.config(UDP, udpEcho(t, "127.0.0.1"))
	c.Credentials = Ephemeral("secret", "alice", 2*time.Second)
	c.CheckEvery = 300 * time.Millisecond
	r := startTunnel(t, c)
	conn := r.dial()
	begun := time.Now()
	for time.Since(begun) < 5*time.Second {
		exchange(t, conn, fmt.Sprint(time.Since(begun)))
	}
	if s := r.Stats(); s.AllocationsLost != 0 || s.DroppedGap != 0 || s.Sessions != 1 {
		t.Errorf("%+v", s)
	}
	r.stop()
}

func TestOpenRefuses(t *testing.T) {
	good := Config{
		Listen: Endpoint{Kind: KindUDP, Host: "127.0.0.1"}, Server: Server{Host: "127.0.0.1", Port: 1, Transport: UDP},
		Peer: Endpoint{Kind: KindUDP, Host: "127.0.0.1", Port: 1}, Credentials: Static("u", "p"),
	}
	for want, change := range map[string]func(*Config){
		"no credentials": func(c *Config) { c.Credentials = nil },
		"needs a stream": func(c *Config) { c.Peer.Kind = KindTCP },
		"TCP or TLS":     func(c *Config) { c.Peer.Kind, c.Listen.Kind = KindTCP, KindTCP },
		"clients":        func(c *Config) { c.MaxClients = -1 },
		"MTU":            func(c *Config) { c.MTU = 70000 },
		"look peer":      func(c *Config) { c.Peer.Host = "does-not-exist.invalid" },
	} {
		c := good
		change(&c)
		if _, err := Open(context.Background(), c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}
