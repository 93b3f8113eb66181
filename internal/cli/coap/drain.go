package coap

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/coap/node"
	"github.com/weir-lb/weir/internal/handover"
)

// drain ends the sessions of a server after the first signal to end, before the server ends.
type drain struct {
	server  *node.Node
	store   *handover.Store
	ending  *cli.Ending
	log     *slog.Logger
	within  time.Duration
	signals chan os.Signal
}

// newDrain has the first signal to end wait for the drain.
func newDrain(signalled context.Context, server *node.Node, k *handover.Store, cfg *node.Config) *drain {
	d := &drain{server: server, store: k, ending: cli.SignalsOf(signalled).Ending, log: cfg.Log, within: cfg.DrainTimeout, signals: make(chan os.Signal, 4)}
	d.ending.Drain()
	signal.Notify(d.signals, os.Interrupt, syscall.SIGTERM)
	return d
}

func (d *drain) release() { signal.Stop(d.signals) }

// run drains until no session is left, the time is over, a second signal comes, or the server ends by itself. It reports whether another
// process is about to follow.
func (d *drain) run(ctx, running context.Context) (followed bool) {
	defer d.ending.Drained()
	d.server.Drain(d.within)
	d.store.Stopping()
	d.log.Info("draining: no new DTLS sessions; a second signal ends at once", "sessions", d.server.Sessions(), "timeout", d.within)
	over := time.NewTimer(d.within)
	defer over.Stop()
	poll := time.NewTicker(100 * time.Millisecond)
	defer poll.Stop()
	for signals := 0; ; {
		left := d.server.Sessions()
		if left == 0 {
			d.log.Info("drained: no DTLS session is left")
			return false
		}
		select {
		case <-ctx.Done():
			return true
		case <-running.Done():
			return false
		case <-d.signals: // the first one may be that of the drain
			if signals++; signals > 1 {
				d.log.Warn("ending at once", "sessions", left)
				return false
			}
		case <-over.C:
			d.log.Info("the drain is over: the sessions that are left end", "sessions", left)
			return false
		case <-poll.C:
		}
	}
}
