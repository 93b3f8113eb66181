package main

import "github.com/spf13/cobra"

// newTurnCommand groups what speaks TURN. A new subcommand is one line here.
func newTurnCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "turn",
		Short: "TURN gateway for WebRTC media, and the tools around it",
		Args:  noSuchCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newTurnGatewayCommand())
	return cmd
}
