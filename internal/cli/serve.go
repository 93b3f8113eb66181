package cli

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/weir-lb/weir/internal/control/admin"
)

// Loop is one loop of a serving command; it returns nil when ctx ends.
type Loop func(ctx context.Context) error

// Serve runs the parts and, what the flags request of admin addresses, until ctx ends or one of them fails; then it
// stops the others and waits for them. hangup (may be nil) is called for each SIGHUP, also for one that came while the
// process started; the reload lasts until the channel that it returns closes, nil: it has ended. The first error wins.
func Serve(ctx context.Context, flags ServeFlags, log *slog.Logger, api admin.Config, hangup func() <-chan struct{}, parts ...Loop) error {
	servers, err := flags.open(log, api)
	if err != nil {
		return err
	}
	for _, server := range servers {
		parts = append(parts, server.Run)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if hangup != nil {
		SignalsOf(ctx).hangups.onReload(func() { reload(ctx, hangup) })
	}
	return RunTogether(ctx, parts...)
}

// RunTogether runs loops until ctx ends or one of them does; then it stops the others and waits for them. The first error wins.
func RunTogether(ctx context.Context, parts ...Loop) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var group sync.WaitGroup
	failures := make(chan error, len(parts))
	for _, run := range parts {
		group.Go(func() {
			failures <- run(ctx)
			cancel() // one part gone: the rest is of no use
		})
	}
	group.Wait()
	close(failures)
	for err := range failures {
		if err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
	}
	return nil
}

// reload reports a reload to systemd until it has ended.
func reload(ctx context.Context, hangup func() <-chan struct{}) {
	reloaded := notifyReloading()
	done := hangup()
	if done == nil {
		reloaded()
		return
	}
	go func() { // what reads the file may not run yet
		select {
		case <-done:
			reloaded()
		case <-ctx.Done():
		}
	}()
}
