package routes

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// DefaultRefresh is the time between two look-ups of a name, as STUNner has it.
const DefaultRefresh = 5 * time.Second

const ownRefresh = 5 * time.Second // between two looks at the host's addresses

// Options are a Router's ways to the world.
type Options struct {
	Lookup  func(ctx context.Context, name string) ([]netip.Addr, error) // nil: the system's resolver
	Own     func() ([]netip.Addr, error)                                 // nil: the host's interfaces
	Changed func(*Table)                                                 // called from Run after a name or an own address changed; may be nil
	Log     *slog.Logger                                                 // nil: silent
}

// Router keeps the table of the newest Spec current. A name whose look-up fails keeps the addresses that it had; only a
// server that says three times in a row that there is no such name takes them away, because by then the addresses may be
// somebody else's.
type Router struct {
	options Options
	table   atomic.Pointer[Table]
	wake    chan struct{} // a new Spec: look at the times again

	applying sync.Mutex // one Apply at a time

	mu    sync.Mutex // guards what follows
	spec  Spec
	names map[string]*name
	own   []netip.Addr
}

// NewRouter makes a Router without routes: it refuses everything until Apply.
func NewRouter(o Options) *Router {
	if o.Lookup == nil {
		o.Lookup = func(ctx context.Context, name string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
		}
	}
	if o.Own == nil {
		o.Own = hostAddresses
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	r := &Router{options: o, wake: make(chan struct{}, 1), names: map[string]*name{}}
	r.table.Store(&Table{})
	return r
}

// hostAddresses are the addresses of the host's interfaces.
func hostAddresses() ([]netip.Addr, error) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var own []netip.Addr
	for _, a := range list {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil {
			own = append(own, prefix.Addr().Unmap())
		}
	}
	return own, nil
}

// Table is the current table.
func (r *Router) Table() *Table { return r.table.Load() }

// Apply looks up the names that are new, compiles the Spec, makes it the current one and returns its table. A name that
// is not answered in time has no address yet; that is no error. On error the Spec before stays. Any goroutine may call
// it; it may take lookupTimeout per 16 new names.
func (r *Router) Apply(ctx context.Context, spec Spec) (*Table, error) {
	r.applying.Lock()
	defer r.applying.Unlock()
	if _, err := Compile(&spec, nil, nil); err != nil {
		return nil, err
	}
	own, err := r.options.Own()
	if err != nil {
		return nil, err // without them, clients could reach the host
	}
	wanted := refreshes(&spec)
	var fresh []string
	r.mu.Lock()
	for n := range wanted {
		if r.names[n] == nil {
			fresh = append(fresh, n)
		}
	}
	r.mu.Unlock()
	answers := r.lookup(ctx, fresh)

	r.mu.Lock()
	defer r.mu.Unlock()
	for n := range r.names {
		if wanted[n] == 0 {
			delete(r.names, n)
		}
	}
	now := time.Now()
	for n, refresh := range wanted {
		known := r.names[n]
		if known == nil {
			known = &name{NameStatus: NameStatus{Name: n}}
			r.names[n] = known
			r.takeLocked(known, answers[n], now)
		}
		known.refresh, known.next = refresh, now.Add(refresh)
	}
	r.spec, r.own = spec, own
	table, err := r.compileLocked()
	select {
	case r.wake <- struct{}{}:
	default:
	}
	return table, err
}

// refreshes is how often each name of a Spec is looked up: as often as its keenest cluster wants.
func refreshes(spec *Spec) map[string]time.Duration {
	wanted := map[string]time.Duration{}
	for i := range spec.Clusters {
		refresh := spec.Clusters[i].Refresh
		if refresh <= 0 {
			refresh = DefaultRefresh
		}
		for _, e := range spec.Clusters[i].Endpoints {
			if e.Name != "" && (wanted[e.Name] == 0 || refresh < wanted[e.Name]) {
				wanted[e.Name] = refresh
			}
		}
	}
	return wanted
}

func (r *Router) compileLocked() (*Table, error) {
	resolved := Resolved{}
	for n, known := range r.names {
		resolved[n] = known.Addresses
	}
	table, err := Compile(&r.spec, resolved, r.own)
	if err != nil {
		return nil, err
	}
	r.table.Store(table)
	return table, nil
}

// Run looks names and own addresses up until ctx ends.
func (r *Router) Run(ctx context.Context) error {
	timer := time.NewTimer(ownRefresh)
	defer timer.Stop()
	ownNext := time.Now().Add(ownRefresh)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
		case <-timer.C:
		}
		now := time.Now()
		due, next := r.due(now)
		changed := false
		if !now.Before(ownNext) {
			changed = r.refreshOwn()
			ownNext = now.Add(ownRefresh)
		}
		if len(due) > 0 {
			changed = r.refresh(ctx, due) || changed
			_, next = r.due(time.Now())
		}
		if changed {
			r.publish()
		}
		if next.IsZero() || ownNext.Before(next) {
			next = ownNext
		}
		timer.Reset(time.Until(next))
	}
}

// due are the names to look up now, and when the next one is.
func (r *Router) due(now time.Time) (names []string, next time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for n, known := range r.names {
		if !now.Before(known.next) {
			names = append(names, n)
		} else if next.IsZero() || known.next.Before(next) {
			next = known.next
		}
	}
	return names, next
}

func (r *Router) refreshOwn() bool {
	own, err := r.options.Own()
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil || slices.Equal(own, r.own) {
		return false // as it was: the last good ones stay
	}
	r.own = own
	return true
}

func (r *Router) refresh(ctx context.Context, names []string) bool {
	answers := r.lookup(ctx, names)
	r.mu.Lock()
	defer r.mu.Unlock()
	changed, now := false, time.Now()
	for n, answer := range answers {
		if known := r.names[n]; known != nil && ctx.Err() == nil {
			changed = r.takeLocked(known, answer, now) || changed
			known.next = now.Add(known.refresh)
		}
	}
	return changed
}

func (r *Router) publish() {
	r.mu.Lock()
	table, err := r.compileLocked()
	r.mu.Unlock()
	if err == nil && r.options.Changed != nil { // the Spec was compiled before: its bounds do not depend on answers
		r.options.Changed(table)
	}
}
