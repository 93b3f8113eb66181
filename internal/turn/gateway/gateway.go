package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-lb/weir/internal/turn/allocation"
	"github.com/weir-lb/weir/internal/turn/routes"
)

// Options are what the process around a gateway gives it.
type Options struct {
	Workers int // default one per core; a Store's sockets overrule it
	// Log has an attribute "scope" on what the resolver of names and the offload say. Default: nothing is logged.
	Log     *slog.Logger
	Offload Offload // nil: every packet goes through user space
	// NoCoalesce has the kernel hand over datagrams one by one (no UDP_GRO): Offload cannot relay what was joined before it.
	NoCoalesce bool
	Store      Store // nil: nothing outlives the process
	// Now is what lifetimes go by: nanoseconds that nobody can set. Called by several goroutines; default Clock.
	Now func() int64
	// Wall is the time in Unix nanoseconds: ephemeral credentials, what people read and records of another boot go by it.
	// Default time.Now, or Now where that is given.
	Wall func() int64
	Boot string // names the boot of the host: Now of two processes is comparable if it is the same; default the kernel's
	// Routes are the ways to the world of the routes' resolver. Changed and Log are the gateway's.
	Routes routes.Options
}

// Gateway is a TURN server. All methods may be called by any goroutine.
type Gateway struct {
	options  Options
	shared   *allocation.Shared
	router   *routes.Router
	nonceKey []byte
	clock    clockRecord // Wall belongs to watch once the gateway runs
	ports    portTable
	offload  offloads
	workers  []*worker
	streams  *streams      // what TCP, TLS and DTLS listeners share
	stopped  chan struct{} // closed when workers do not serve posts any more
	draining atomic.Bool
	spare    bool // there are processors beside those of busy workers

	applying sync.Mutex // one Apply at a time; taken before mu

	mu        sync.Mutex // guards what follows, and keeps changes apart
	config    Config
	listeners []*listener // by id; nil where one was closed
	clusters  map[string]uint16
	alternate netip.AddrPort
	state     runState
}

type runState uint8

const (
	prepared runState = iota
	running
	closed
)

func (o *Options) setDefaults() {
	o.Workers = cmp.Or(o.Workers, runtime.NumCPU())
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Wall == nil {
		o.Wall = o.Now
	}
	if o.Now == nil {
		o.Now = Clock()
	}
	if o.Wall == nil {
		o.Wall = func() int64 { return time.Now().UnixNano() }
	}
	o.Boot = cmp.Or(o.Boot, bootID())
}

// Open binds the listeners of a validated config; nothing moves until Run. With a Store it adopts the sockets and
// allocations that are kept. A gateway that will not Run must be closed.
func Open(c Config, o Options) (*Gateway, error) {
	o.setDefaults()
	c = c.WithDefaults()
	g := &Gateway{options: o, stopped: make(chan struct{}), clusters: map[string]uint16{}}
	g.ports.init()
	g.offload.init(g)
	g.streams = newStreams(c.Limits)
	if err := g.prepare(c); err != nil {
		_ = g.Close()
		return nil, fmt.Errorf("open the TURN gateway: %w", err)
	}
	return g, nil
}

func (g *Gateway) prepare(c Config) error {
	ro := g.options.Routes
	ro.Log = g.options.Log.With("scope", "resolver")
	ro.Changed = func(*routes.Table) { g.policyChanged() }
	g.router = routes.NewRouter(ro)
	if err := g.newShared(c); err != nil {
		return err
	}
	count := g.storedWorkers(c)
	for i := range count {
		w, err := newWorker(g, i)
		if err != nil {
			return err
		}
		g.workers = append(g.workers, w)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range c.Listeners {
		if _, err := g.openListenerLocked(c.Listeners[i]); err != nil {
			return fmt.Errorf("listener %s: %w", c.Listeners[i].Name, err)
		}
	}
	g.config = c
	g.offload.limit(c.Quotas)
	if err := g.routeLocked(context.Background(), &c); err != nil {
		return err
	}
	g.restoreLocked()
	return nil
}

// Run serves until ctx ends, then closes everything, and returns nil. What a Store holds stays with it. An error is
// one that a worker cannot live with.
func (g *Gateway) Run(ctx context.Context) error {
	g.mu.Lock()
	if g.state != prepared {
		g.mu.Unlock()
		return errors.New("run the TURN gateway: it runs already, or is closed")
	}
	g.state = running
	g.spare = runtime.GOMAXPROCS(0) > len(g.workers)
	g.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make(chan error, len(g.workers))
	var workers, others sync.WaitGroup
	for _, w := range g.workers {
		workers.Go(func() { errs <- w.run() })
	}
	others.Go(func() {
		if err := g.router.Run(ctx); err != nil && ctx.Err() == nil {
			g.options.Log.Error("routes are not refreshed any more", "error", err)
		}
	})
	others.Go(func() { g.watch(ctx) })
	var first error
	select {
	case <-ctx.Done():
	case first = <-errs:
	}
	cancel()
	for _, w := range g.workers {
		w.post(func(w *worker) { w.stop = true })
	}
	workers.Wait()
	close(g.stopped)
	others.Wait()
	return errors.Join(first, g.Close())
}

// Close frees every socket of a gateway that does not run.
func (g *Gateway) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.stopped:
	default:
		if g.state == running {
			return errors.New("close the TURN gateway: it still runs")
		}
		close(g.stopped)
	}
	if g.state == closed {
		return nil
	}
	g.state = closed
	for _, l := range g.listeners {
		if l != nil {
			l.close(g)
		}
	}
	for _, w := range g.workers {
		w.close()
	}
	g.ports.close()
	return nil
}

// Drain on refuses new allocations (300 with the alternate where it is valid, else 508). Existing ones stay.
func (g *Gateway) Drain(on bool, alternate netip.AddrPort) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.draining.Store(on)
	g.alternate = alternate
	if err := g.shared.SetPolicy(g.policyLocked(&g.config)); err != nil {
		g.options.Log.Error("drain", "error", err)
	}
}

// Ready says why the gateway should get no new clients, nil if it should.
func (g *Gateway) Ready() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.state != running:
		return errors.New("the gateway does not run")
	case g.draining.Load():
		return errors.New("the gateway drains")
	case len(g.config.Listeners) == 0:
		return errors.New("no listener is configured")
	}
	return nil
}

// doLocked runs f in every worker, one after the other, and waits. The caller holds g.mu.
func (g *Gateway) doLocked(f func(*worker)) {
	for _, w := range g.workers {
		g.runInLocked(w, f)
	}
}

// runInLocked runs f in one worker and waits; before Run and after the end, in the caller's goroutine.
func (g *Gateway) runInLocked(w *worker, f func(*worker)) {
	if g.state != running {
		w.now = g.options.Now()
		f(w)
		w.endPoll()
		return
	}
	done := make(chan struct{})
	w.post(func(w *worker) {
		defer close(done)
		f(w)
	})
	select {
	case <-done:
	case <-g.stopped: // the worker is gone; its state is nobody's
		select {
		case <-done:
		default:
			f(w)
		}
	}
}
