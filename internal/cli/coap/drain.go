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

// drain moves or ends the sessions of a server after the first signal to end, before the server ends.
type drain struct {
	server  *node.Node
	store   *handover.Store
	ending  *cli.Ending
	log     *slog.Logger
	within  time.Duration
	signals chan os.Signal
	seen    int // signals
}

// newDrain has the first signal to end wait for the drain.
func newDrain(signalled context.Context, server *node.Node, k *handover.Store, cfg *node.Config) *drain {
	d := &drain{server: server, store: k, ending: cli.SignalsOf(signalled).Ending, log: cfg.Log, within: cfg.DrainTimeout, signals: make(chan os.Signal, 4)}
	d.ending.Drain()
	signal.Notify(d.signals, os.Interrupt, syscall.SIGTERM)
	return d
}

func (d *drain) release() { signal.Stop(d.signals) }

// forwardFor is how long a server whose sessions have moved goes on to forward what still comes for them.
const forwardFor = 2 * time.Second

// outcome is how a wait has ended.
type outcome uint8

const (
	finished outcome = iota
	followed         // another process is about to go on
	ended            // by the server itself, or a second signal, or the time
)

// run moves the sessions to other nodes of a cluster, if it can, then drains until no session is left, the time is over, a second signal comes,
// or the server ends by itself. It reports whether another process is about to follow.
func (d *drain) run(ctx, running context.Context) bool {
	defer d.ending.Drained()
	begun := time.Now()
	d.store.Stopping()
	over := time.NewTimer(d.within)
	defer over.Stop()
	wait := func(done func() bool) outcome { return d.wait(ctx, running, over.C, done) }
	if o := d.move(wait); o != finished {
		return o == followed
	}
	left := max(time.Millisecond, d.within-time.Since(begun))
	d.server.Drain(left)
	d.log.Info("draining: no new DTLS sessions; a second signal ends at once", "sessions", d.server.Sessions(), "timeout", left)
	o := wait(func() bool { return d.server.Sessions() == 0 })
	if o == finished {
		d.log.Info("drained: no DTLS session is left")
	}
	return o == followed
}

// move moves the sessions of a cluster node to other nodes.
func (d *drain) move(wait func(done func() bool) outcome) outcome {
	if d.server.CanMove() != nil {
		return finished
	}
	if err := d.server.MoveAway(nil); err != nil {
		d.log.Warn("the DTLS sessions end, they do not move to other nodes", "cause", err)
		return finished
	}
	d.log.Info("DTLS sessions move to other nodes; a second signal ends at once", "sessions", d.server.Sessions(), "timeout", d.within)
	if o := wait(func() bool { return d.server.Moved().Drained }); o != finished {
		return o
	}
	moved, until := d.server.Moved(), time.Now().Add(forwardFor)
	d.log.Info("DTLS sessions have moved to other nodes; what still comes for them is forwarded", "moved", moved.Out, "lost", moved.Lost, "for", forwardFor)
	return wait(func() bool { return time.Now().After(until) })
}

// wait returns when done reports true, the time is over, a second signal comes, or the server ends.
func (d *drain) wait(ctx, running context.Context, over <-chan time.Time, done func() bool) outcome {
	poll := time.NewTicker(100 * time.Millisecond)
	defer poll.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			return followed
		case <-running.Done():
			return ended
		case <-d.signals: // the first one may be that of the drain
			if d.seen++; d.seen > 1 {
				d.log.Warn("ending at once", "sessions", d.server.Sessions())
				return ended
			}
		case <-over:
			d.log.Info("the drain is over: the sessions that are left end", "sessions", d.server.Sessions())
			return ended
		case <-poll.C:
		}
	}
	return finished
}
