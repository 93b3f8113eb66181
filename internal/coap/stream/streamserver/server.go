package streamserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-lb/weir/internal/metrics"
	"github.com/weir-lb/weir/internal/steering/evict"
	"github.com/weir-lb/weir/internal/workers"
)

// Server is an open TCP listener and its workers.
type Server struct {
	cfg      Config
	listener *net.TCPListener
	addr     netip.AddrPort
	workers  []*Worker
	ran      atomic.Bool
	closing  sync.WaitGroup // accept loop and handshakes

	mu    sync.Mutex // of group
	group *workers.Group[*Worker]

	handshakes handshakes
}

// Open binds exactly the address: :: accepts IPv4 too, 0.0.0.0 does not accept IPv6. Run serves and finally closes it, so it must be
// called after Open, if necessary with a context that has already ended.
func Open(cfg Config) (*Server, error) {
	cfg = cfg.withDefaults()
	network := "tcp"
	if cfg.Listen.Addr().Is4() {
		network = "tcp4"
	}
	config := net.ListenConfig{KeepAlive: -1} // the workers close idle connections
	config.SetMultipathTCP(false)
	bound, err := config.Listen(context.Background(), network, cfg.Listen.String())
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", cfg.Listen, err)
	}
	s := &Server{cfg: cfg, listener: bound.(*net.TCPListener)}
	s.addr = unmapped(bound.Addr())
	s.handshakes.sources = map[evict.Source]int{}
	s.group = workers.New[*Worker](&s.mu, workers.Limits{Messages: inboxSize})
	for range cfg.Workers {
		w, err := newWorker(s)
		if err != nil {
			s.release()
			return nil, err
		}
		s.workers = append(s.workers, w)
	}
	for _, w := range s.workers {
		w.handler = cfg.NewHandler(w)
	}
	return s, nil
}

// Addr is the address of the listener, with the port that was taken.
func (s *Server) Addr() netip.AddrPort { return s.addr }

// Run accepts and serves until ctx ends, then closes every connection. Call it once.
func (s *Server) Run(ctx context.Context) error {
	if s.ran.Swap(true) {
		return errors.New("coap stream server: Run was called before")
	}
	defer s.release()
	return s.group.Run(ctx, func() error { return nil }, (*Worker).run, func(ctx context.Context) {
		s.closing.Add(1)
		go s.accept(ctx)
		<-ctx.Done()
		_ = s.listener.Close()
		s.handshakes.closeAll()
		s.closing.Wait()
	})
}

func (s *Server) release() {
	_ = s.listener.Close()
	for _, w := range s.workers {
		w.close()
	}
}

// accept takes connections until the listener is closed.
func (s *Server) accept(ctx context.Context) {
	defer s.closing.Done()
	for {
		conn, err := s.listener.AcceptTCP()
		switch {
		case err == nil:
			s.begin(ctx, conn)
		case errors.Is(err, net.ErrClosed):
			return
		default: // out of descriptors or memory: what waits stays in the kernel's backlog
			s.cfg.Log.Warn("accept a connection", "listener", s.addr, "error", err)
			select {
			case <-ctx.Done():
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
}

// begin gives a connection to its worker, over TLS after the handshake.
func (s *Server) begin(ctx context.Context, conn *net.TCPConn) {
	client := unmapped(conn.RemoteAddr())
	w := s.workerFor(client)
	w.accepted.Add(1)
	if s.cfg.TLS == nil {
		w.take(conn, nil, nil, client)
		return
	}
	if !s.handshakes.enter(conn, evict.SourceOf(client.Addr()), s.cfg.MaxHandshakes) {
		w.refused.Add(1)
		_ = conn.SetLinger(0) // no TIME_WAIT state
		_ = conn.Close()
		return
	}
	s.closing.Add(1)
	go func() {
		defer s.closing.Done()
		defer s.handshakes.leave(conn, evict.SourceOf(client.Addr()))
		secure, wire, err := shake(ctx, s.cfg.TLS, conn)
		if err != nil {
			w.failed.Add(1)
			_ = conn.Close()
			return
		}
		w.take(conn, secure, wire, client)
	}()
}

// workerFor spreads connections, those of one source too: a share of each worker is a share of all.
func (s *Server) workerFor(client netip.AddrPort) *Worker {
	hash := (uint64(evict.SourceOf(client.Addr())) ^ uint64(client.Port())<<20) * 0x9e3779b97f4a7c15
	return s.workers[hash>>32%uint64(len(s.workers))]
}

// Stats adds up the counters of the workers. Safe from any goroutine.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	var total Stats
	s.group.Do(func(w *Worker) {
		w.stats.Connections, w.stats.Guests = w.all.Len(), w.guests.Len()
		metrics.Add(&total, &w.stats)
		total.Accepted += w.accepted.Load()
		total.Refused += w.refused.Load()
		total.Failed += w.failed.Load()
	})
	total.Handshakes = s.handshakes.count()
	return total
}

// Workers returns the workers, for Post.
func (s *Server) Workers() []*Worker { return s.workers }

func unmapped(a net.Addr) netip.AddrPort {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return netip.AddrPortFrom(tcp.AddrPort().Addr().Unmap(), uint16(tcp.Port))
	}
	return netip.AddrPort{}
}
