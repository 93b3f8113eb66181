package main

import "github.com/spf13/cobra"

// newCoapCommand groups what speaks CoAP. A new subcommand is one line here.
func newCoapCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "coap",
		Short: "CoAP over UDP and DTLS with connection ids: server, cluster, clients",
		Example: `  weir coap server --listen :5783 --dtls :5784
  weir coap server --dtls-cluster ":15784;localhost:15884;1,---;localhost:25884;2"
  weir coap get coaps://localhost:5784/mycontext
  weir coap bench "coaps://localhost:5784/benchmark?rlen=40" --clients 2000 --duration 30s`,
		Args: noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		newCoapServerCommand(),
		newCoapGetCommand(),
		newCoapBenchCommand(),
	)
	return cmd
}
