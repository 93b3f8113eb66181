package routes

import (
	"context"
	"log/slog"
	"net/netip"
	"time"
)

// DefaultRefresh is the time between two look-ups of a name, as STUNner has it.
const DefaultRefresh = 5 * time.Second

// Options are a Router's ways to the world.
type Options struct {
	Lookup  func(ctx context.Context, name string) ([]netip.Addr, error) // nil: the system's resolver
	Own     func() ([]netip.Addr, error)                                 // nil: the host's interfaces
	Changed func(*Table)                                                 // called from Run after a name or an own address changed
	Log     *slog.Logger
}

// Router keeps the table of the newest Spec current.
type Router struct{}

// NewRouter makes a Router without routes: it refuses everything until Apply.
func NewRouter(o Options) *Router { return &Router{} }

// Apply compiles a Spec with what is known of its names, makes it the current one and returns its table. On error the
// one before stays. Any goroutine may call it.
func (r *Router) Apply(spec Spec) (*Table, error) { return nil, nil }

// Table is the current table.
func (r *Router) Table() *Table { return nil }

// Run looks names and own addresses up until ctx ends.
func (r *Router) Run(ctx context.Context) error { <-ctx.Done(); return nil }
