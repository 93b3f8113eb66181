package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/weir-lb/weir/internal/turn/gateway"
	"github.com/weir-lb/weir/internal/turn/routes"
)

// drainGateway waits for a signal to end, drains, and returns when no allocation is left, when timeout is over (0: never), at
// a second signal, or when ctx ends. It calls begun when the drain has begun. The caller then ends the gateway; what it still has is kept where there is a --state.
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

// turnSignals takes over the signals to end a gateway from the process: the first one drains.
func turnSignals() (signals chan os.Signal, release func()) {
	signals = make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	return signals, func() { signal.Stop(signals) }
}

// gatewayStatus is what GET /status says.
type gatewayStatus struct {
	handoverStatus
	gateway.Stats
	Config *turnConfigStatus   `json:"config,omitempty"`
	Names  []routes.NameStatus `json:"names,omitempty"` // DNS names of clusters
}
