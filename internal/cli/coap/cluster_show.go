package coap

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/client"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/status"
)

// newClusterCommand groups the commands about a cluster of running servers.
func newClusterCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "cluster",
		Short:   "Look at the cluster of running CoAP servers, and move sessions between its nodes",
		Example: "  weir coap cluster show\n  weir coap cluster drain",
		Args:    cli.NoSuchCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newClusterShowCommand(), newClusterDrainCommand(), newClusterUndrainCommand())
	return cmd
}

func newClusterShowCommand() *cobra.Command {
	var view status.View
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show the nodes of a cluster, their state, and what a running server exchanged with them",
		Long: `Show the cluster as a running server sees it: its nodes, which of them answer, over which link, and for how long they have been
silent; the sessions that the server owns; and what it forwarded, took, sent back and dropped. Counters are totals since the server's
start, with --watch from the second table on rates.`,
		Example: `  weir coap cluster show
  weir coap cluster show --watch --every 2s
  weir coap cluster show --json | jq '.nodes[].members[] | select(.state == "down")'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var shown status.Cluster
			return view.Show(cmd, func(ctx context.Context, running *client.Client) (status.Look, error) {
				current, err := running.CoAPStatus(ctx)
				if err != nil {
					return status.Look{}, err
				}
				nodes := status.ClusterOf(current)
				if len(nodes.Nodes) == 0 {
					return status.Look{}, errors.New("the server runs no cluster node; start it with --dtls-cluster or --k8s-dtls-cluster")
				}
				return status.Look{JSON: nodes, Text: func(w io.Writer) error { return shown.Write(w, nodes, time.Now()) }}, nil
			})
		},
	}
	view.AddWatch(cmd, "again and again, until interrupted")
	view.Add(cmd, cli.CoapPart())
	return cmd
}
