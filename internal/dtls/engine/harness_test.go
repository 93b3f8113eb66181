package engine_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/pion/dtls/v3"

	"github.com/weir-lb/weir/internal/dtls/engine"
)

const limit = 20 * time.Second // for a step that takes milliseconds

func psk(identity []byte) ([]byte, bool) {
	return []byte(".fornium"), bytes.HasPrefix(identity, []byte("cali."))
}

// echo answers each request with itself and the peer's identity.
type echo struct {
	mu     sync.Mutex
	infos  []engine.Info
	closed int
}

func (h *echo) Serve(p *engine.Peer, in, out []byte, _ time.Duration) []byte {
	if bytes.HasPrefix(in, []byte("info")) {
		h.mu.Lock()
		h.infos = append(h.infos, p.Info())
		h.mu.Unlock()
	}
	return append(out, in...)
}

func (h *echo) Tick(time.Duration) time.Duration { return engine.Never }

func (h *echo) Closed(*engine.Peer, time.Duration) {
	h.mu.Lock()
	h.closed++
	h.mu.Unlock()
}

func (h *echo) last(t *testing.T) engine.Info {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.infos) == 0 {
		t.Fatal("no info was requested")
	}
	return h.infos[len(h.infos)-1]
}

// serve runs an engine for the length of the test.
func serve(t *testing.T, cfg engine.Config) (*engine.Engine, *echo) {
	t.Helper()
	h := new(echo)
	if cfg.NewHandler == nil {
		cfg.NewHandler = func(*engine.Worker) engine.Handler { return h }
	}
	cfg.Listen = netip.MustParseAddrPort("127.0.0.1:0")
	if cfg.PSK == nil {
		cfg.PSK = psk
	}
	e, err := engine.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(limit):
			t.Error("Run does not end")
		}
	})
	return e, h
}

// roaming is a client's socket that can change its address.
type roaming struct {
	mu     sync.Mutex
	conn   net.PacketConn
	closed bool
	drop   func(b []byte) bool // of what is sent; under mu
}

func newRoaming(t *testing.T) *roaming {
	t.Helper()
	return roamingAt(t, "127.0.0.1:0")
}

func roamingAt(t *testing.T, address string) *roaming {
	t.Helper()
	conn, err := net.ListenPacket("udp4", address)
	if err != nil {
		t.Fatal(err)
	}
	r := &roaming{conn: conn}
	t.Cleanup(func() { r.Close() })
	return r
}

// rebind takes another port; what is under way to the old one is lost.
func (r *roaming) rebind(t *testing.T) {
	t.Helper()
	conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	old := r.conn
	r.conn = conn
	r.mu.Unlock()
	if old != nil {
		old.Close()
	}
}

func (r *roaming) current() (net.PacketConn, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.conn, r.closed
}

func (r *roaming) ReadFrom(b []byte) (int, net.Addr, error) {
	for {
		conn, _ := r.current()
		n, addr, err := conn.ReadFrom(b)
		if err == nil {
			return n, addr, nil
		}
		if now, closed := r.current(); closed || now == conn {
			return 0, nil, err
		}
	}
}

func (r *roaming) WriteTo(b []byte, addr net.Addr) (int, error) {
	r.mu.Lock()
	conn, drop := r.conn, r.drop != nil && r.drop(b)
	r.mu.Unlock()
	if drop {
		return len(b), nil
	}
	return conn.WriteTo(b, addr)
}

func (r *roaming) Close() error {
	r.mu.Lock()
	r.closed = true
	conn := r.conn
	r.mu.Unlock()
	return conn.Close()
}

func (r *roaming) LocalAddr() net.Addr { c, _ := r.current(); return c.LocalAddr() }

func (r *roaming) SetDeadline(time.Time) error      { return nil }
func (r *roaming) SetReadDeadline(time.Time) error  { return nil }
func (r *roaming) SetWriteDeadline(time.Time) error { return nil }

// dial makes a session with pion as the client.
func dial(t *testing.T, e *engine.Engine, conn net.PacketConn, opts ...dtls.ClientOption) *dtls.Conn {
	t.Helper()
	c, err := tryDial(e, conn, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func tryDial(e *engine.Engine, conn net.PacketConn, opts ...dtls.ClientOption) (*dtls.Conn, error) {
	all := append([]dtls.ClientOption{
		dtls.WithPSK(func([]byte) ([]byte, error) { return []byte(".fornium"), nil }),
		dtls.WithPSKIdentityHint([]byte("cali.pion")),
		dtls.WithCipherSuites(dtls.TLS_PSK_WITH_AES_128_CCM_8),
		dtls.WithFlightInterval(time.Second), // for a datagram the kernel drops; a slow machine shall not repeat flights
	}, opts...)
	c, err := dtls.ClientWithOptions(conn, net.UDPAddrFromAddrPort(e.Addr()), all...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return c, c.HandshakeContext(ctx)
}

// roundTrip sends a request and expects it back. The kernel may drop a datagram while others flood the machine, so it sends
// the request again.
func roundTrip(t *testing.T, c net.Conn, request []byte) {
	t.Helper()
	b := make([]byte, 32768)
	read := func(timeout time.Duration) (int, error) {
		if err := c.SetReadDeadline(time.Now().Add(timeout)); err != nil {
			t.Fatal(err)
		}
		return c.Read(b)
	}
	for try := 0; ; try++ {
		if _, err := c.Write(request); err != nil {
			t.Fatal(err)
		}
		n, err := read(limit / 4)
		var timeout net.Error
		if try < 3 && errors.As(err, &timeout) && timeout.Timeout() {
			continue
		}
		if err != nil {
			t.Fatalf("request of %d bytes: %v", len(request), err)
		}
		if !bytes.Equal(b[:n], request) {
			t.Fatalf("request of %d bytes: another answer came, of %d", len(request), n)
		}
		for ; try > 0; try-- { // what was only late may be answered again
			if _, err := read(time.Second); err != nil {
				return
			}
		}
		return
	}
}

// stats waits until the counters satisfy f: they are published after a batch.
func stats(t *testing.T, e *engine.Engine, what string, f func(s engine.Stats) bool) engine.Stats {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		s := e.Stats()
		if f(s) {
			return s
		}
		if time.Now().After(deadline) {
			t.Fatalf("not so: %s; %+v", what, s)
		}
		e.Workers()[0].Post(func() {}) // another round
		time.Sleep(time.Millisecond)
	}
}
