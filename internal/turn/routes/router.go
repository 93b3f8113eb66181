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
	"github.com/weir-lb/weir/internal/control/names"
)

// DefaultRefresh is the time between two look-ups of a name, as in STUNner.
const DefaultRefresh = names.DefaultRefresh

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
	names   *names.Set

	publishing sync.Mutex // held while a table is made and Changed is called, so that the newest one is last
	mu         sync.Mutex // guards the fields below
	spec       Spec
	own        []netip.Addr
}

// NewRouter makes a Router without routes: it refuses everything until Apply.
func NewRouter(o Options) *Router {
	if o.Own == nil {
		o.Own = hostAddresses
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	r := &Router{options: o, names: names.New(names.Options{Lookup: o.Lookup, MaxAddresses: MaxAddresses, Log: o.Log})}
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

// Names returns what is known about each name, sorted.
func (r *Router) Names() []v1.DNSName { return r.names.Status() }

// Table returns the current table.
func (r *Router) Table() *Table { return r.table.Load() }

// Prepared is a Spec that is ready for Commit.
type Prepared struct {
	spec    Spec
	own     []netip.Addr
	answers names.Answers // for names that were new
}

// Prepare checks a Spec and looks up the names in it that are new; the current Spec stays in force. A name without a
// timely answer has no address yet; that is not an error. Prepare may take names.Timeout per 16 new names. Any
// goroutine may call it.
func (r *Router) Prepare(ctx context.Context, spec Spec) (*Prepared, error) {
	if _, err := Compile(&spec, nil, nil); err != nil {
		return nil, err
	}
	own, err := r.options.Own()
	if err != nil {
		return nil, fmt.Errorf("read the host's addresses: %w", err) // without its addresses, clients could reach the host
	}
	return &Prepared{spec: spec, own: own, answers: r.names.Prepare(ctx, refreshes(&spec))}, nil
}

// Commit puts a prepared Spec in force and returns its table. Any goroutine may call it.
func (r *Router) Commit(p *Prepared) *Table {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.names.Commit(refreshes(&p.spec), p.answers)
	r.spec, r.own = p.spec, p.own
	return r.compileLocked()
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
func refreshes(spec *Spec) names.Wanted {
	wanted := names.Wanted{}
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
	table, err := Compile(&r.spec, r.names.Addresses(), r.own)
	if err != nil {
		panic("routes: a Spec that compiled before: " + err.Error()) // the limits do not depend on answers
	}
	r.table.Store(table)
	return table
}

// Run looks up names and reads the host's own addresses until ctx ends.
func (r *Router) Run(ctx context.Context) error {
	var group sync.WaitGroup
	group.Go(func() { r.names.Run(ctx, r.publish) })
	defer group.Wait()
	timer := time.NewTicker(ownRefresh)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
			if r.refreshOwn() {
				r.publish()
			}
		}
	}
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

func (r *Router) publish() bool {
	r.publishing.Lock()
	defer r.publishing.Unlock()
	r.mu.Lock()
	table := r.compileLocked()
	r.mu.Unlock()
	if r.options.Changed != nil {
		r.options.Changed(table)
	}
	return true
}
