package health

import (
	"context"
	"hash/fnv"
	"log/slog"
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/weir-lb/weir/internal/metrics"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// Probe is what is asked of one backend.
type Probe struct {
	Health  lb.Health
	Address netip.AddrPort // of the backend; of a VIP with a tunnel
	Tunnel  lb.Tunnel      // NoTunnel: the backend is asked at its own address
	Through netip.Addr     // the other end of the tunnel: the backend
}

// ProbeFunc probes one backend once and returns nil if it is healthy. It must return when ctx ends (the timeout).
type ProbeFunc func(ctx context.Context, p *Probe) error

// maxInFlight bounds sockets and threads, whatever the number of backends.
const maxInFlight = 128

// retry is how long a refused report waits.
const retry = time.Second

// Prober probes the backends of the snapshot it follows. Follow and Stop are for one goroutine.
type Prober struct {
	ctx    context.Context // of all loops; ended by Stop
	cancel context.CancelFunc
	probe  ProbeFunc
	log    *slog.Logger
	report func(map[lb.Target]lb.Override) error
	slots  chan struct{}
	wake   chan struct{} // capacity 1: pending has something
	group  sync.WaitGroup

	watched map[lb.Target]*watch // Follow's only

	mu        sync.Mutex // guards the rest
	pending   map[lb.Target]lb.Override
	durations map[Result]metrics.Histogram
}

// watch is one probed backend.
type watch struct {
	probe  Probe
	cancel context.CancelFunc
	done   chan struct{}
}

// New returns a prober that probes nothing yet. report receives the changes, several targets at a time,
// from one goroutine; changes that it refuses with an error are reported again.
func New(ctx context.Context, probe ProbeFunc, log *slog.Logger, report func(map[lb.Target]lb.Override) error) *Prober {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(ctx)
	p := &Prober{
		ctx: ctx, cancel: cancel, probe: probe, log: log, report: report,
		slots: make(chan struct{}, maxInFlight), wake: make(chan struct{}, 1),
		watched: map[lb.Target]*watch{}, pending: map[lb.Target]lb.Override{},
		durations: map[Result]metrics.Histogram{},
	}
	p.group.Go(p.runReports)
	return p
}

// Follow probes the backends of a snapshot from now on. Backends whose probe did not change keep their state; those
// that left are reported without override.
func (p *Prober) Follow(snapshot *lb.Snapshot) {
	wanted, services := map[lb.Target]bool{}, map[string]bool{}
	for _, service := range snapshot.Services {
		if service.Health == nil {
			continue
		}
		services[service.Name] = true
		for _, backend := range service.Backends {
			if backend.Refuses() {
				continue // there is no server
			}
			name := lb.Target{Service: service.Name, Backend: backend.Name}
			probe := Probe{Health: *service.Health, Address: service.ProbeTarget(backend), Through: service.ProbeTunnel(backend)}
			if probe.Through.IsValid() {
				probe.Tunnel = service.Tunnel
			}
			wanted[name] = true
			if w, ok := p.watched[name]; ok {
				if equal(&w.probe, &probe) {
					continue
				}
				p.drop(name, w)
			}
			p.watch(name, probe)
		}
	}
	for name, w := range p.watched {
		if !wanted[name] {
			p.drop(name, w)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.durations, func(r Result, _ metrics.Histogram) bool { return !services[r.Service] })
}

func equal(p, q *Probe) bool {
	a, b := &p.Health, &q.Health
	return p.Address == q.Address && p.Tunnel == q.Tunnel && p.Through == q.Through && a.Probe == b.Probe && a.Port == b.Port && a.Interval == b.Interval && a.Timeout == b.Timeout && a.Rise == b.Rise &&
		a.Fall == b.Fall && a.Path == b.Path && a.Host == b.Host && a.Status == b.Status && string(a.Send) == string(b.Send)
}

// Stop ends all probes and waits for them.
func (p *Prober) Stop() {
	p.cancel()
	p.group.Wait()
}

func (p *Prober) drop(name lb.Target, w *watch) {
	w.cancel()
	<-w.done // so that its last report does not come after ours
	delete(p.watched, name)
	p.put(name, lb.NoOverride)
}

func (p *Prober) watch(name lb.Target, probe Probe) {
	ctx, cancel := context.WithCancel(p.ctx)
	w := &watch{probe: probe, cancel: cancel, done: make(chan struct{})}
	p.watched[name] = w
	p.group.Go(func() {
		defer close(w.done)
		defer cancel()
		p.run(ctx, name, w)
	})
}

func (p *Prober) run(ctx context.Context, name lb.Target, w *watch) {
	timer := time.NewTimer(spread(name, w.probe.Health.Interval))
	defer timer.Stop()
	v := verdict{rise: w.probe.Health.Rise, fall: w.probe.Health.Fall}
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		timer.Reset(w.probe.Health.Interval)
		select {
		case <-ctx.Done():
			return
		case p.slots <- struct{}{}:
		}
		started := time.Now()
		err := p.once(ctx, w)
		<-p.slots
		if ctx.Err() != nil {
			return
		}
		p.measured(name.Service, err == nil, time.Since(started))
		if !v.observe(err == nil) {
			continue
		}
		if v.down {
			p.log.Warn("backend is down", "target", name.String(), "probe", w.probe.Health.Probe.String(), "address", w.probe.Address.String(), "error", err)
			p.put(name, lb.OverrideDown)
		} else {
			p.log.Info("backend is up again", "target", name.String(), "probe", w.probe.Health.Probe.String())
			p.put(name, lb.NoOverride)
		}
	}
}

// Result names the probes of a service that ended alike: pass or fail.
type Result struct {
	Service string `label:"service"`
	Result  string `label:"result"`
}

func (p *Prober) measured(service string, passed bool, took time.Duration) {
	result := Result{service, "fail"}
	if passed {
		result.Result = "pass"
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.durations[result]
	h.Observe(took)
	p.durations[result] = h
}

// Durations returns how long probes took, for the services that are probed. Safe from any goroutine.
func (p *Prober) Durations() map[Result]metrics.Histogram {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.durations)
}

func (p *Prober) once(ctx context.Context, w *watch) error {
	ctx, cancel := context.WithTimeout(ctx, w.probe.Health.Timeout)
	defer cancel()
	return p.probe(ctx, &w.probe)
}

// spread is the wait before the first probe: the same for a name each time, different between names.
func spread(name lb.Target, interval time.Duration) time.Duration {
	h := fnv.New32a()
	h.Write([]byte(name.String()))
	return interval * time.Duration(h.Sum32()%1024) / 1024
}

// verdict counts equal results in a row. The zero value is up.
type verdict struct {
	rise, fall int
	down       bool
	against    int // results in a row that contradict down
}

// observe records a result and reports whether the state has changed.
func (v *verdict) observe(well bool) (changed bool) {
	if well != v.down {
		v.against = 0
		return false
	}
	limit := v.fall
	if v.down {
		limit = v.rise
	}
	if v.against++; v.against < limit {
		return false
	}
	v.down, v.against = !v.down, 0
	return true
}

func (p *Prober) put(name lb.Target, value lb.Override) {
	p.mu.Lock()
	p.pending[name] = value
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// runReports passes changes on; those that arrive together form one report.
func (p *Prober) runReports() {
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-p.wake:
		}
		p.mu.Lock()
		batch := p.pending
		p.pending = map[lb.Target]lb.Override{}
		p.mu.Unlock()
		if len(batch) == 0 {
			continue
		}
		if err := p.report(batch); err != nil {
			p.log.Error("health states refused", "error", err)
			p.putBack(batch)
		}
	}
}

// putBack reports a refused batch again later; newer changes replace its entries.
func (p *Prober) putBack(batch map[lb.Target]lb.Override) {
	select {
	case <-p.ctx.Done():
		return
	case <-time.After(retry):
	}
	p.mu.Lock()
	for name, value := range batch {
		if _, ok := p.pending[name]; !ok {
			p.pending[name] = value
		}
	}
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}
