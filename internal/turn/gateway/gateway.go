package gateway

import (
	"context"
	"log/slog"
	"net/netip"

	"github.com/weir-lb/weir/internal/turn/allocation"
)

// Options are what the process around a gateway gives it.
type Options struct {
	Workers int          // default one per core
	Log     *slog.Logger // default: nothing is logged
	Offload Offload      // nil: every packet goes through user space
	Keeper  Keeper       // nil: nothing outlives the process
	Now     func() int64 // Unix nanoseconds; default time.Now
}

// Gateway is a TURN server. All methods may be called by any goroutine.
type Gateway struct {
	options Options
	shared  *allocation.Shared
	workers []*worker
}

// Open binds the listeners of a validated config; nothing moves until Run. With a Keeper it adopts the sockets and
// allocations that are kept.
func Open(c Config, o Options) (*Gateway, error) { return nil, nil }

// Run serves until ctx ends, then closes everything, and returns nil. An error is one that a worker cannot live with.
func (g *Gateway) Run(ctx context.Context) error { return nil }

// Apply changes to another config: all of it or, with an error, nothing.
func (g *Gateway) Apply(c Config) (Change, error) { return Change{}, nil }

// Drain on refuses new allocations (300 with the alternate where it is valid, else 508). Existing ones stay.
func (g *Gateway) Drain(on bool, alternate netip.AddrPort) {}

// Ready says why the gateway should get no new clients, nil if it should.
func (g *Gateway) Ready() error { return nil }

// Stats is a snapshot of the counters.
func (g *Gateway) Stats() Stats { return Stats{} }

// Users calls yield for every allocation until it returns false.
func (g *Gateway) Users(yield func(User) bool) {}

// Export returns the record of every allocation; they go on living here.
func (g *Gateway) Export(ctx context.Context) ([]allocation.Record, error) { return nil, nil }

// Import restores allocations that another gateway exported and returns how many; the error tells of the rest.
func (g *Gateway) Import(ctx context.Context, records []allocation.Record) (int, error) {
	return 0, nil
}
