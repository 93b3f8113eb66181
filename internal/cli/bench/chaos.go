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

func newBenchChaosCommand() *cobra.Command {
	var config bench.ChaosConfig
	var out measuring.Output
	cmd := &cobra.Command{
		Use:   "chaos",
		Short: "Kill, upgrade, drain, stop and cut off nodes of a CoAP cluster by a seeded script: is every answer right?",
		Long: `Run nodes of weir coap server as one DTLS cluster behind weir nat, each in a network namespace of its own, under a load of DTLS clients with
connection ids, and let events happen that are drawn from a seed. The same seed draws the same events.

Events:
` + measuring.IndentNames(bench.ChaosEvents()) + `
Without --events all but crash happen, which does with --replicate; clock is left out where time namespaces are not available.

Checked are: each answer belongs to its request; no node and no two nodes execute a request twice, by what the nodes write into files; no
connection id has two different records with the same epoch and sequence number, by a capture of all links; nothing is lost and no client makes
a new session, unless a node lost its memory without --replicate. The exit code is 1 if one of these fails.`,
		Example: `  sudo weir bench run chaos --duration 10m --report chaos.html
  sudo weir bench run chaos --seed 7 --events kill,partition --duration 1m
  sudo weir bench run chaos --seed 7 --nodes 5 --follow --json
  sudo weir bench run chaos --duration 2m --follow --replicate /usr/bin/etcd`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return out.Run(cmd, privilege.BenchDSR, &config.Run, config.Validate(), func(ctx context.Context) ([]*measure.Result, error) {
				return bench.Chaos(ctx, config)
			})
		},
	}
	flags := cmd.Flags()
	cli.DurationVar(flags, &config.Duration, "duration", 10*time.Minute, "length of the script")
	flags.Uint64Var(&config.Seed, "seed", 0, "of the script and of the clients (default random; the result names it)")
	flags.IntVar(&config.Nodes, "nodes", 3, "nodes of the cluster, 2 to 9")
	flags.IntVar(&config.Clients, "clients", 100, "number of clients")
	cli.DurationVar(flags, &config.Interval, "interval", 100*time.Millisecond, "pause of a client between response and next request")
	cli.DurationVar(flags, &config.Every, "every", 3*time.Second, "from an event to the next one, on average")
	flags.StringSliceVar(&config.Events, "events", nil, "which events")
	flags.BoolVar(&config.Follow, "follow", false, "the NAT follows the cluster and steers by connection id, so that nodes forward less")
	flags.StringVar(&config.Etcd, "replicate", "", "program of etcd: the nodes replicate their sessions, agreed in it, and crash happens too")
	out.Add(cmd)
	return cmd
}
