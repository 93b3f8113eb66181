package coap

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/coap/node"
	"github.com/weir-lb/weir/internal/control/admin"
	"github.com/weir-lb/weir/internal/handover"
	"github.com/weir-lb/weir/internal/metrics"
)

// untilEnd returns the context of a server that another process follows when ctx ends, and that a signal to end has ended when signalled
// does. Then its sessions stay if there is a state directory, else their clients receive alerts.
func untilEnd(ctx, signalled context.Context, server *node.Node, k *handover.Store) (running context.Context, end func()) {
	running, end = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer end()
		select {
		case <-running.Done():
		case <-ctx.Done():
			server.Leave()
		case <-signalled.Done():
			if k.Stats().State != "" {
				server.Leave()
			}
		}
	}()
	return running, end
}

// coapAdmin is the admin API of a server.
func coapAdmin(server *node.Node, k *handover.Store) admin.Config {
	status := func() node.Status {
		s, stored := server.Status(), k.Stats()
		s.PID = os.Getpid()
		s.Handover = node.HandoverStatus{
			Supervisor: stored.Supervisor, PID: stored.PID, Starts: stored.Starts, Upgrades: stored.Upgrades, Last: stored.Last,
			Stored: stored.Sockets, Capacity: stored.Capacity, Refused: stored.Refused, State: stored.State, Unusable: stored.Unusable,
		}
		return s
	}
	return admin.Config{
		Ready: server.Ready, Status: func() any { return status() }, Metrics: func() []metrics.Sample { return metrics.Of(status()) },
		Routes: []admin.Route{{Pattern: "POST /upgrade", Answer: func(*http.Request) (any, error) {
			if err := k.RequestUpgrade(); err != nil {
				return nil, err
			}
			return v1.CoAPUpgradeAnswer{PID: os.Getpid()}, nil
		}}},
	}
}

func newCoapUpgradeCommand() *cobra.Command {
	var flags cli.ClientFlags
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Replace a running server by the binary that is at its path now; no DTLS session ends",
		Long: `Has a running server replace itself by the binary that is at its path now, and waits until that serves. It is tried
first: if it does not run, nothing happens. Sockets stay open all the time, so that requests wait in them, and if the new
binary does not come to serve, the old one is back. It is what SIGUSR2 to the server does. The same binary restarts it.`,
		Example: `  install -m 755 weir.new /usr/local/bin/weir && weir coap upgrade
  weir coap upgrade --admin unix:/run/weir.sock --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := flags.Client()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), wait)
			defer cancel()
			done, err := client.UpgradeCoAP(ctx)
			if err != nil {
				return err
			}
			if flags.AsJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), done)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "upgraded from %s to %s in %.0f ms: process %d has %d DTLS sessions, %d are lost\n",
				done.From, done.To, done.Seconds*1000, done.PID, done.Sessions, done.Lost)
			return err
		},
	}
	flags.Add(cmd, cli.CoapPart())
	cli.DurationVar(cmd.Flags(), &wait, "wait", time.Minute, "how long the new process may take until it serves")
	return cmd
}
