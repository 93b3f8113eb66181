package bench

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/bench"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/measuring"
	"github.com/weir-lb/weir/internal/privilege"
	"github.com/weir-lb/weir/internal/testbed/measure"
)

// newBenchRunCommand groups the scenarios that need networks of their own.
func newBenchRunCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run SCENARIO",
		Short: "Run a scenario in network namespaces and compare its paths",
		Example: `  sudo weir bench run dsr
  sudo weir bench run dsr --rounds 1 --duration 1s --only routing,iptables-dnat`,
		Args: cli.NoSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newBenchDSRCommand(), newBenchNFQueueCommand(), newBenchFloodsCommand(), newBenchDumpCommand(), newBenchSoakCommand(), newBenchRestartCommand(), newBenchChaosCommand(), newBenchIdleCrashCommand(), newBenchFailoverCommand(), newBenchKubeSessionsCommand(), newBenchKubeScaleCommand())
	return cmd
}

func newBenchDSRCommand() *cobra.Command {
	var (
		config bench.GridConfig
		out    measuring.Output
	)
	cmd := &cobra.Command{
		Use:   "dsr",
		Short: "TCP throughput, packet rate and CPU: routing, kernel DNAT, and Weir's modes on both hooks",
		Long: `Build the lab "dsr" once for each path and load the paths in turns. Medians, spreads, ratios to plain routing of the same round,
and the whole machine's processor time, softirqs included.

Paths:
` + measuring.IndentNames(bench.DSRPaths()) + `
Loads:
` + measuring.IndentNames(bench.DSRLoads()) + `
No balancer of another project joins: zon-lb and Katran are packages of no distribution and were measured by hand; docs/figures.md has
the figures with machine, version and date.

Needs root, and the Debian packages iperf, iperf3, iptables and nftables for the paths and loads that use them. A full run
of 5 rounds takes about 15 minutes. An interrupt ends it and leaves nothing behind. On a machine that others use, run it
by nice -n -10.`,
		Example: `  sudo weir bench run dsr --report dsr.html
  sudo weir bench run dsr --rounds 3 --duration 1s --only weir-l2dsr-tcx --loads iperf2
  sudo weir bench run dsr --json > dsr.json; weir bench report dsr.json -o dsr.html`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return out.Run(cmd, privilege.BenchDSR, &config.Run, config.ValidateDSR(), func(ctx context.Context) ([]*measure.Result, error) {
				return bench.DSR(ctx, config)
			})
		},
	}
	flags := cmd.Flags()
	measuring.AddRoundFlags(cmd, &config.Rounds, &config.Duration)
	flags.StringSliceVar(&config.Paths, "only", nil, "paths to measure besides routing (default all)")
	flags.StringSliceVar(&config.Loads, "loads", nil, "loads: "+strings.Join(measuring.NameList(bench.DSRLoads()), ", ")+" (default all)")
	flags.StringSliceVar(&config.Families, "families", nil, "address families: "+strings.Join(bench.Families(), ", ")+" (default both)")
	out.Add(cmd)
	return cmd
}
