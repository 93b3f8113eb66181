package turn

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/weir-lb/weir/internal/turn/gateway"
)

// drainGateway waits for a termination signal, drains, and returns when no allocation is left, after timeout (0: never), on
// a second signal, or when ctx ends. It calls begun when the drain has begun. The caller then ends the gateway; with --state the remaining allocations stay stored.
func drainGateway(ctx context.Context, signals <-chan os.Signal, g *gateway.Gateway, drain func() gateway.DrainConfig, begun func(), log *slog.Logger) {
	select {
	case <-ctx.Done():
		return
	case <-signals:
	}
	settings := drain()
	g.Drain(true, settings.Alternate)
	left := g.Stats().Totals.Allocations
	log.Info("draining: no new allocations; a second signal ends at once", "allocations", left, "timeout", settings.Timeout)
	begun()
	var over <-chan time.Time
	if settings.Timeout > 0 {
		timer := time.NewTimer(settings.Timeout)
		defer timer.Stop()
		over = timer.C
	}
	poll := time.NewTicker(100 * time.Millisecond)
	defer poll.Stop()
	for left > 0 {
		select {
		case <-ctx.Done():
			return
		case <-signals:
			log.Warn("ending at once", "allocations", left)
			return
		case <-over:
			log.Warn("the drain takes too long: ending", "allocations", left, "timeout", settings.Timeout)
			return
		case <-poll.C:
		}
		left = g.Stats().Totals.Allocations
	}
	log.Info("drained: no allocation is left")
}

// turnSignals diverts the termination signals from the process to a gateway: the first one starts a drain.
func turnSignals() (signals chan os.Signal, release func()) {
	signals = make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	return signals, func() { signal.Stop(signals) }
}
