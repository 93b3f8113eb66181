package cli

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/handover"
)

// HandoverFlags are --no-supervisor and --state of a server whose sockets and state outlive its process.
type HandoverFlags struct {
	single bool
	state  string
	// HoldFor is how long the sockets of a server with --state stay open after a signal to end, for the next one.
	HoldFor time.Duration
}

// Add adds the flags. lost and kept say, in their help, what a crash ends without a supervisor, and what the directory holds.
func (f *HandoverFlags) Add(cmd *cobra.Command, lost, kept string) {
	cmd.Flags().BoolVar(&f.single, "no-supervisor", false, "serve in this one process: a crash or an upgrade ends "+lost+", unless systemd's descriptor store or --state keeps them")
	cmd.Flags().StringVar(&f.state, "state", "", "directory, made if missing, with "+kept)
}

// Run calls serve in the serving process: a child of this process, restarted whenever it ends, or with --no-supervisor
// this process. All work of the command belongs in serve, which calls k.Ready when it serves. Its ctx ends when a successor is about to
// take over: serve then ends at once and leaves its state unchanged. Signals to end do not end ctx: serve has to divert them, or to use the
// context of cmd.
func (f *HandoverFlags) Run(cmd *cobra.Command, log *slog.Logger, serve func(ctx context.Context, k *handover.Store) error) error {
	if handover.Probing() {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), handover.Protocol())
		return err
	}
	if !f.single && !handover.Supervised() {
		SignalsOf(cmd.Context()).Ending.Drain() // the serving process decides, and the supervisor ends with it
		path, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find the own binary: %w", err)
		}
		code, err := handover.Supervise(handover.Config{Path: path, Args: os.Args, Log: log, State: f.state, HoldFor: f.HoldFor})
		if err != nil {
			return err
		}
		if code != 0 {
			return &ExitError{Code: code} // the child has reported the reason
		}
		return nil
	}
	err := f.serve(cmd.Context(), log, serve)
	handover.Leaving() // not deferred: a panic is a crash
	return err
}

func (f *HandoverFlags) serve(ctx context.Context, log *slog.Logger, serve func(ctx context.Context, k *handover.Store) error) error {
	k, err := handover.Open(handover.Options{State: f.state, Log: log})
	if err != nil {
		return UsageError(err)
	}
	defer k.Close()
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	go func() {
		select {
		case <-k.HandOver():
			cancel()
		case <-ctx.Done():
		}
	}()
	return serve(ctx, k)
}

// Stores reports whether anything stored outlives the process.
func Stores(k *handover.Store) bool {
	s := k.Stats()
	return s.Supervisor != "none" || s.State != ""
}
