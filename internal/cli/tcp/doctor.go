package tcp

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/finding"
	"github.com/weir-lb/weir/internal/tcpscale/limits"
)

func newTCPDoctorCommand() *cobra.Command {
	var want limits.Want
	var asJSON bool
	var end string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what stands in the way of N TCP connections here, and the command that raises it",
		Long: `Read the limits of this machine that bound TCP connections (open files, source ports, queues, conntrack, memory, the
cgroup's) and compare them with what --connections needs. Nothing is changed.

Exit codes: 0 they fit (there may be warnings), 1 they do not, 2 wrong usage.`,
		Example: `  weir tcp doctor --connections 1000000
  weir tcp doctor --connections 60000 --end client --source-addresses 1
  weir tcp doctor --connections 300000 --conntrack --json | jq '.[] | select(.level == "fail")'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case want.Connections < 1:
				return cli.UsageError(fmt.Errorf("--connections %d: at least 1", want.Connections))
			case end != "both" && end != "client" && end != "server":
				return cli.UsageError(fmt.Errorf("--end %q: write both, client or server", end))
			case want.Targets < 1:
				return cli.UsageError(fmt.Errorf("--targets %d: at least 1", want.Targets))
			case want.Workers < 0 || want.Sources < 0:
				return cli.UsageError(fmt.Errorf("--workers %d, --source-addresses %d: at least 1, or 0 for as many as needed", want.Workers, want.Sources))
			}
			want.BothEnds = end == "both"
			findings := limits.Examine(limits.Read(), want)
			if end == "server" {
				findings = slices.DeleteFunc(findings, func(f finding.Finding) bool { return f.Check == "source ports" })
			}
			var err error
			if asJSON {
				err = cli.PrintJSON(cmd.OutOrStdout(), findings)
			} else {
				err = finding.Print(cmd.OutOrStdout(), findings)
			}
			if err == nil && !limits.Fits(findings) {
				if asJSON {
					return &cli.ExitError{Code: cli.ExitFailure} // the JSON says why
				}
				return fmt.Errorf("%d connections do not fit here; see the lines that say fail", want.Connections)
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&want.Connections, "connections", 100000, "how many shall fit")
	flags.StringVar(&end, "end", "both", "which ends are on this machine: both, client, server")
	flags.IntVar(&want.Workers, "workers", 0, "processes of each end (default as many as needed)")
	flags.IntVar(&want.Targets, "targets", 1, "addresses and ports that clients connect to")
	flags.IntVar(&want.Sources, "source-addresses", 0, "source addresses of the client; 0: as many as needed, as on loopback")
	cli.OldFlag(cmd, "sources", "", "source-addresses")
	flags.BoolVar(&want.Conntracked, "conntrack", false, "connections pass connection tracking on this machine: the table must hold them")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
