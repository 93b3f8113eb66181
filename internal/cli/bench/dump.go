package bench

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/bench"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/measuring"
	"github.com/weir-lb/weir/internal/privilege"
	"github.com/weir-lb/weir/internal/testbed/measure"
)

func newBenchDumpCommand() *cobra.Command {
	var config bench.DumpConfig
	var out measuring.Output
	cmd := &cobra.Command{
		Use:   "dump",
		Short: "List every flow of a busy data path, and see whether it loses datagrams meanwhile",
		Long: `Fill the flow table of each data path with answered flows, send datagrams through these flows, and meanwhile list all of them by
weir lb flows --json, again and again, and read the metrics twice a second. Datagrams are counted by the kernel where they
are sent and where they arrive; what is lost is shown by the place where the kernel counts it.

A data path that loses datagrams without a dump is tried at lower rates, and dumped at the first one without loss. With --datapath
udp every flow has a socket: there are as many flows as descriptors (ulimit -Hn) and ports. Needs root, and the package iptables
for nfqueue. The exit code is 1 if a data path lost a datagram during a dump, or a dump missed a flow.`,
		Example: `  sudo weir bench run dump --report dump.html
  sudo weir bench run dump --only nfqueue --rate 50000 --duration 10s
  sudo weir bench run dump --flows 20000 --rate 5000 --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return out.Run(cmd, privilege.BenchDump, &config.Run, config.Validate(), func(ctx context.Context) ([]*measure.Result, error) {
				return bench.Dump(ctx, config)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&config.Only, "only", nil, "data paths: "+strings.Join(bench.DumpTargets(), ", ")+" (default all)")
	flags.IntVar(&config.Flows, "flows", 262144, "answered flows in the table")
	flags.Float64Var(&config.Rate, "rate", 100000, "datagrams a second through these flows")
	cli.DurationVar(flags, &config.Duration, "duration", 5*time.Second, "length of each phase")
	out.Add(cmd)
	return cmd
}
