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
	"github.com/weir-lb/weir/internal/workers"
)

// Options are what the process provides to a gateway.
type Options struct {
	Workers int // default one per core; the number of sockets in the Store takes precedence
	// Log receives messages; those of the DNS resolver and of the offload have an attribute "scope". Default: nothing
	// is logged.
	Log     *slog.Logger
	Offload Offload // nil: user space relays every packet
	// NoCoalesce makes the kernel deliver datagrams one by one (no UDP_GRO), because Offload cannot relay datagrams
	// that were joined before it.
	NoCoalesce bool
	Store      Store // nil: nothing outlives the process
	// Now is the clock of lifetimes: nanoseconds of a clock that no one can set. Several goroutines call it. Default
	// Clock.
	Now func() int64
	// Wall is the time in Unix nanoseconds. It is used for ephemeral credentials, for times that people read, and for
	// records of another boot. Default time.Now, or Now if that is set.
	Wall func() int64
	Boot string // identifies the boot of the host: the clocks Now of two processes are comparable if it is equal; default the kernel's boot id
	// Routes are the resolver's functions for look-ups. The gateway sets Changed and Log itself.
	Routes routes.Options
}

// Gateway is a TURN server. All methods may be called by any goroutine.
type Gateway struct {
	options  Options
	shared   *allocation.Shared
	router   *routes.Router
	nonceKey []byte
	clock    clockRecord // the goroutine of watch owns Wall while the gateway runs
	ports    portTable
	offload  offloads
	workers  []*worker
	group    *workers.Group[*worker]
	streams  *streams // what TCP, TLS and DTLS listeners share
	draining atomic.Bool
	spare    bool // there are more processors than workers

	applying sync.Mutex // one Apply at a time; taken before mu

	mu        sync.Mutex // guards the fields below and serializes changes
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

// Open binds the listeners of a validated config. Nothing is read before Run. With a Store it adopts the stored
// sockets and allocations. A gateway that will not Run must be closed.
func Open(c Config, o Options) (*Gateway, error) {
	o.setDefaults()
	c = c.WithDefaults()
	g := &Gateway{options: o, clusters: map[string]uint16{}}
	g.group = workers.New[*worker](&g.mu, workers.Limits{})
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

// Run serves until ctx ends, then closes everything and returns nil. What a Store holds stays there. It returns an
// error if a worker fails.
func (g *Gateway) Run(ctx context.Context) error {
	if err := g.group.Run(ctx, g.beginLocked, (*worker).run, g.background); err != nil {
		return errors.Join(err, g.Close())
	}
	return g.Close()
}

func (g *Gateway) beginLocked() error {
	if g.state != prepared {
		return errors.New("run the TURN gateway: it runs already, or is closed")
	}
	g.state = running
	g.spare = runtime.GOMAXPROCS(0) > len(g.workers)
	return nil
}

// background does what the gateway's workers do not.
func (g *Gateway) background(ctx context.Context) {
	var both sync.WaitGroup
	both.Go(func() {
		if err := g.router.Run(ctx); err != nil && ctx.Err() == nil {
			g.options.Log.Error("routes are not refreshed any more", "error", err)
		}
	})
	both.Go(func() { g.watch(ctx) })
	both.Wait()
}

// Close frees every socket of a gateway that does not run.
func (g *Gateway) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.group.Running() {
		return errors.New("close the TURN gateway: it still runs")
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

// Drain, if on, refuses new allocations: with 300 and the alternate address if that is valid, else with 508. Existing
// allocations stay.
func (g *Gateway) Drain(on bool, alternate netip.AddrPort) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.draining.Store(on)
	g.alternate = alternate
	if err := g.shared.SetPolicy(g.policyLocked(&g.config)); err != nil {
		g.options.Log.Error("drain", "error", err)
	}
}

// ErrDraining is the error of Ready while the gateway drains.
var ErrDraining = errors.New("the gateway drains")

// Ready returns why the gateway should get no new clients, nil if it should get them.
func (g *Gateway) Ready() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.state != running:
		return errors.New("the gateway does not run")
	case g.draining.Load():
		return ErrDraining
	case len(g.config.Listeners) == 0:
		return errors.New("no listener is configured")
	}
	return nil
}

// Respond returns when every worker has finished an iteration: they serve.
func (g *Gateway) Respond() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.doLocked(func(*worker) {})
}

// doLocked runs f in every worker, one after the other, and waits for each. The caller holds g.mu.
func (g *Gateway) doLocked(f func(*worker)) {
	for _, w := range g.workers {
		g.runInLocked(w, f)
	}
}

// runInLocked runs f in one worker and waits for it. Before Run and after its end, f runs in the caller's goroutine.
func (g *Gateway) runInLocked(w *worker, f func(*worker)) {
	if !g.group.Running() {
		w.now = g.options.Now()
		defer w.endPoll()
	}
	g.group.One(w.index, f)
}
