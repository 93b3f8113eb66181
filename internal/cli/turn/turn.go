package turn

import (
	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/cli"
)

// newTurnCommand groups the commands about TURN. A new subcommand is one line here.
func newTurnCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "turn",
		Short:   "TURN gateway for WebRTC media, and the tools around it",
		Example: `  weir turn cat udp://127.0.0.1:9000 'turn://user1:passwd1@192.0.2.1:3478?transport=udp' udp://10.0.0.5:5000`,
		Args:    cli.NoSuchCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		newTurnGatewayCommand(),
		newStunnerdCommand(),
		newTurnCatCommand(),
		newTurnAuthCommand(),
		newTurnBenchCommand(),
		newTurnUsersCommand(),
		newTurnUpgradeCommand(),
		newTurnExportCommand(),
		newTurnImportCommand(),
	)
	return cmd
}
