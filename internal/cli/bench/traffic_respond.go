package bench

import (
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/bench"
	"github.com/weir-lb/weir/internal/cli"
)

// newTrafficRespondCommand is the server of flows as a Pod.
func newTrafficRespondCommand() *cobra.Command {
	var at, name string
	cmd := &cobra.Command{
		Use: "respond", Short: "Answer requests over UDP and TCP with a name", Hidden: true,
		Example: `  weir bench traffic respond --at 127.0.0.1:7000 --name a`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			address, err := netip.ParseAddrPort(at)
			if err != nil {
				return cli.UsageError(fmt.Errorf("--at: %w", err))
			}
			return bench.Respond(cmd.Context(), address, name)
		},
	}
	cmd.Flags().StringVar(&at, "at", "", "address to listen at")
	cmd.Flags().StringVar(&name, "name", "", "name in the answers")
	return cmd
}
