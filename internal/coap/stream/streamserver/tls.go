package streamserver

import (
	"context"
	"crypto/tls"
	"net"
	"sync"

	"github.com/weir-lb/weir/internal/steering/evict"
)

// handshakes are the TLS handshakes under way. Its methods are safe from any goroutine.
type handshakes struct {
	mu      sync.Mutex
	conns   map[net.Conn]struct{}
	sources map[evict.Source]int
	closed  bool
}

// enter adds a handshake, or returns false if the bound or the share of its source is reached. A source that already has its share
// does not shut out others: the rest of the bound is theirs.
func (h *handshakes) enter(conn net.Conn, source evict.Source, bound int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || len(h.conns) >= bound || h.sources[source] >= share(bound) {
		return false
	}
	if h.conns == nil {
		h.conns = map[net.Conn]struct{}{}
	}
	h.conns[conn] = struct{}{}
	h.sources[source]++
	return true
}

func (h *handshakes) leave(conn net.Conn, source evict.Source) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.conns, conn)
	if h.sources[source]--; h.sources[source] == 0 {
		delete(h.sources, source)
	}
}

func (h *handshakes) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.conns)
}

// closeAll ends all handshakes, also those to come.
func (h *handshakes) closeAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for conn := range h.conns {
		_ = conn.Close()
	}
}

// wire is what a TLS connection reads from and writes to. The handshake blocks on the socket, in a goroutine. Then the worker owns
// both: TLS reads what the worker has read, and gets errWouldBlock instead of blocking; what TLS writes is queued.
type wire struct {
	net.Conn       // used while it blocks
	peer     *Peer // nil: reads and writes block
	in       []byte
	err      error // of the socket, after these bytes
}

// errWouldBlock is a net.Error that crypto/tls treats as temporary: the next Read continues where this one ended.
var errWouldBlock net.Error = wouldBlock{}

type wouldBlock struct{}

func (wouldBlock) Error() string   { return "nothing to read now" }
func (wouldBlock) Timeout() bool   { return true }
func (wouldBlock) Temporary() bool { return true }

// Read implements net.Conn.
func (t *wire) Read(b []byte) (int, error) {
	switch {
	case len(t.in) > 0:
		n := copy(b, t.in)
		t.in = t.in[n:]
		return n, nil
	case t.peer == nil:
		return t.Conn.Read(b)
	case t.err != nil:
		return 0, t.err
	}
	return 0, errWouldBlock
}

// Write implements net.Conn.
func (t *wire) Write(b []byte) (int, error) {
	if t.peer == nil {
		return t.Conn.Write(b)
	}
	t.peer.out = append(t.peer.out, b...)
	return len(b), nil
}

// shake runs the handshake of a server.
func shake(ctx context.Context, cfg *tls.Config, conn net.Conn) (*tls.Conn, *wire, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	w := &wire{Conn: conn}
	secure := tls.Server(w, cfg)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, nil, err
	}
	return secure, w, nil
}
