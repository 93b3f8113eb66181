package streamserver

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/coap/stream"
)

// echo answers every request with its payload, repeated as often as the token's first byte says.
type echo struct{ closed *atomic.Int64 }

func (e echo) Serve(_ *Peer, m *message.Message, out []byte, _ time.Duration) []byte {
	var b message.Builder
	b.Reset(out, message.Non, message.Content, 0, m.Token)
	b.Payload(bytes.Repeat(m.Payload, 1+int(m.Token[0])))
	out, _ = b.Bytes()
	return out
}
func (e echo) Tick(time.Duration) time.Duration { return Never }
func (e echo) Closed(_ *Peer, _ time.Duration)  { e.closed.Add(1) }

type fixture struct {
	t      *testing.T
	server *Server
	clock  atomic.Int64
	closed atomic.Int64
}

func open(t *testing.T, cfg Config) *fixture {
	t.Helper()
	f := &fixture{t: t}
	cfg.Listen = netip.MustParseAddrPort("127.0.0.1:0")
	cfg.NewHandler = func(*Worker) Handler { return echo{&f.closed} }
	cfg.Workers = 1
	cfg.now = func() time.Duration { return time.Duration(f.clock.Load()) }
	server, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	f.server = server
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if n := server.Stats().Connections; n != 0 {
			t.Errorf("%d connections after the end", n)
		}
	})
	return f
}

// advance moves the clock, and lets the worker see it.
func (f *fixture) advance(d time.Duration) {
	f.clock.Add(int64(d))
	f.server.Workers()[0].Post(func() {})
	f.server.Stats() // a request behind that one: a poll has ended
}

func (f *fixture) dial(secure *tls.Config) *stream.Conn {
	f.t.Helper()
	c, err := stream.Dial(f.t.Context(), f.server.Addr().String(), secure, stream.Settings{})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return c
}

// raw connects without a CSM, and reads that of the server.
func (f *fixture) raw() net.Conn {
	f.t.Helper()
	c, err := net.Dial("tcp", f.server.Addr().String())
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	csm := stream.AppendCSM(nil, stream.Announced())
	if _, err := io.ReadFull(c, csm); err != nil {
		f.t.Fatal(err)
	}
	return c
}

// await repeats until ok holds; the bound only ends a test that has failed.
func (f *fixture) await(what string, ok func(Stats) bool) {
	f.t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		s := f.server.Stats()
		if ok(s) {
			return
		}
		if time.Now().After(end) {
			f.t.Fatalf("%s: %+v", what, s)
		}
	}
}

func request(t testing.TB, repeat byte, payload []byte) []byte {
	t.Helper()
	var b message.Builder
	b.Reset(make([]byte, 0, len(payload)+64), message.Non, message.POST, 0, []byte{repeat})
	b.Payload(payload)
	datagram, err := b.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return datagram
}

func exchange(t *testing.T, c *stream.Conn, repeat byte, payload []byte) {
	t.Helper()
	if err := c.Send(request(t, repeat, payload)); err != nil {
		t.Fatal(err)
	}
	var m message.Message
	if err := c.Receive(&m); err != nil {
		t.Fatal(err)
	}
	if want := bytes.Repeat(payload, 1+int(repeat)); !bytes.Equal(m.Payload, want) || m.Token[0] != repeat {
		t.Fatalf("%d bytes, want %d", len(m.Payload), len(want))
	}
}

func serverTLS(t *testing.T) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, NextProtos: []string{"coap"}}
}

func TestRequests(t *testing.T) {
	for name, secure := range map[string]*tls.Config{"tcp": nil, "tls": serverTLS(t)} {
		t.Run(name, func(t *testing.T) {
			f := open(t, Config{TLS: secure})
			var client *tls.Config
			if secure != nil {
				client = &tls.Config{InsecureSkipVerify: true}
			}
			c := f.dial(client)
			for _, size := range []int{1, 12, 13, 300, 5000, 60000} {
				exchange(t, c, 0, bytes.Repeat([]byte{'x'}, size))
			}
			exchange(t, c, 200, bytes.Repeat([]byte{'y'}, 300))
			if err := c.Ping([]byte{7}, false); err != nil {
				t.Fatal(err)
			}
			var m message.Message
			if err := c.Receive(&m); err != nil || m.Code != stream.Pong || string(m.Token) != "\x07" {
				t.Fatal(m, err)
			}
			f.await("idle", func(s Stats) bool { return s.Connections == 1 && s.Guests == 0 && s.Messages == 7 && s.Pings == 1 })
			_ = c.Close()
			f.await("closed", func(s Stats) bool { return s.Connections == 0 && f.closed.Load() == 1 })
		})
	}
}

// Many requests without a pause, whose answers are read afterwards: nothing is lost, and the server stops reading meanwhile.
func TestPipelining(t *testing.T) {
	f := open(t, Config{})
	c := f.dial(nil)
	const count = 3000
	sent := make(chan error, 1)
	go func() {
		datagram := request(t, 200, bytes.Repeat([]byte{'z'}, 100))
		for range count {
			if err := c.Send(datagram); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	var m message.Message
	for i := range count {
		if err := c.Receive(&m); err != nil || len(m.Payload) != 20100 {
			t.Fatalf("answer %d: %d bytes, %v", i, len(m.Payload), err)
		}
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
}

func TestProtocolErrorsEndTheConnection(t *testing.T) {
	csm := stream.AppendCSM(nil, stream.Settings{})
	for name, wire := range map[string][]byte{
		"no CSM":          {0x00, 0xe2},
		"reserved length": append(bytes.Clone(csm), 0x0f),
		"too long":        append(bytes.Clone(csm), 0xf0, 0xff, 0xff, 0xff, 0xff, 1),
		"bad option":      append(bytes.Clone(csm), 0x10, 0x01, 0xf0),
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, Config{})
			c := f.raw()
			_, _ = c.Write(wire)
			rest, err := io.ReadAll(c)
			var m message.Message
			if err != nil || stream.Parse(rest, &m) != nil || m.Code != stream.Abort || len(m.Payload) == 0 {
				t.Errorf("%x, %v", rest, err)
			}
			f.await("aborted", func(s Stats) bool { return s.Aborted == 1 && s.Connections == 0 })
		})
	}
}

func TestTimes(t *testing.T) {
	f := open(t, Config{Idle: time.Hour})
	guest, member, half := f.raw(), f.dial(nil), f.dial(nil)
	exchange(t, member, 1, []byte("x"))
	exchange(t, half, 1, []byte("x"))
	frame, _ := stream.Append(nil, request(t, 1, make([]byte, 500)))
	_, _ = half.NetConn().Write(frame[:100])
	f.await("half a message", func(s Stats) bool { return s.Received > 100 && s.Guests == 1 && s.Connections == 3 })
	f.advance(messageTime - time.Second)
	f.await("none timed out", func(s Stats) bool { return s.Connections == 3 && s.TimedOut == 0 })
	f.advance(2 * time.Second)
	f.await("the guest and the half message", func(s Stats) bool { return s.Connections == 1 && s.TimedOut == 2 })
	if _, err := guest.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("guest: %v", err)
	}
	f.advance(50 * time.Minute)
	exchange(t, member, 1, []byte("x"))
	f.advance(50 * time.Minute)
	exchange(t, member, 1, []byte("x"))
	f.advance(61 * time.Minute)
	f.await("the idle one", func(s Stats) bool { return s.Connections == 0 && s.TimedOut == 3 })
}

// A source has a quarter of the connections; a new connection takes the place of the oldest without a request, never of one with.
func TestBoundsOfConnections(t *testing.T) {
	f := open(t, Config{MaxConnections: 16})
	member := f.dial(nil)
	exchange(t, member, 1, []byte("x"))
	for range 10 {
		f.raw()
	}
	f.await("evicted", func(s Stats) bool { return s.Connections == 4 && s.Guests == 3 && s.Evicted == 7 })
	exchange(t, member, 1, []byte("x"))
	for range 3 {
		exchange(t, f.dial(nil), 1, []byte("x"))
	}
	c, err := net.Dial("tcp", f.server.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	f.await("refused", func(s Stats) bool { return s.Connections == 4 && s.Guests == 0 && s.Refused == 1 })
	exchange(t, member, 1, []byte("x"))
}

// Incomplete messages of all connections share a bound.
func TestBoundOfIncompleteMessages(t *testing.T) {
	f := open(t, Config{MaxHeld: 100 << 10})
	frame, _ := stream.Append(stream.AppendCSM(nil, stream.Settings{}), request(t, 1, make([]byte, 60000)))
	for range 8 {
		c := f.raw()
		_, _ = c.Write(frame[:50000])
	}
	f.await("overloaded", func(s Stats) bool { return s.Overloaded > 0 && s.Overloaded+uint64(s.Connections) == 8 })
	exchange(t, f.dial(nil), 1, []byte("x"))
}

func TestHandshakesAreBounded(t *testing.T) {
	f := open(t, Config{TLS: serverTLS(t), MaxHandshakes: 8})
	for range 6 {
		if c, err := net.Dial("tcp", f.server.Addr().String()); err == nil { // a refused one may fail at once
			defer c.Close()
		}
	}
	f.await("a quarter under way", func(s Stats) bool { return s.Handshakes == 2 && s.Refused == 4 })
}
