package bench

import (
	"context"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// respondIdle is how long a server that is to end has no requests before it does: its flows have ended then.
const respondIdle = 5 * time.Second

// Respond answers flows until SIGTERM, and then until no flow has asked for a while.
func Respond(ctx context.Context, at netip.AddrPort, name string) error {
	r, err := openResponder(nil, at, name)
	if err != nil {
		return err
	}
	defer r.close()
	// A command ends soon after SIGTERM; this one has the grace of its Pod.
	ending := make(chan os.Signal, 1)
	signal.Ignore(syscall.SIGTERM)
	signal.Notify(ending, syscall.SIGTERM)
	select {
	case <-ending:
	case <-ctx.Done():
		return nil
	}
	ticker := time.NewTicker(respondIdle)
	defer ticker.Stop()
	for last := uint64(0); ; {
		<-ticker.C
		now := r.received.Load() + r.requests.Load()
		if now == last {
			return nil
		}
		last = now
	}
}
