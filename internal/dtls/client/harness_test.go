package client_test

import (
	"bytes"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/dtls/client"
	"github.com/weir-lb/weir/internal/dtls/engine"
	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/udpio"
)

// network is a server and one client's socket, in memory: a client.Socket.
type network struct {
	begun time.Time

	mu       sync.Mutex
	server   *engine.Embedded
	from     netip.AddrPort // of the client
	lose     func(toServer bool, datagram []byte) bool
	info     engine.Info
	peer     *engine.Peer
	sessions int

	in       chan []byte
	deadline time.Time
	changed  chan struct{} // the deadline, or closed
	closed   bool
}

var serverAddress, clientAddress = netip.MustParseAddrPort("192.0.2.1:5684"), netip.MustParseAddrPort("198.51.100.1:40000")

// newNetwork starts a server that sends every message back.
func newNetwork(t *testing.T, cfg engine.Config) *network {
	t.Helper()
	n := &network{begun: time.Now(), from: clientAddress, in: make(chan []byte, 1000), changed: make(chan struct{}, 1)}
	cfg.NewHandler = func(*engine.Worker) engine.Handler { return (*mirror)(n) }
	embedded, err := engine.Embed(cfg, []engine.Owner{{Wake: func() {}, Write: func(messages []udpio.Message) {
		for _, m := range messages {
			if n.lose == nil || !n.lose(false, m.Buf[:m.N]) {
				n.in <- bytes.Clone(m.Buf[:m.N])
			}
		}
	}}})
	if err != nil {
		t.Fatal(err)
	}
	n.server = embedded[0]
	return n
}

// Write implements client.Socket.
func (n *network) Write(b []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return 0, net.ErrClosed
	}
	if n.lose == nil || !n.lose(true, b) {
		n.server.Receive(bytes.Clone(b), n.from, serverAddress.Addr(), time.Since(n.begun))
		n.server.Flush()
	}
	return len(b), nil
}

// Read implements client.Socket.
func (n *network) Read(b []byte) (int, error) {
	for {
		n.mu.Lock()
		closed, deadline := n.closed, n.deadline
		n.mu.Unlock()
		var over <-chan time.Time
		switch {
		case closed:
			return 0, net.ErrClosed
		case !deadline.IsZero() && !time.Now().Before(deadline):
			return 0, os.ErrDeadlineExceeded
		case !deadline.IsZero():
			over = time.After(time.Until(deadline))
		}
		select {
		case datagram := <-n.in:
			return copy(b, datagram), nil
		case <-over:
		case <-n.changed:
		}
	}
}

// SetReadDeadline implements client.Socket.
func (n *network) SetReadDeadline(t time.Time) error {
	n.change(func() { n.deadline = t })
	return nil
}

// Close implements client.Socket.
func (n *network) Close() error {
	n.change(func() { n.closed = true })
	return nil
}

// change changes what a Read waits for.
func (n *network) change(f func()) {
	n.mu.Lock()
	f()
	n.mu.Unlock()
	select {
	case n.changed <- struct{}{}:
	default:
	}
}

// onServer runs f as the server's goroutine would.
func (n *network) onServer(f func(w *engine.Worker)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.server.Tick(time.Since(n.begun))
	f(n.server.Worker())
	n.server.Flush()
}

// mirror is the server's handler.
type mirror network

func (m *mirror) Serve(p *engine.Peer, in, out []byte, _ time.Duration) []byte {
	m.info, m.peer = p.Info(), p
	return append(out, in...)
}
func (m *mirror) Tick(time.Duration) time.Duration             { return engine.Never }
func (m *mirror) Closed(*engine.Peer, time.Duration)           { m.sessions-- }
func (m *mirror) Admit(netip.AddrPort, netip.Addr) (any, bool) { return nil, true }
func (m *mirror) Dismissed(any, engine.HandshakeEnd)           {}
func (m *mirror) Established(*engine.Peer)                     { m.sessions++ }

// psk is the configuration of a server, and of a client, with a pre-shared key.
func psk() (engine.Config, handshake.ClientConfig) {
	return engine.Config{
		CIDs: engine.ByteOwnerCIDs(6, 7),
		PSK:  func(identity []byte) ([]byte, bool) { return []byte("secret"), string(identity) == "device" },
	}, handshake.ClientConfig{
		Identity: []byte("device"), Key: []byte("secret"), OfferCID: true, OfferRoutability: true, CID: []byte("cli"),
	}
}

// mustDial makes a session.
func mustDial(t *testing.T, n *network, cfg handshake.ClientConfig) *client.Conn {
	t.Helper()
	c, err := client.Dial(t.Context(), n, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// roundTrip sends a message and expects it back.
func roundTrip(t *testing.T, c *client.Conn, message []byte) {
	t.Helper()
	if _, err := c.Write(message); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1<<16)
	n, err := c.Read(b)
	if err != nil || !bytes.Equal(b[:n], message) {
		t.Fatalf("%d bytes of %d came back: %v", n, len(message), err)
	}
}
