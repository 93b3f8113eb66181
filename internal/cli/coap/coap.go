package coap

import (
	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/cli"
)

// newCoapCommand groups what speaks CoAP. A new subcommand is one line here.
func newCoapCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "coap",
		Short: "CoAP over UDP and DTLS with connection ids: server, cluster, clients",
		Example: `  weir coap server --listen :5783 --dtls :5784
  weir coap server --dtls-cluster ":15784;localhost:15884;1,---;localhost:25884;2"
  weir coap get coaps://localhost:5784/mycontext
  weir coap bench "coaps://localhost:5784/benchmark?rlen=40" --clients 2000 --duration 30s`,
		Args: cli.NoSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		newCoapServerCommand(),
		newCoapGetCommand(),
		newCoapBenchCommand(),
		newCoapCertsCommand(),
	)
	return cmd
}

// Family is weir coap.
func Family() cli.Family {
	return cli.Family{Command: newCoapCommand, Values: coapValues, Arguments: coapArguments}
}

func coapValues() map[string][]string {
	formats := []string{"text", "json", "xml", "cbor", "octets", "link"}
	return map[string][]string{
		"--method":          {"GET", "POST", "PUT", "DELETE", "FETCH", "PATCH", "IPATCH"},
		"--content-format":  formats,
		"--accept":          formats,
		"--sockets":         {"each", "shared"},
		"--client-auth":     {"none", "wanted", "needed"},
		"--notify-interval": {"5s", "500ms"},
	}
}

func coapArguments() map[string]cobra.CompletionFunc {
	return map[string]cobra.CompletionFunc{
		"weir coap get": cli.AtMost(1, cli.Schemes("coap://", "coaps://")), "weir coap bench": cli.AtMost(1, cli.Schemes("coap://", "coaps://")),
	}
}
