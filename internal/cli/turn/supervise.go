package turn

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/control/admin"
	"github.com/weir-lb/weir/internal/handover"
	"github.com/weir-lb/weir/internal/metrics"
	"github.com/weir-lb/weir/internal/turn/gateway"
)

// handoverFlags are --no-supervisor and --state of the gateway.
type handoverFlags struct {
	single bool
	state  string
}

func (f *handoverFlags) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.single, "no-supervisor", false, "serve in this one process: a crash or an upgrade ends allocations, unless systemd's descriptor store or --state keeps them")
	cmd.Flags().StringVar(&f.state, "state", "", "directory, made if missing, with what a start after the end of every process takes up again")
}

// run calls serve in the serving process: a child of this process, restarted whenever it ends, or with --no-supervisor
// this process. All work of the command belongs in serve, which calls k.Ready when it serves. Its ctx ends when a successor is about to
// take over: serve then ends at once and leaves the allocations unchanged. Signals do not end ctx: see turnSignals.
func (f *handoverFlags) run(cmd *cobra.Command, log *slog.Logger, serve func(ctx context.Context, k *handover.Store) error) error {
	if handover.Probing() {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), handover.Protocol())
		return err
	}
	if !f.single && !handover.Supervised() {
		cli.SignalsOf(cmd.Context()).Ending.Drain() // the serving process decides, and the supervisor ends with it
		path, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find the own binary: %w", err)
		}
		code, err := handover.Supervise(handover.Config{Path: path, Args: os.Args, Log: log})
		if err != nil {
			return err
		}
		if code != 0 {
			return &cli.ExitError{Code: code} // the child has reported the reason
		}
		return nil
	}
	err := f.serve(cmd.Context(), log, serve)
	handover.Leaving() // not deferred: a panic is a crash
	return err
}

func (f *handoverFlags) serve(ctx context.Context, log *slog.Logger, serve func(ctx context.Context, k *handover.Store) error) error {
	k, err := handover.Open(handover.Options{State: f.state, Log: log})
	if err != nil {
		return cli.UsageError(err)
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

// gatewayStore is where a gateway stores its sockets and records; nil if nothing would be stored.
func gatewayStore(k *handover.Store) gateway.Store {
	if s := k.Stats(); s.Supervisor == "none" && s.State == "" {
		return nil
	}
	return k
}

// maxMoved bounds the body of an import: 64 MiB of records are some 100,000.
const maxMoved = 64 << 20

// addHandover adds to a gateway's admin API what is stored, and the requests of `weir turn upgrade`, `export` and
// `import`.
func addHandover(api *admin.Config, k *handover.Store, g *gateway.Gateway, configured func() v1.TurnConfigStatus) {
	others := api.Metrics
	api.Metrics = func() []metrics.Sample { return append(others(), metrics.Of(k.Stats())...) }
	api.Status = func() any {
		status := configured()
		return v1.TurnStatus{
			TurnProcess: v1.TurnProcess{PID: os.Getpid(), Version: cli.ReadBuildInfo().Version, Handover: handoverText(k.Stats())},
			TurnStats:   turnText(g.Stats()), Config: &status, Names: g.Names(),
		}
	}
	api.Routes = append(api.Routes, []admin.Route{
		{Pattern: "POST /upgrade", Answer: func(*http.Request) (any, error) {
			if err := k.RequestUpgrade(); err != nil {
				return nil, err
			}
			return v1.TurnUpgradeAnswer{PID: os.Getpid()}, nil
		}},
		{Pattern: "GET /allocations", Answer: func(r *http.Request) (any, error) {
			records, err := g.Export(r.Context())
			return movedAllocations{Allocations: records}, err
		}},
		{Pattern: "POST /allocations", MaxBody: maxMoved, Answer: func(r *http.Request) (any, error) {
			text, err := io.ReadAll(r.Body)
			if err != nil {
				return nil, err
			}
			return importAllocations(r.Context(), g, text)
		}},
	}...)
}
