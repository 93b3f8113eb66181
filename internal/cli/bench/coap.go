package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/bench"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/measuring"
	"github.com/weir-lb/weir/internal/privilege"
	"github.com/weir-lb/weir/internal/testbed/measure"
)

func newBenchCoapCommand() *cobra.Command {
	var (
		cfg      bench.CoapConfig
		datapath string
		out      measuring.Output
	)
	cmd := &cobra.Command{
		Use:   "coap",
		Short: "Measure what a CoAP/DTLS request costs its servers, with and without forwarding",
		Long: `Run nodes, a balancer and a load of DTLS clients as processes on loopback and measure the servers' CPU time per request:

  plain               one node, CoAP over UDP
  direct              one node, DTLS with connection ids
  cluster             three nodes behind weir nat, every record reaches its owner
  cluster-wrong-node  the same after a rebalance: two of three records reach another node and are forwarded

With --datapath ebpf (root), the nodes are in a lab of namespaces, and every client changes its source address and port four times:

  moved-nat           weir nat takes each for a new client: most records reach another node and are forwarded
  moved-ebpf          weir lb run --datapath ebpf reads the node in the connection id: nothing is forwarded

With --with scandium Californium's server joins: one process over DTLS with connection ids, with java. Its class path is $WEIR_SCANDIUM, or
what Weir's own tests have built. Its first seconds are those of a compiler: give --warmup 20s or more.

Each node has one worker. CPU time and requests are differences over the window, so handshakes are not in them. Trust the
microseconds per request and their ratios; requests per second are what clients, balancer and servers share of the machine.`,
		Example: `  weir bench coap
  weir bench coap --clients 500 --duration 5s --roads cluster,cluster-wrong-node
  weir bench coap --datapath ebpf
  weir bench coap --roads direct --with scandium --warmup 20s
  weir bench coap --json > coap.json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case datapath != "" && len(cfg.With) > 0:
				return cli.UsageError(errors.New("--with: peers run on loopback; leave out --datapath"))
			case datapath == "ebpf" && !cmd.Flags().Changed("roads"):
				cfg.Paths = bench.MovedPaths()
			case datapath != "" && datapath != "ebpf":
				return cli.UsageError(fmt.Errorf("--datapath: no comparison with %q; write ebpf", datapath))
			}
			if err := cfg.Validate(); err != nil {
				return cli.UsageError(err)
			}
			return runBenchCoap(cmd, cfg, &out)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&cfg.Clients, "clients", 2000, "DTLS clients, each with a socket of its own")
	cli.DurationVar(flags, &cfg.Duration, "duration", 8*time.Second, "length of the measured window")
	cli.DurationVar(flags, &cfg.Warmup, "warmup", 2*time.Second, "load before the window")
	cli.DurationVar(flags, &cfg.Interval, "interval", 0, "pause of a client between response and next request; 0: none")
	// The flag keeps its first name, for scripts that use it; its values are paths.
	flags.StringSliceVar(&cfg.Paths, "roads", bench.CoapPaths(), "what to measure")
	flags.StringVar(&datapath, "datapath", "", "ebpf: compare forwarding nodes with the kernel data path, clients moving")
	flags.StringSliceVar(&cfg.With, "with", nil, "peers to compare with in the same run: "+strings.Join(bench.CoapPeers(), ", "))
	flags.BoolVar(&out.AsJSON, "json", false, "print the results as a JSON list")
	return cmd
}

func runBenchCoap(cmd *cobra.Command, cfg bench.CoapConfig, out *measuring.Output) error {
	row := ""
	if slices.ContainsFunc(cfg.Paths, func(path string) bool { return slices.Contains(bench.MovedPaths(), path) }) {
		row = privilege.BenchMoved
	}
	return out.Run(cmd, row, &cfg.Run, nil, func(ctx context.Context) ([]*measure.Result, error) { return bench.Coap(ctx, cfg) })
}
