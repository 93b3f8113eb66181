package turn

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/client"
	"github.com/weir-lb/weir/internal/cli"
)

func newTurnUpgradeCommand() *cobra.Command {
	return cli.UpgradeCommand(cli.TurnPart(), "gateway", "allocation", func(ctx context.Context, running *client.Client) (any, string, error) {
		done, err := running.Upgrade(ctx)
		if err != nil {
			return nil, "", err
		}
		return done, fmt.Sprintf("upgraded from %s to %s in %.0f ms: process %d has %d sockets and %d allocations",
			done.From, done.To, done.Seconds*1000, done.PID, done.Sockets, done.Records), nil
	})
}
