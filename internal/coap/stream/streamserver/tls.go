package streamserver

import (
	"context"
	"crypto/tls"
	"net"
	"sync"

	"github.com/weir-lb/weir/internal/coap/stream"
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

// shake runs the handshake of a server.
func shake(ctx context.Context, cfg *tls.Config, conn net.Conn) (*tls.Conn, *stream.Wire, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	w := &stream.Wire{Conn: conn}
	secure := tls.Server(w, cfg)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, nil, err
	}
	return secure, w, nil
}
