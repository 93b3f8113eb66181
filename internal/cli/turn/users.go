package turn

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/client"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/status"
)

func newTurnUsersCommand() *cobra.Command {
	var view status.View
	var query client.UserQuery
	cmd := &cobra.Command{
		Use:   "users",
		Short: "List the allocations of a running gateway: which client relays what to which peer",
		Long: `List the allocations of a running gateway: user, client, relay address, peers, traffic each way, and how long ago the
last packet passed. Rates are of the time between two tables with --watch, else of the allocation's whole life.`,
		Example: `  weir turn users
  weir turn users --watch --sort bytes --limit 20
  weir turn users --client 192.0.2.0/24 --json | jq -r '.users[].relay[]'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if query.Limit == 0 { // the gateway would take its default
				return cli.UsageError(fmt.Errorf("--limit \"0\": write 1 to %d", v1.MaxTurnUsers))
			}
			if _, err := parseTurnQuestion(query.Values()); err != nil {
				return cli.UsageError(fmt.Errorf("--%w", err))
			}
			var users status.Users
			return view.Show(cmd, func(ctx context.Context, running *client.Client) (status.Look, error) {
				list, err := running.Users(ctx, query)
				return status.Look{JSON: list, Text: func(w io.Writer) error { return users.Write(w, list) }}, err
			})
		},
	}
	for _, f := range []struct {
		value      *string
		key, usage string
	}{
		{&query.User, "user", "only this user's"},
		{&query.Listener, "listener", "only of this listener"},
		{&query.Transport, "transport", "only udp, tcp, tls or dtls"},
		{&query.Client, "client", "only clients with this address or in this prefix"},
		{&query.Sort, "sort", "order by bytes, age, expires, idle, user or client, before the limit cuts (default age, the oldest first)"},
	} {
		cmd.Flags().StringVar(f.value, f.key, "", f.usage)
	}
	cmd.Flags().IntVar(&query.Limit, "limit", 1000, fmt.Sprintf("at most so many, up to %d", v1.MaxTurnUsers))
	view.AddWatch(cmd, "again and again, until interrupted")
	view.Add(cmd, cli.TurnPart())
	cli.CompleteFlag(cmd, "user", userNames(&view.ClientFlags, func(u *v1.TurnUser) string { return u.User }))
	cli.CompleteFlag(cmd, "listener", userNames(&view.ClientFlags, func(u *v1.TurnUser) string { return u.Listener }))
	return cmd
}
