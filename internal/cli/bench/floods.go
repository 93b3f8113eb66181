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

func newBenchFloodsCommand() *cobra.Command {
	var config bench.FloodsConfig
	var out measuring.Output
	cmd := &cobra.Command{
		Use:   "floods",
		Short: "Flood every part, and see whether real clients get through",
		Long: `Flood DTLS servers, balancers, TURN servers and the port of the probes, each in network namespaces of its own, while real clients
use them, and count what these lose: new handshakes and flows, sessions whose clients move, sessions that sleep, flows that were
there before, fragmented datagrams. The same floods go to other programs where they are installed.

Floods:
` + measuring.IndentNames(bench.DescribeFloods()) + `
Targets:
` + measuring.IndentNames(bench.DescribeFloodTargets()) + `
The generator sends whole frames with spoofed sources at their intended times; where it cannot reach the rate the row says what it
reached. Nothing leaves the namespaces. Needs root, and the packages iptables, coturn and a Java runtime for what uses them.
The exit code is 1 if Weir missed an aim; peers have none. A full run takes about 18 minutes; an interrupt ends it, and what was measured so far is reported.`,
		Example: `  sudo weir bench run floods --report floods.html
  sudo weir bench run floods --only dtls-half-open --duration 30s
  sudo weir bench run floods --only udp-flows/nat-xdp,udp-flows/conntrack --json
  sudo weir bench run floods --quick --with coturn`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return out.Run(cmd, privilege.BenchDSR, &config.Run, config.Validate(), func(ctx context.Context) ([]*measure.Result, error) {
				return bench.Floods(ctx, config)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&config.Only, "only", nil, "floods, targets or FLOOD/TARGET (default all)")
	cli.DurationVar(flags, &config.Duration, "duration", 10*time.Second, "length of each flood")
	cli.OldFlag(cmd, "for", "", "duration")
	flags.StringSliceVar(&config.With, "with", nil, "peers: "+strings.Join(bench.FloodPeers(), ", ")+" (default those that are installed)")
	flags.BoolVar(&config.Quick, "quick", false, "a tenth of the rates, and sessions sleep for a second only")
	out.Add(cmd)
	return cmd
}
