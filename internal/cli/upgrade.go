package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/client"
)

// UpgradeCommand is the command `upgrade` of a part that runs under a supervisor. server is what runs, such as gateway, and kept what
// does not end, such as allocation. upgrade requests it and returns what is printed as JSON and as text.
func UpgradeCommand(part AdminPart, server, kept string, upgrade func(context.Context, *client.Client) (done any, text string, err error)) *cobra.Command {
	var flags ClientFlags
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: fmt.Sprintf("Replace a running %s by the binary that is at its path now; no %s ends", server, kept),
		Long: fmt.Sprintf(`Has a running %[1]s replace itself by the binary that is at its path now, and waits until that serves. It is tried
first: if it does not run, nothing happens. Sockets stay open all the time, so that packets wait in them, and if the new
binary does not come to serve, the old one is back. It is what SIGUSR2 to the %[1]s does. The same binary restarts it.`, server),
		Example: fmt.Sprintf(`  install -m 755 weir.new /usr/local/bin/weir && weir %[1]s upgrade
  weir %[1]s upgrade --admin unix:/run/weir.sock --json`, part.Name),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			running, err := flags.Client()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), wait)
			defer cancel()
			done, text, err := upgrade(ctx, running)
			if err != nil {
				return err
			}
			if flags.AsJSON {
				return PrintJSON(cmd.OutOrStdout(), done)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), text)
			return err
		},
	}
	flags.Add(cmd, part)
	DurationVar(cmd.Flags(), &wait, "wait", time.Minute, "how long the new process may take until it serves")
	return cmd
}
