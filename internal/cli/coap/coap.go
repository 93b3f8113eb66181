package coap

import (
	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/dtls/record"
)

// newCoapCommand groups the commands about CoAP. A new subcommand is one line here.
func newCoapCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "coap",
		Short: "CoAP over UDP and DTLS with connection ids: server, cluster, clients",
		Example: `  weir coap server --listen :5783 --dtls :5784
  weir coap server --dtls-cluster ":15784;localhost:15884;1,---;localhost:25884;2"
  weir coap discover coap://localhost:5783
  weir coap get coaps://localhost:5784/mycontext
  weir coap observe coap://localhost:5683/obs
  weir coap bench "coaps://localhost:5784/benchmark?rlen=40" --clients 2000 --duration 30s`,
		Args: cli.NoSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		newCoapServerCommand(),
		newCoapUpgradeCommand(),
		newClusterCommand(),
		newObserveCommand(),
		newDiscoverCommand(),
		newBrowseCommand(),
		newPingCommand(),
		newCheckCommand(),
		newCoapBenchCommand(),
		newBenchAllCommand(),
		newReceiveCommand(),
		newCoapCertsCommand(),
	)
	cmd.AddCommand(newRequestCommands()...)
	return cmd
}

// Family is weir coap.
func Family() cli.Family {
	return cli.Family{Command: newCoapCommand, Values: coapValues, Arguments: coapArguments}
}

func coapValues() map[string][]string {
	var formats, ciphers []string
	for _, f := range formatNames {
		formats = append(formats, f.name)
	}
	for _, s := range record.Suites() {
		ciphers = append(ciphers, s.String())
	}
	return map[string][]string{
		"--method":                 {"GET", "POST", "PUT", "DELETE", "FETCH", "PATCH", "IPATCH"},
		"--content-format":         formats,
		"--accept":                 formats,
		"--cipher":                 ciphers,
		"weir coap check --only":   {"CORE", "LINK", "BLOCK", "OBS", "DTLS"},
		"--no-response":            {"2", "4", "5"},
		"--dtls-cluster-replicate": {"kubernetes", "embedded:", "http://"},
		"--sockets":                {"each", "shared"},
		"weir coap bench --mode":   {"request", "observe", "reverse-request", "reverse-observe"},
		"--progress":               {"weir", "original", "json"},
		"--client-auth":            {"none", "wanted", "needed"},
		"--notify-interval":        {"5s", "500ms"},
	}
}

func coapArguments() map[string]cobra.CompletionFunc {
	arguments := map[string]cobra.CompletionFunc{}
	for _, name := range []string{"get", "put", "post", "delete", "fetch", "patch", "ipatch", "observe", "discover", "ping", "check"} {
		arguments["weir coap "+name] = cli.AtMost(1, cli.Schemes("coap://", "coaps://", "coap+tcp://", "coaps+tcp://"))
	}
	for _, name := range []string{"bench", "receive"} {
		arguments["weir coap "+name] = cli.AtMost(1, cli.Schemes("coap://", "coaps://"))
	}
	return arguments
}
