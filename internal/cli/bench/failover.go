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

func newBenchFailoverCommand() *cobra.Command {
	var config bench.FailoverConfig
	var out measuring.Output
	cmd := &cobra.Command{
		Use:   "failover",
		Short: "Power one of two balancers off: which flows are lost, and until when",
		Long: `Put two balancers behind a router, to which they announce a VIP by BGP, open TCP and UDP flows through them, power one balancer off, and count which
flows are lost and when the last packet is. Router, balancers, eight backends and the client are network namespaces; the balancers are processes of
weir lb run with the kernel data path, or the kernel's connection tracking.

Balancers (--only):
` + measuring.IndentNames(bench.FailoverPaths()) + `
What happens to the backends before (--changes):
` + measuring.IndentNames(bench.FailoverChanges()) + `
The exit code is 1 if flows are lost where they are to survive. Needs root, and the Debian packages bird2 and iptables. A full run takes about 10 minutes. Each TCP flow needs
two open files, each UDP flow one: see ulimit -n.`,
		Example: `  sudo weir bench run failover --report failover.html
  sudo weir bench run failover --flows 1000 --only weir-dsr,weir-nat-sync --changes none
  sudo weir bench run failover --json > failover.json; weir bench report failover.json -o failover.html`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return out.Run(cmd, privilege.BenchFailover, &config.Run, config.Validate(), func(ctx context.Context) ([]*measure.Result, error) {
				return bench.Failover(ctx, config)
			})
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&config.Flows, "flows", 10_000, "flows, half of them TCP, half UDP")
	flags.Float64Var(&config.Rate, "rate", 4000, "requests a second of all flows together")
	cli.DurationVar(flags, &config.BFD, "bfd", 100*time.Millisecond, "time between two packets of BFD; three missing ones are a dead path")
	flags.StringSliceVar(&config.Paths, "only", nil, "balancers to measure (default all)")
	flags.StringSliceVar(&config.Changes, "changes", nil, "what happens to the backends before (default all)")
	out.Add(cmd)
	return cmd
}
