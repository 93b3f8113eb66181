package turn

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/cli"
)

func newTurnUpgradeCommand() *cobra.Command {
	var flags cli.ClientFlags
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Replace a running gateway by the binary that is at its path now; no allocation ends",
		Long: `Has a running gateway replace itself by the binary that is at its path now, and waits until that serves. It is tried
first: if it does not run, nothing happens. Sockets stay open all the time, so that packets wait in them, and if the new
binary does not come to serve, the old one is back. It is what SIGUSR2 to the gateway does. The same binary restarts it.`,
		Example: `  install -m 755 weir.new /usr/local/bin/weir && weir turn upgrade
  weir turn upgrade --admin unix:/run/weir.sock --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := flags.Client()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), wait)
			defer cancel()
			done, err := client.Upgrade(ctx)
			if err != nil {
				return err
			}
			if flags.AsJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), done)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "upgraded from %s to %s in %.0f ms: process %d has %d sockets and %d allocations\n",
				done.From, done.To, done.Seconds*1000, done.PID, done.Sockets, done.Records)
			return err
		},
	}
	flags.Add(cmd, cli.TurnPart())
	cli.DurationVar(cmd.Flags(), &wait, "wait", time.Minute, "how long the new process may take until it serves")
	return cmd
}
