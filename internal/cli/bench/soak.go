package bench

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/bench"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/measuring"
	"github.com/weir-lb/weir/internal/testbed/measure"
)

func newBenchSoakCommand() *cobra.Command {
	var config bench.SoakConfig
	var out measuring.Output
	cmd := &cobra.Command{
		Use:   "soak",
		Short: "Run a mixed load for an hour: do memory, goroutines and descriptors of every part level off?",
		Long: `Run a DTLS cluster of two nodes, two weir nat, a TURN gateway and, with root, the kernel data path for a long time under a mixed
load, and sample every few seconds what each process holds: resident memory, heap, goroutines, threads, descriptors, and
the entries of its tables.

The load: clients with connection ids that change address and port, new DTLS handshakes, TURN allocations that stay, come and
go, UDP flows and TCP connections. Half of the clients that go vanish without closing, so tables reach their bounds. The
default load takes less than a third of one core.

A gauge levels off if the line through the last third of the run grows over that third by at most --growth percent, or by 2 MiB
of memory, 10 goroutines or descriptors, 2 threads. Runs below 20 minutes are not judged. An interrupt ends the run, and
what was measured so far is reported. With root everything runs in network namespaces of its own, else on loopback.

The exit code is 1 if a gauge grows, a process ends, or a load loses a session, a flow, a request or a datagram.`,
		Example: `  sudo weir bench run soak --duration 1h --report soak.html
  sudo weir bench run soak --duration 2m --every 2s --load 3
  weir bench run soak --duration 30m --json > soak.json; weir bench report soak.json -o soak.html`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return out.Run(cmd, "", &config.Run, config.Validate(), func(ctx context.Context) ([]*measure.Result, error) {
				return bench.Soak(ctx, config)
			})
		},
	}
	flags := cmd.Flags()
	cli.DurationVar(flags, &config.Duration, "duration", time.Hour, "length of the load")
	cli.OldFlag(cmd, "for", "", "duration")
	cli.DurationVar(flags, &config.Every, "every", 5*time.Second, "between two samples of a process")
	flags.Float64Var(&config.Load, "load", 1, "times the default load")
	flags.Float64Var(&config.Growth, "growth", 5, "percent that a gauge may grow over the last third")
	out.Add(cmd)
	return cmd
}
