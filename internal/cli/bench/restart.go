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

func newBenchRestartCommand() *cobra.Command {
	var config bench.RestartConfig
	var out measuring.Output
	cmd := &cobra.Command{
		Use:   "restart",
		Short: "Kill, restart and upgrade a CoAP server under load: what do its DTLS clients notice?",
		Long: `Run weir coap server with its supervisor under a load of DTLS clients with connection ids, let something happen to it again and again, and
count for each event what the clients sent and lost, which new handshakes they made, and how long one of them waited.

Events:
` + measuring.IndentNames(bench.RestartEvents()) + `
Without --events all but stop are measured; those that roll need root. Each has a server and a load of its own, with root in network namespaces of
their own, else on loopback. With --replicate embedded the server is one of three cluster nodes on this machine, which copy their sessions to each other
(--dtls-cluster-replicate embedded:DIRECTORY), and the events begin when all sessions are copied. Events that roll are not measured then: their
nodes move their sessions before they end.

The aims of each event are 0 requests lost, 0 new handshakes, and no wait of more than 3 s, counted from when the request was intended to
be sent; of a cluster also 0 records forwarded between nodes once a shard has moved. Where the clients' program itself was not scheduled for so long that nothing is proven, the event is VOID. The exit code is 1 if
an aim is missed or an event is void. A full run takes about 7 minutes.`,
		Example: `  sudo weir bench run restart --report restart.html
  sudo weir bench run restart --events kill --interval 0s --times 20
  sudo weir bench run restart --events rolling,rolling-dsr --times 6
  sudo weir bench run restart --replicate embedded --events kill,terminate,upgrade
  weir bench run restart --clients 100 --times 2 --every 2s --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return out.Run(cmd, "", &config.Run, config.Validate(), func(ctx context.Context) ([]*measure.Result, error) {
				return bench.Restart(ctx, config)
			})
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&config.Clients, "clients", 2000, "number of clients")
	cli.DurationVar(flags, &config.Interval, "interval", 100*time.Millisecond, "pause of a client between response and next request")
	flags.IntVar(&config.Times, "times", 10, "how often each event happens")
	cli.DurationVar(flags, &config.Every, "every", 5*time.Second, "from an event to the next one, at least")
	flags.StringSliceVar(&config.Events, "events", nil, "which events")
	flags.StringVar(&config.Replicate, "replicate", "", "embedded: the server is one of three cluster nodes, which replicate their sessions and are their store themselves")
	out.Add(cmd)
	return cmd
}
