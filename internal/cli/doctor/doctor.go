package doctor

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/balancing"
	"github.com/weir-lb/weir/internal/datapath/doctor"
	"github.com/weir-lb/weir/internal/finding"
	"github.com/weir-lb/weir/internal/privilege"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// errFailed is returned when a finding has the level fail; the table names it.
var errFailed = errors.New("packets are lost, or addresses are not announced; see the lines that say fail")

func newDoctorCommand() *cobra.Command {
	var f balancing.RulesFlags
	var running cli.ClientFlags
	var datapath string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor [FILE]",
		Short: "Find what spoils the balancer here, and the command that fixes it",
		Long: `Look through this network namespace for what makes the balancer lose packets or work worse than it could, and print for each
finding the command that fixes it. Nothing is changed.

With a configuration FILE, also what it needs: its rules and routes, its marks, its VIPs, and what it announces by BGP or VRRP. Give the
options that 'weir lb rules' was given. Needs root.

With --datapath udp: whether the kernel forwards established flows of the weir nat that runs (--admin), or of one that this user would
start, and why not; with FILE also whether its addresses can be announced. Needs no privileges.

Exit codes: 0 nothing is lost (there may be warnings), 1 something is, 2 wrong usage.`,
		Example: `  sudo weir doctor -c weir.yaml --queue 0:3 --interface eth0
  sudo weir doctor -c weir.yaml --json | jq '.[] | select(.level != "ok")'
  sudo weir doctor -c weir.yaml --datapath ebpf --interface veth0,veth2
  sudo weir doctor weir.yaml --datapath udp     # can its addresses be announced?
  weir doctor --datapath udp     # does the kernel forward established flows of weir nat?`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			findings, snapshot, err := datapathFindings(cmd, &f, &running, datapath)
			if err != nil {
				return err
			}
			more, err := announceFindings(cmd.Context(), snapshot)
			if err != nil {
				return err
			}
			return report(cmd.OutOrStdout(), append(findings, more...), asJSON)
		},
	}
	f.Add(cmd)
	running.AddAddress(cmd, cli.NATPart())
	cmd.Flags().StringVar(&datapath, "datapath", "nfqueue", "nfqueue, ebpf or udp (weir nat)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// datapathFindings are those about a data path. The snapshot is that of the configuration, nil without one.
func datapathFindings(cmd *cobra.Command, f *balancing.RulesFlags, running *cli.ClientFlags, datapath string) ([]finding.Finding, *lb.Snapshot, error) {
	if datapath == "udp" {
		var snapshot *lb.Snapshot
		if f.File.Path != "" {
			var err error
			if snapshot, err = f.Snapshot(); err != nil {
				return nil, nil, err
			}
		}
		findings, err := natFindings(cmd.Context(), running, cmd.Flags().Changed("admin"))
		return findings, snapshot, err
	}
	c, err := examined(cmd, f, datapath)
	if err != nil {
		return nil, nil, err
	}
	if err := privilege.Check(privilege.Doctor); err != nil {
		return nil, nil, err
	}
	findings, err := doctor.Examine(cmd.Context(), c)
	return findings, c.Snapshot, err
}

// examined converts the flags into what is examined.
func examined(cmd *cobra.Command, f *balancing.RulesFlags, datapath string) (doctor.Config, error) {
	c := doctor.Config{Interfaces: f.Config.Interfaces}
	switch datapath {
	case "nfqueue":
	case "ebpf":
		c.Kernel = true
	default:
		return c, cli.UsageError(fmt.Errorf("--datapath %q: write nfqueue, ebpf or udp", datapath))
	}
	ranges, err := f.Rules()
	if err != nil {
		return c, err
	}
	switch {
	case f.File.Path == "":
	case c.Kernel:
		c.Snapshot, err = f.Snapshot()
	default:
		c.Snapshot, c.Plan, err = f.Plan()
	}
	if f.File.Path != "" || cmd.Flags().Changed("queue") {
		c.First, c.Count = ranges.First, ranges.Count
	}
	c.Arguments = arguments(f, cmd)
	return c, err
}

// report writes the findings. Its error says that packets are lost.
func report(out io.Writer, findings []finding.Finding, asJSON bool) (err error) {
	if asJSON {
		err = cli.PrintJSON(out, findings)
	} else {
		err = finding.Print(out, findings)
	}
	switch {
	case err != nil:
		return err
	case finding.Worst(findings) != finding.Fail:
		return nil
	case asJSON:
		return &cli.ExitError{Code: cli.ExitFailure} // the JSON contains the reason
	}
	return errFailed
}

// arguments returns the options of `weir lb rules` that were given, for the remedies.
func arguments(f *balancing.RulesFlags, cmd *cobra.Command) string {
	var words []string
	if f.File.Path != "" {
		name := f.File.Path
		if whole, err := filepath.Abs(name); err == nil {
			name = whole // the remedy may be run in another directory
		}
		words = append(words, "-c", name)
	}
	for _, name := range []string{"queue", "interface", "local", "unmarked", "fragments", "chain", "priority", "table-base", "route-protocol"} {
		flag := cmd.Flags().Lookup(name)
		switch {
		case !flag.Changed:
		case name == "interface":
			words = append(words, "--interface", strings.Join(f.Config.Interfaces, ","))
		case flag.Value.Type() == "bool":
			words = append(words, "--"+name+"="+flag.Value.String())
		default:
			words = append(words, "--"+name, flag.Value.String())
		}
	}
	return strings.Join(words, " ")
}

// Family is weir doctor.
func Family() cli.Family {
	return cli.Family{Command: newDoctorCommand, Values: doctorValues}
}

func doctorValues() map[string][]string {
	return map[string][]string{
		"weir doctor --datapath": {"nfqueue", "ebpf", "udp"},
	}
}
