package announce

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/metrics"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// Driver announces routes in one way. Its methods but Describe are called by one goroutine.
type Driver interface {
	// Apply makes the routes, of a configuration, what is announced; settings nil: nothing is, and nothing runs. It does not wait for
	// peers. An error is the reason why something could not be done; it is called again then.
	Apply(settings *lb.Announce, routes []Route) error
	// Describe adds what it knows to the status; called from any goroutine.
	Describe(status *v1.AnnounceStatus)
	// Close withdraws everything, and ends what runs.
	Close()
}

// Options of an Announcer.
type Options struct {
	Log *slog.Logger // nil: silent
	// Applied returns the snapshot in force (nil: none), and a channel that is closed when there is another one.
	Applied func() (*lb.Snapshot, <-chan struct{})
	// Detached returns why an attached data path does not forward; nil, or "": it does.
	Detached func() string
	// Incomplete returns why addresses are not announced yet after the start; nil, or "": they may be.
	Incomplete func() string
	Drivers    []Driver
}

const (
	checkEvery = 500 * time.Millisecond // how often Detached is asked for
	retryEvery = time.Second            // how long what failed waits
)

// Announcer keeps what is announced equal to what Decide says. Its methods are safe from any goroutine.
type Announcer struct {
	options Options
	wake    chan struct{} // capacity 1

	mu        sync.Mutex // guards the rest
	attached  bool
	withdrawn bool // by an operator
	phase     Phase
	snapshot  *lb.Snapshot // that the drivers had last
	settings  *lb.Announce // of it
	routes    []Route
	failure   error
	changes   uint64
	durations metrics.Histogram
}

// New returns an announcer that announces nothing before Run.
func New(options Options) *Announcer {
	options.Log = cmp.Or(options.Log, slog.New(slog.DiscardHandler))
	return &Announcer{options: options, wake: make(chan struct{}, 1)}
}

// SetAttached says that the data path forwards, or does so no longer.
func (a *Announcer) SetAttached(attached bool) {
	a.mu.Lock()
	a.attached = attached
	a.mu.Unlock()
	a.poke()
}

// SetWithdrawn is an operator's withdrawal of the whole node, or its end.
func (a *Announcer) SetWithdrawn(withdrawn bool) {
	a.mu.Lock()
	a.withdrawn = withdrawn
	if !withdrawn {
		a.phase = Serving
	}
	a.mu.Unlock()
	a.poke()
}

// Check decides again, as after a change of what Detached or Incomplete say.
func (a *Announcer) Check() { a.poke() }

func (a *Announcer) poke() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// Serve runs a data path, and announces while it does. When ctx ends, everything is withdrawn before the data path ends.
func (a *Announcer) Serve(ctx context.Context, datapath func(context.Context) error) error {
	inner, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	announcing, stop := context.WithCancel(ctx)
	a.SetAttached(true)
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.Run(announcing)
		end()
	}()
	err := datapath(inner)
	a.SetAttached(false)
	stop()
	<-done
	return err
}

// Run announces until ctx ends; then it withdraws everything and returns.
func (a *Announcer) Run(ctx context.Context) {
	ticker := time.NewTicker(checkEvery)
	defer ticker.Stop()
	var leaving, retry <-chan time.Time
	stopped := ctx.Done()
	for {
		snapshot, changed := a.options.Applied()
		if wait, ok := a.leave(snapshot, stopped == nil); ok {
			leaving = time.After(wait)
		}
		retry = nil
		if !a.apply(snapshot) {
			retry = time.After(retryEvery)
		}
		if stopped == nil && a.gone() {
			for _, driver := range a.options.Drivers {
				driver.Close()
			}
			return
		}
		select {
		case <-stopped:
			stopped = nil
		case <-leaving:
			leaving = nil
			a.setPhase(Gone)
		case <-changed:
		case <-a.wake:
		case <-ticker.C:
		case <-retry:
		}
	}
}

// leave begins the planned end if there is a reason for one. It returns how long the phase Leaving takes, once.
func (a *Announcer) leave(snapshot *lb.Snapshot, stopping bool) (time.Duration, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.phase != Serving || !stopping && !a.withdrawn {
		return 0, false
	}
	wait := time.Duration(0)
	if snapshot != nil && snapshot.Announce != nil && snapshot.Announce.BGP != nil && a.attached && a.announcesLocked() {
		wait = snapshot.Announce.BGP.GracefulShutdown
	}
	if wait == 0 {
		a.phase = Gone
		return 0, false
	}
	a.phase = Leaving
	a.options.Log.Info("announcements will be withdrawn", "in", wait)
	return wait, true
}

func (a *Announcer) announcesLocked() bool {
	return slices.ContainsFunc(a.routes, func(r Route) bool { return r.State == Announced })
}

func (a *Announcer) setPhase(phase Phase) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.phase != Serving { // an operator may have resumed
		a.phase = phase
	}
}

func (a *Announcer) gone() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.phase == Gone || !a.attached
}

// apply lets the drivers do what is decided, if that has changed. It reports whether all is done.
func (a *Announcer) apply(snapshot *lb.Snapshot) bool {
	started := time.Now()
	a.mu.Lock()
	node := Node{Phase: a.phase}
	if !a.attached {
		node.Detached = "the data path does not run"
	}
	old, last, failed := a.routes, a.snapshot, a.failure
	a.mu.Unlock()
	if node.Detached == "" && a.options.Detached != nil {
		node.Detached = a.options.Detached()
	}
	if a.options.Incomplete != nil {
		node.Incomplete = a.options.Incomplete()
	}
	var settings *lb.Announce
	if snapshot != nil {
		settings = snapshot.Announce
	}
	routes := Decide(snapshot, node)
	if failed == nil && snapshot == last && slices.EqualFunc(routes, old, Route.equal) {
		return true
	}
	var errs []error
	for _, driver := range a.options.Drivers {
		errs = append(errs, driver.Apply(settings, routes))
	}
	err := errors.Join(errs...)
	if err != nil && (failed == nil || failed.Error() != err.Error()) {
		a.options.Log.Error("announce", "error", err)
	}
	changes := a.logChanges(old, routes)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.routes, a.snapshot, a.settings, a.failure = routes, snapshot, settings, err
	if a.changes += changes; changes > 0 {
		a.durations.Observe(time.Since(started))
	}
	return err == nil
}

// logChanges tells what became of prefixes, and counts them.
func (a *Announcer) logChanges(old, routes []Route) (n uint64) {
	before := map[string]Route{}
	for _, r := range old {
		before[r.Prefix.String()] = r
	}
	for _, r := range routes {
		was, known := before[r.Prefix.String()]
		delete(before, r.Prefix.String())
		switch {
		case was.State == r.State && (known || r.State == Withdrawn):
			continue
		case r.State == Withdrawn:
			a.options.Log.Warn("prefix withdrawn", "prefix", r.Prefix.String(), "reason", r.Reason)
		default:
			a.options.Log.Info("prefix "+r.State.String(), "event", "prefix_state", "state", r.State.String(), "prefix", r.Prefix.String(), "services", r.Services)
		}
		n++
	}
	for prefix, r := range before {
		if r.State != Withdrawn {
			n++
			a.options.Log.Info("prefix withdrawn", "prefix", prefix, "reason", "it is no longer configured")
		}
	}
	return n
}

// Timings are how long announcements took.
type Timings struct {
	Durations metrics.Histogram `metric:"weir_announce_duration_seconds" buckets:"10µs..1s" help:"Time to give changed announcements to the protocols that announce them."`
}

// Timings returns them since the start.
func (a *Announcer) Timings() Timings {
	a.mu.Lock()
	defer a.mu.Unlock()
	return Timings{Durations: a.durations}
}

// State is serving, leaving or withdrawn.
func (a *Announcer) State() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stateLocked()
}

func (a *Announcer) stateLocked() string {
	switch {
	case a.phase == Gone:
		return "withdrawn"
	case a.phase == Leaving || a.withdrawn:
		return "leaving"
	}
	return "serving"
}

// Status returns the present state; nil: nothing is configured to be announced.
func (a *Announcer) Status() *v1.AnnounceStatus {
	a.mu.Lock()
	if a.settings == nil {
		a.mu.Unlock()
		return nil
	}
	status := &v1.AnnounceStatus{State: a.stateLocked(), Changes: a.changes, Prefixes: make([]v1.AnnouncePrefix, 0, len(a.routes))}
	if a.failure != nil {
		status.Error = a.failure.Error()
	}
	for _, r := range a.routes {
		status.Prefixes = append(status.Prefixes, v1.AnnouncePrefix{Prefix: r.Prefix.String(), State: r.State.String(), Reason: r.Reason, Services: r.Services})
	}
	a.mu.Unlock()
	for _, driver := range a.options.Drivers {
		driver.Describe(status)
	}
	return status
}
