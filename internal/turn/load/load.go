package load

import (
	"context"
	"errors"
	"net/netip"
)

// Load is a set of clients and their sink. Run, Refresh and Close belong to one goroutine.
type Load struct {
	config Config
}

// Open opens the sockets, allocates, binds a channel for each client, and sees one datagram of each through. An error says
// which client failed and why, with the server's STUN error code if it gave one.
func Open(ctx context.Context, config Config) (*Load, error) {
	return nil, errors.New("not yet")
}

// Sink is the far end's address.
func (l *Load) Sink() netip.AddrPort { return l.config.Sink }

// Relays are the relay addresses in the order of the clients; nil for plain UDP.
func (l *Load) Relays() []netip.AddrPort { return nil }

// Run sends for a phase, waits for what is under way, and reports.
func (l *Load) Run(ctx context.Context, phase Phase) (*Report, error) {
	return nil, errors.New("not yet")
}

// Refresh refreshes every allocation and channel now and returns how many clients the server still knew. The error is the
// first refusal.
func (l *Load) Refresh(ctx context.Context) (alive int, err error) { return 0, nil }

// Close gives the allocations back (Refresh with lifetime 0) and closes the sockets.
func (l *Load) Close() error { return nil }
