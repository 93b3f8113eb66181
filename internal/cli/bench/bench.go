package bench

import (
	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/cli"
)

// newBenchCommand groups the benchmarks. A new one is one line here.
func newBenchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure what Weir costs, in its own processes",
		Example: `  weir bench coap
  weir bench coap --clients 500 --duration 5s --json
  weir bench nat
  sudo weir bench run dsr --report dsr.html
  sudo weir bench run floods --only dtls-half-open`,
		Args: cli.NoSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		newBenchCoapCommand(),
		newBenchEBPFCommand(),
		newBenchNATCommand(),
		newBenchUDPEchoCommand(),
		newBenchTrafficCommand(),
		newBenchRunCommand(),
		newBenchListCommand(),
		newBenchReportCommand(),
	)
	return cmd
}
