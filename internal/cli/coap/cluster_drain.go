package coap

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/client"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/coap/node"
	"github.com/weir-lb/weir/internal/control/admin"
)

func newClusterDrainCommand() *cobra.Command {
	var to uint32
	cmd := moveCommand(func(ctx context.Context, cmd *cobra.Command, running *client.Client) (*v1.CoAPMoved, error) {
		if cmd.Flags().Changed("to-node") {
			return running.DrainCoAP(ctx, &to)
		}
		return running.DrainCoAP(ctx, nil)
	}, "%d sessions moved to other nodes in %.0f ms, %d lost, %d left")
	cmd.Use, cmd.Short = "drain", "Move the DTLS sessions of a running cluster node to other nodes, so that it can be stopped"
	cmd.Long = `Has a running server move the DTLS sessions of its cluster nodes to other nodes, and waits until none is left. Their clients notice
nothing: the other nodes, and load balancers that learn owners from the cluster, send their records to the new node; what still
comes to the old one is forwarded. The server is not ready any more, so that balancers give it no new clients, and goes on to move
sessions that clients make nevertheless, until 'weir coap cluster undrain'. Stop it then; when it is started again, its sessions return.

It needs a secured link between the nodes, because the keys of the sessions travel over it, and another node of Weir. Sessions without
connection ids stay.`
	cmd.Example = `  weir coap cluster drain
  weir coap cluster drain --to-node 2 --wait 10s --json`
	cmd.Flags().Uint32Var(&to, "to-node", 0, "id of the node that takes the sessions (default the one with the fewest sessions)")
	return cmd
}

func newClusterUndrainCommand() *cobra.Command {
	cmd := moveCommand(func(ctx context.Context, _ *cobra.Command, running *client.Client) (*v1.CoAPMoved, error) {
		return running.UndrainCoAP(ctx)
	}, "the sessions return: %[4]d are here now")
	cmd.Use, cmd.Short = "undrain", "End a drain: the DTLS sessions return to their node"
	cmd.Long = `Ends what 'weir coap cluster drain' has begun. The other nodes give the sessions back by themselves, within seconds.`
	cmd.Example = `  weir coap cluster undrain`
	return cmd
}

// moveCommand is a command that has a running server move sessions.
func moveCommand(run func(context.Context, *cobra.Command, *client.Client) (*v1.CoAPMoved, error), text string) *cobra.Command {
	var flags cli.ClientFlags
	var wait time.Duration
	cmd := &cobra.Command{
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			running, err := flags.Client()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), wait)
			defer cancel()
			done, err := run(ctx, cmd, running)
			if err != nil {
				return err
			}
			if flags.AsJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), done)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), text+"\n", done.Moved, done.Seconds*1000, done.Lost, done.Left)
			return err
		},
	}
	flags.Add(cmd, cli.CoapPart())
	cli.DurationVar(cmd.Flags(), &wait, "wait", time.Minute, "how long to wait until it is done; it goes on anyway")
	return cmd
}

// moveRoutes are the requests to move sessions. They are answered with the counters before.
func moveRoutes(server *node.Node) []admin.Route {
	before := func(err error) (any, error) {
		if err != nil {
			return nil, err
		}
		m := server.Moved()
		return v1.CoAPMoved{Moved: m.Out, Lost: m.Lost, Left: m.Sessions}, nil
	}
	return []admin.Route{
		{Pattern: "POST /drain", Answer: func(r *http.Request) (any, error) {
			text := r.FormValue("to")
			if text == "" {
				return before(server.MoveAway(nil))
			}
			to, err := strconv.ParseUint(text, 10, 8)
			if err != nil {
				return nil, fmt.Errorf("node %q: want 0 to 255", text)
			}
			return before(server.MoveAway(new(uint32(to))))
		}},
		{Pattern: "POST /undrain", Answer: func(*http.Request) (any, error) { return before(server.MoveBack()) }},
	}
}
