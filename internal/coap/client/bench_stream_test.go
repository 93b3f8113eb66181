package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/coap/stream"
	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/handshake/handshaketest"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// accepting calls serve for each connection to a listener, and returns its address.
func accepting(t *testing.T, listener net.Listener, serve func(net.Conn)) string {
	t.Helper()
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go serve(conn)
		}
	}()
	return listener.Addr().String()
}

func listenTCP(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

// requestsOf calls serve with each message of a connection, until that says no or the connection ends.
func requestsOf(raw net.Conn, serve func(conn *stream.Conn, m *message.Message) bool) {
	conn, err := stream.NewConn(raw, stream.Settings{})
	if err != nil {
		return
	}
	defer conn.Close()
	var m message.Message
	for conn.Receive(&m) == nil && serve(conn, &m) {
	}
}

// echoing answers each request with its payload.
func echoing(t *testing.T, raw net.Conn) {
	requestsOf(raw, func(conn *stream.Conn, m *message.Message) bool {
		return !m.Code.IsRequest() || conn.Send(answerTo(t, m, message.Non, 0, message.Changed, m.Payload)) == nil
	})
}

// A load over TLS opens its sessions again, in full or resumed where the server gives tickets.
func TestBenchResumesTLS(t *testing.T) {
	authority := handshaketest.NewAuthority(t, "test")
	server := authority.Issue(t, "P-256", "server.test", func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)} })
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, resume := range []bool{false, true} {
			listener := tls.NewListener(listenTCP(t), &tls.Config{Certificates: []tls.Certificate{server.TLS()}, MinVersion: version, MaxVersion: version})
			uri := "coaps+tcp://" + accepting(t, listener, func(conn net.Conn) { echoing(t, conn) })
			r, err := Bench(t.Context(), BenchConfig{
				URI: uri, Clients: 10, Requests: 20, HandshakeEvery: 5, Resume: resume, Credentials: &handshake.Credentials{Roots: authority.Roots},
			}, nil)
			if err != nil {
				t.Fatal(err)
			}
			want := uint64(0)
			if resume {
				want = 30
			}
			if s := &r.Stats; s.Requests != 200 || s.Handshakes != 40 || s.Resumed != want || s.Errors+s.HandshakeErrors+s.LostSessions > 0 || r.Handshake.Count() != 40 {
				t.Errorf("TLS %x, resume %v: %+v", version, resume, s)
			}
		}
	}
}

// A server that ends connections costs requests and connections, and the clients come back; so do they after one that was refused.
func TestBenchStreamLoss(t *testing.T) {
	uri := "coap+tcp://" + accepting(t, listenTCP(t), func(raw net.Conn) {
		n := 0
		requestsOf(raw, func(conn *stream.Conn, m *message.Message) bool {
			if n++; n > 25 {
				return false
			}
			_ = conn.Send(answerTo(t, m, message.Non, 0, message.Changed, nil))
			return true
		})
	})
	r, err := Bench(t.Context(), BenchConfig{URI: uri, Clients: 4, Requests: 40, NoStop: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if s := &r.Stats; s.Requests != 160 || s.Lost < 4 || s.LostSessions < 4 || s.Rehandshakes < 4 || s.Retransmissions != 0 {
		t.Errorf("%+v", s)
	}
}

// What a server does instead of CoAP is named, and no goroutine or descriptor is left.
func TestBenchStreamNamesTheCause(t *testing.T) {
	gone := listenTCP(t)
	gone.Close()
	descriptors := func() int {
		open, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip(err)
		}
		return len(open)
	}
	before, goroutines := descriptors(), runtime.NumGoroutine()
	garbage := accepting(t, listenTCP(t), func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n"); c.Close() })
	closes := accepting(t, listenTCP(t), func(c net.Conn) { // unread bytes would make a reset of the end
		_ = c.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, c)
		c.Close()
	})
	once := accepting(t, listenTCP(t), func(c net.Conn) {
		conn, err := stream.NewConn(c, stream.Settings{})
		var m message.Message
		if err == nil && conn.Receive(&m) == nil {
			conn.Close()
		}
	})
	small := accepting(t, listenTCP(t), func(c net.Conn) {
		conn, err := stream.NewConn(c, stream.Settings{MaxMessageSize: 1152})
		var m message.Message
		if err == nil {
			_ = conn.Receive(&m)
		}
	})
	for _, test := range []struct{ address, want string }{
		{gone.Addr().String(), "nothing listens there"},
		{garbage, "is no CoAP over TCP"},
		{closes, "EOF"},
		{once, "ended the session without an answer"},
		{small, "the server takes at most 1152; send it in blocks"},
	} {
		_, err := Bench(t.Context(), BenchConfig{URI: "coap+tcp://" + test.address, Clients: 3, Requests: 1, Payload: make([]byte, 2000)}, nil)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v, want %q", err, test.want)
		}
	}
	netlabtest.Eventually(t, "nothing is left", func() bool {
		runtime.GC()                                                               // closes the connections that the test's servers have dropped
		return descriptors() <= before+4 && runtime.NumGoroutine() <= goroutines+4 // the listeners, and who accepts for them
	})
}

// What has no meaning over TCP is one error.
func TestBenchStreamRefuses(t *testing.T) {
	for _, cfg := range []BenchConfig{
		{NON: true}, {AckTimeout: time.Second}, {Sockets: SocketsShared}, {CIDLength: 4}, {NoCID: true}, {RebindEvery: time.Second},
	} {
		cfg.URI = "coap+tcp://h/"
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "TCP confirms and repeats by itself") {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
	if _, err := Bench(t.Context(), BenchConfig{URI: "coaps+tcp://127.0.0.1"}, nil); err == nil || !strings.Contains(err.Error(), "TLS needs certificates") {
		t.Errorf("%v", err)
	}
}

// A server that takes nothing does not hold the load up.
func TestBenchStreamAgainstASilentReader(t *testing.T) {
	hold := make(chan struct{})
	defer close(hold)
	uri := "coap+tcp://" + accepting(t, listenTCP(t), func(c net.Conn) {
		if _, err := stream.NewConn(c, stream.Settings{}); err == nil {
			<-hold
		}
	})
	begun := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := Bench(ctx, BenchConfig{URI: uri, Clients: 2, Requests: 1}, nil)
	if err == nil || time.Since(begun) > 5*time.Second {
		t.Errorf("%v after %v", err, time.Since(begun))
	}
}

// benchLibcoap loads libcoap's example server over TCP or TLS.
func benchLibcoap(t *testing.T, uri string, credentials *handshake.Credentials) {
	t.Helper()
	conn, err := Dial(t.Context(), uri, DialConfig{Security: Security{Credentials: credentials}, Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Do(t.Context(), &Request{Method: message.PUT, Path: []string{"load"}, Payload: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	for _, cfg := range []BenchConfig{
		{URI: uri + "/load", Clients: 10, Requests: 50},
		{URI: uri + "/load", Clients: 5, Requests: 20, Payload: make([]byte, 5000), BlockSize: 512},
		{URI: uri + "/time", Clients: 10, Requests: 3, Mode: ModeObserve},
	} {
		cfg.Credentials = credentials
		r, err := Bench(t.Context(), cfg, nil)
		if err != nil {
			t.Errorf("%s %s: %v", cfg.Mode, cfg.URI, err)
			continue
		}
		if s := &r.Stats; s.Requests < uint64(cfg.Clients*cfg.Requests) || s.Errors+s.Lost+s.Failed > 0 || s.Handshakes != uint64(cfg.Clients) {
			t.Errorf("%s %s: %+v", cfg.Mode, cfg.URI, s)
		}
	}
}

// wordless answers requests, and sends no CSM: Californium's server is such a one.
func wordless(t *testing.T, raw net.Conn) {
	defer raw.Close()
	var decoder stream.Decoder
	var m message.Message
	in := make([]byte, 4096)
	for {
		n, err := raw.Read(in)
		if err != nil {
			return
		}
		decoder.Feed(in[:n])
		for ok, err := decoder.Next(&m); ok || err != nil; ok, err = decoder.Next(&m) {
			if err != nil {
				return
			}
			if !m.Code.IsRequest() {
				continue
			}
			var options []Option
			code := message.Changed
			if value, ok := m.Uint(message.Block1); ok {
				options = append(options, UintOption(message.Block1, value))
				if value&8 != 0 {
					code = message.Continue
				}
			}
			frame, err := stream.Append(nil, answerTo(t, &m, message.Non, 0, code, nil, options...))
			if err != nil {
				t.Error(err)
			}
			if _, err := raw.Write(frame); err != nil {
				return
			}
		}
	}
}

// With a server that sends no CSM the base values hold (RFC 8323 section 5.3.1), soon.
func TestServersWithoutCSM(t *testing.T) {
	uri := "coap+tcp://" + accepting(t, listenTCP(t), func(raw net.Conn) { wordless(t, raw) })
	r, err := Bench(t.Context(), BenchConfig{URI: uri, Clients: 5, Requests: 20}, nil)
	if s := &r.Stats; err != nil || s.Requests != 100 || s.Errors+s.HandshakeErrors+s.LostSessions > 0 {
		t.Errorf("%v, %+v", err, s)
	}
	conn, err := Dial(t.Context(), uri, DialConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	begun := time.Now()
	x, err := conn.Do(t.Context(), &Request{Method: message.PUT, Payload: make([]byte, 5000)})
	var m message.Message
	if err != nil || message.Parse(x.Response, &m) != nil || m.Code != message.Changed || x.Messages != 5 || time.Since(begun) > 10*time.Second {
		t.Errorf("%s after %d messages and %v, %v", m.Code, x.Messages, time.Since(begun), err)
	}
}
