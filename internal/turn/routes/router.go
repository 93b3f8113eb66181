package routes

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-lb/weir/api/v1"
)

// DefaultRefresh is the time between two look-ups of a name, as in STUNner.
const DefaultRefresh = 5 * time.Second

const ownRefresh = 5 * time.Second // time between two reads of the host's addresses

// Options are the functions through which a Router reaches its environment.
type Options struct {
	Lookup  func(ctx context.Context, name string) ([]netip.Addr, error) // nil: the system's resolver
	Own     func() ([]netip.Addr, error)                                 // nil: the host's interfaces
	Changed func(*Table)                                                 // called from Run after a name or an own address changed; may be nil
	Log     *slog.Logger                                                 // nil: silent
}

// Router keeps the table of the newest Spec up to date. A name whose look-up fails retains its addresses. Only if a
// server answers three times in a row that there is no such name, they are dropped, because by then the addresses may belong
// to another host.
type Router struct {
	options Options
	table   atomic.Pointer[Table]
	wake    chan struct{} // signals a new Spec: the times of the next look-ups have changed

	mu    sync.Mutex // guards the fields below
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

// hostAddresses returns the addresses of the host's interfaces.
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

// Table returns the current table.
func (r *Router) Table() *Table { return r.table.Load() }

// Prepared is a Spec that is ready for Commit.
type Prepared struct {
	spec    Spec
	own     []netip.Addr
	answers map[string]answer // answers for names that were new
}

// Prepare checks a Spec and looks up the names in it that are new; the current Spec stays in force. A name without a
// timely answer has no address yet; that is not an error. Prepare may take lookupTimeout per 16 new names. Any
// goroutine may call it.
func (r *Router) Prepare(ctx context.Context, spec Spec) (*Prepared, error) {
	if _, err := Compile(&spec, nil, nil); err != nil {
		return nil, err
	}
	own, err := r.options.Own()
	if err != nil {
		return nil, fmt.Errorf("read the host's addresses: %w", err) // without its addresses, clients could reach the host
	}
	var fresh []string
	r.mu.Lock()
	for n := range refreshes(&spec) {
		if r.names[n] == nil {
			fresh = append(fresh, n)
		}
	}
	r.mu.Unlock()
	return &Prepared{spec: spec, own: own, answers: r.lookup(ctx, fresh)}, nil
}

// Commit puts a prepared Spec in force and returns its table. Any goroutine may call it.
func (r *Router) Commit(p *Prepared) *Table {
	r.mu.Lock()
	defer r.mu.Unlock()
	wanted, now := refreshes(&p.spec), time.Now()
	for n := range r.names {
		if wanted[n] == 0 {
			delete(r.names, n)
		}
	}
	for n, refresh := range wanted {
		known := r.names[n]
		if known == nil {
			known = &name{TurnName: v1.TurnName{Name: n}, next: now}
			r.names[n] = known
			if a, ok := p.answers[n]; ok {
				r.takeLocked(known, a, now)
				known.next = now.Add(refresh)
			}
		}
		known.refresh, known.next = refresh, earlier(known.next, now.Add(refresh))
	}
	r.spec, r.own = p.spec, p.own
	table := r.compileLocked()
	select {
	case r.wake <- struct{}{}:
	default:
	}
	return table
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// Apply is Prepare and Commit. On an error the previous Spec stays in force.
func (r *Router) Apply(ctx context.Context, spec Spec) (*Table, error) {
	p, err := r.Prepare(ctx, spec)
	if err != nil {
		return nil, err
	}
	return r.Commit(p), nil
}

// refreshes returns how often each name of a Spec is looked up: at the shortest interval of its clusters.
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

// compileLocked builds and stores the table from the current state.
func (r *Router) compileLocked() *Table {
	resolved := Resolved{}
	for n, known := range r.names {
		resolved[n] = known.Addresses
	}
	table, err := Compile(&r.spec, resolved, r.own)
	if err != nil {
		panic("routes: a Spec that compiled before: " + err.Error()) // the limits do not depend on answers
	}
	r.table.Store(table)
	return table
}

// Run looks up names and reads the host's own addresses until ctx ends.
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

// due returns the names to look up now, and when the next one is due.
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
		return false // unchanged: the last valid addresses stay
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
	table := r.compileLocked()
	r.mu.Unlock()
	if r.options.Changed != nil {
		r.options.Changed(table)
	}
}
