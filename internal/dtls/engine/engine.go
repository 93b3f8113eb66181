package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/metrics"
	"github.com/weir-lb/weir/internal/udpio"
	"github.com/weir-lb/weir/internal/workers"
)

// socketBuffer is the requested size of a socket's buffers in bytes. It holds a burst of some thousand clients, which would
// overflow the system's default.
const socketBuffer = 4 << 20

// Engine is an open group of sockets and its workers.
type Engine struct {
	cfg     Config
	workers []*Worker
	loops   []*loop
	mu      sync.Mutex // of group
	group   *workers.Group[*loop]
	leaving atomic.Bool
	reading atomic.Int32  // workers that still read
	allRead chan struct{} // closed when none does
	public  *udpio.Group
	link    *udpio.Group
}

// Open opens the sockets. Run serves and finally closes them. Therefore Run must be called after Open, if necessary with a
// context that has already ended.
func Open(cfg Config) (*Engine, error) {
	if err := cfg.defaults(); err != nil {
		return nil, err
	}
	e := &Engine{cfg: cfg, allRead: make(chan struct{})}
	e.reading.Store(int32(cfg.Workers))
	e.group = workers.New[*loop](&e.mu, workers.Limits{Messages: maxRequests})
	listen := udpio.Config{
		Addr: cfg.Listen, Sockets: cfg.Workers, Batch: cfg.Batch, Drops: true,
		ReadBuffer: socketBuffer, WriteBuffer: socketBuffer, Shared: cfg.Shared,
	}
	if cfg.CIDs != nil {
		listen.Steer = cfg.CIDs.Steering(cfg.Workers)
	}
	var err error
	if e.public, err = listenOrAdopt(listen, cfg.Sockets); err != nil {
		closeAll(cfg.LinkSockets)
		return nil, err
	}
	if cfg.Cluster != nil {
		e.link, err = listenOrAdopt(udpio.Config{
			Addr: cfg.Link, Sockets: cfg.Workers, Batch: cfg.Batch, Coalesce: true, Drops: true,
			ReadBuffer: socketBuffer, WriteBuffer: socketBuffer, Steer: cfg.CIDs.linkSteering(cfg.Workers, cfg.LinkHeader),
		}, cfg.LinkSockets)
	}
	if err == nil {
		err = e.open()
	}
	if err != nil {
		e.close()
		return nil, err
	}
	return e, nil
}

// open makes the workers and restores the sessions. The sockets are open.
func (e *Engine) open() error {
	if e.cfg.OpenArena != nil {
		e.cfg.Arena = e.cfg.OpenArena()
	}
	start := time.Now()
	if e.cfg.Arena != nil {
		start = e.cfg.Arena.Start()
	}
	secret := make([]byte, handshake.CookieSecretLength)
	if _, err := rand.Read(secret); err != nil {
		return err
	}
	for i := range e.cfg.Workers {
		w, err := newServingWorker(i, &e.cfg, secret)
		if err != nil {
			return err
		}
		var link *udpio.Conn
		if e.link != nil {
			link = e.link.Conn(i)
		}
		l, err := newLoop(e, w, e.public.Conn(i), link, start)
		if err != nil {
			return err
		}
		e.workers = append(e.workers, w)
		e.loops = append(e.loops, l)
	}
	var shared *returns
	if e.link != nil && e.public.Conn(0).Wildcard() {
		shared = newReturns()
	}
	for _, w := range e.workers {
		w.workers, w.returns = e.workers, shared
		w.setHandler(e.cfg.NewHandler(w))
	}
	e.restore(time.Since(start))
	return nil
}

// newServingWorker makes a worker with the handshake server that it needs.
func newServingWorker(id int, cfg *Config, secret []byte) (*Worker, error) {
	if cfg.Plain {
		return newWorker(id, cfg, nil), nil
	}
	var w *Worker
	hs := handshake.ServerConfig{
		Config: handshake.Config{
			Suites: cfg.Suites, Groups: cfg.Groups, Credentials: cfg.Credentials, RequireExtendedMaster: cfg.RequireExtendedMaster, MTU: cfg.MTU,
		},
		PSK: cfg.PSK, ClientAuth: cfg.ClientAuth, Resumption: cfg.Resumption, CookieSecret: secret,
		Admit: func(from netip.AddrPort) bool { return w.admit(from) },
	}
	if cfg.CIDs != nil {
		hs.NewCID = func() ([]byte, error) { return w.newCID() }
	}
	server, err := handshake.NewServer(hs)
	if err != nil {
		return nil, err
	}
	w = newWorker(id, cfg, server)
	return w, nil
}

// newCID makes a connection id that no session of the worker has.
func (w *Worker) newCID() ([]byte, error) {
	for range 16 {
		id, err := w.cfg.CIDs.new(w.id, w.cfg.Workers)
		if err != nil {
			return nil, err
		}
		if w.peers.byCID[makeKey(id)] == nil {
			return id, nil
		}
	}
	return nil, errors.New("no connection id left")
}

// defaults checks the configuration and fills in what is not set.
func (c *Config) defaults() error {
	switch {
	case c.NewHandler == nil:
		return errors.New("engine: no handler")
	case !c.Plain && c.PSK == nil && c.Credentials == nil:
		return errors.New("engine: neither a PSK look-up nor certificates")
	case c.Plain && c.Cluster != nil:
		return errors.New("engine: a cluster needs DTLS: plain datagrams carry no connection id")
	case c.Cluster != nil && c.CIDs == nil:
		return errors.New("engine: a cluster needs connection ids")
	case c.Workers < 0 || c.Workers > 256:
		return fmt.Errorf("engine: %d workers: want 1 to 256, or 0 for one per core", c.Workers)
	}
	if c.CIDs != nil {
		if err := c.CIDs.validate(); err != nil {
			return fmt.Errorf("engine: %w", err)
		}
	}
	if c.Plain {
		c.CIDs = nil
	}
	setDefault(&c.Workers, runtime.GOMAXPROCS(0))
	setDefault(&c.MaxSessions, 65536)
	setDefault(&c.MaxHalfOpen, 8192)
	setDefault(&c.HandshakeLife, 30*time.Second)
	setDefault(&c.StaleAfter, 30*time.Minute)
	setDefault(&c.Amplification, 3)
	if c.Trusted == nil {
		c.Trusted = loopback
	}
	setDefault(&c.Batch, defaultBatch)
	setDefault(&c.LinkHeader, 8)
	return nil
}

func setDefault[T int | time.Duration](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}

// Addr is the public address, with the port that was taken.
func (e *Engine) Addr() netip.AddrPort { return e.public.LocalAddr() }

// LinkAddr is the link socket's address, invalid without a cluster.
func (e *Engine) LinkAddr() netip.AddrPort {
	if e.link == nil {
		return netip.AddrPort{}
	}
	return e.link.LocalAddr()
}

// Workers returns the workers, for Post.
func (e *Engine) Workers() []*Worker { return e.workers }

// Run serves until ctx ends, then sends close_notify to every session, closes the sockets and returns nil. If a socket
// fails, it returns that error. Call it once.
func (e *Engine) Run(ctx context.Context) error {
	if e.cfg.Log != nil {
		e.cfg.Log.Debug("serving", "address", e.Addr(), "workers", len(e.workers), "plain", e.cfg.Plain)
	}
	begin := func() error { return nil }
	work := func(l *loop) error {
		defer l.readNoMore()
		return socketError(l.worker.id, l.run())
	}
	err := e.group.Run(ctx, begin, work, func(ctx context.Context) { <-ctx.Done() })
	e.close()
	return err
}

func (e *Engine) close() {
	for _, l := range e.loops {
		l.close()
	}
	if e.public != nil {
		_ = e.public.Close()
	}
	if e.link != nil {
		_ = e.link.Close()
	}
}

// Leave makes Run, when its context ends, leave the sessions of the arena, or those that other nodes have copies of, as they are, for another process: their clients receive
// nothing. It is to be called before the context ends.
func (e *Engine) Leave() {
	e.leaving.Store(e.cfg.Arena != nil || len(e.workers) > 0 && e.workers[0].copying.to != nil)
}

// Descriptors are those of the public sockets and of the link's, in the order of the workers, for Config.Sockets and Config.LinkSockets
// of another process. They stay the engine's.
func (e *Engine) Descriptors() (public, link []int) {
	return descriptors(e.public), descriptors(e.link)
}

// Stats adds up the workers' counters. Safe from any goroutine.
func (e *Engine) Stats() Stats {
	var sum Stats
	for _, w := range e.workers {
		s := w.Stats()
		metrics.Add(&sum, &s)
	}
	return sum
}
