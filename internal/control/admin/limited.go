package admin

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"sync"

	"github.com/weir-lb/weir/internal/steering/evict"
)

// limited is a listener with a bounded number of open connections. A connection is proven while a request of it is being
// answered; otherwise it waits. When all slots are taken, a new connection replaces a waiting one: the oldest of the source
// that holds most. A new connection is closed only if all others are being answered.
type limited struct {
	net.Listener

	mu      sync.Mutex     // guards what follows
	conns   []*trackedConn // by slot; nil: free
	free    []int32
	waiting evict.Order[evict.Source]
	evicted uint64
	refused uint64
}

func newLimited(l net.Listener, maximum int) *limited {
	limit := &limited{Listener: l, conns: make([]*trackedConn, maximum)}
	for slot := range maximum {
		limit.free = append(limit.free, int32(slot))
	}
	return limit
}

// trackedConn is a connection with its slot.
type trackedConn struct {
	net.Conn
	limit  *limited
	slot   int32 // guarded by limit.mu; -1: closed
	source evict.Source
}

func (l *limited) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		p := &trackedConn{Conn: conn, limit: l, source: sourceOf(conn.RemoteAddr())}
		replaced, ok := l.assignSlot(p)
		if replaced != nil {
			replaced.Conn.Close() //nolint:errcheck // its client sees the end of the connection
		}
		if ok {
			return p, nil
		}
		conn.Close() //nolint:errcheck // nothing was sent on it
	}
}

func sourceOf(a net.Addr) evict.Source {
	if at, err := netip.ParseAddrPort(a.String()); err == nil {
		return evict.SourceOf(at.Addr().Unmap())
	}
	return 0 // a Unix socket
}

// assignSlot gives a connection a slot; if none is free, that of a waiting connection.
func (l *limited) assignSlot(p *trackedConn) (replaced *trackedConn, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.free) == 0 {
		slot, some := l.waiting.First()
		if !some {
			l.refused++
			return nil, false
		}
		replaced = l.conns[slot]
		l.freeLocked(replaced)
		l.evicted++
	}
	p.slot = l.free[len(l.free)-1]
	l.free = l.free[:len(l.free)-1]
	l.conns[p.slot] = p
	l.waiting.Add(p.slot, p.source)
	return replaced, true
}

func (l *limited) freeLocked(p *trackedConn) {
	if p.slot < 0 {
		return
	}
	l.waiting.Remove(p.slot)
	l.conns[p.slot] = nil
	l.free = append(l.free, p.slot)
	p.slot = -1
}

func (p *trackedConn) Close() error {
	p.limit.mu.Lock()
	p.limit.freeLocked(p)
	p.limit.mu.Unlock()
	return p.Conn.Close()
}

// answers marks a connection as being answered, or as waiting again.
func (p *trackedConn) answers(yes bool) {
	p.limit.mu.Lock()
	defer p.limit.mu.Unlock()
	switch {
	case p.slot < 0:
	case yes:
		p.limit.waiting.Remove(p.slot)
	default:
		p.limit.waiting.Add(p.slot, p.source)
	}
}

type trackedConnKey struct{}

func withTrackedConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, trackedConnKey{}, conn)
}

// trackAnswering protects the slot of a connection while next answers.
func trackAnswering(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p, ok := r.Context().Value(trackedConnKey{}).(*trackedConn); ok {
			p.answers(true)
			defer p.answers(false)
		}
		next.ServeHTTP(w, r)
	})
}

// Connections are the counters of an address.
type Connections struct {
	Open    int    `metric:"weir_admin_connections" help:"Open connections to this address."`
	Evicted uint64 `metric:"weir_admin_connections_evicted_total" help:"Waiting connections that made room for new ones."`
	Refused uint64 `metric:"weir_admin_connections_refused_total" help:"Connections refused, because a request of every other one was being answered."`
}

func (l *limited) stats() Connections {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Connections{Open: len(l.conns) - len(l.free), Evicted: l.evicted, Refused: l.refused}
}
