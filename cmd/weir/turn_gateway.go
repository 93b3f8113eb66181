package main

import (
	"errors"

	"github.com/spf13/cobra"
)

func newTurnGatewayCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "gateway [-c FILE] [TURN-URI]",
		Short:  "Run a TURN gateway",
		Hidden: true, // until it runs
		RunE:   func(*cobra.Command, []string) error { return errors.New("not built yet") },
	}
}
