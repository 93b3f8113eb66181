package bench

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/bench"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/measuring"
	"github.com/weir-lb/weir/internal/privilege"
	"github.com/weir-lb/weir/internal/testbed/measure"
)

func newBenchIdleCrashCommand() *cobra.Command {
	var config bench.IdleConfig
	var out measuring.Output
	cmd := &cobra.Command{
		Use:   "idle-crash",
		Short: "Crash a node of a CoAP cluster whose sessions are idle: when are its clients served again?",
		Long: `Make idle DTLS sessions with connection ids on the nodes of a cluster, each in a network namespace of its own, let one node crash, and measure
until when each of its clients, which send a request each from then on, is served again.

What ends (--only):
` + measuring.IndentNames(bench.IdlePaths()) + `
The exit code is 1 if a client is not served again, or makes a new session where the sessions are to survive. A full run takes about 5 minutes.`,
		Example: `  sudo weir bench run idle-crash --report idle.html
  sudo weir bench run idle-crash --sessions 3000 --only process --json
  sudo weir bench run idle-crash --only replicated --replicate /usr/bin/etcd`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return out.Run(cmd, privilege.BenchDSR, &config.Run, config.Validate(), func(ctx context.Context) ([]*measure.Result, error) {
				return bench.IdleCrash(ctx, config)
			})
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&config.Sessions, "sessions", 100_000, "sessions of all nodes together")
	flags.IntVar(&config.Nodes, "nodes", 3, "nodes of the cluster, 2 to 9")
	cli.DurationVar(flags, &config.Within, "within", 5*time.Second, "time since the crash within which the clients of the node send, evenly")
	cli.DurationVar(flags, &config.Down, "down", 5*time.Second, "from the crash until the node is started again, where its memory is lost")
	flags.StringSliceVar(&config.Paths, "only", nil, "what ends (default all, replicated only with --replicate)")
	flags.StringVar(&config.Etcd, "replicate", "", "program of etcd, in which nodes agree on their copies: for replicated")
	out.Add(cmd)
	return cmd
}
