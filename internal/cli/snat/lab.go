package snat

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	examples "github.com/weir-lb/weir/examples/snat"
	"github.com/weir-lb/weir/internal/bench/snatlab"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/files"
	"github.com/weir-lb/weir/internal/cli/measuring"
	"github.com/weir-lb/weir/internal/privilege"
	"github.com/weir-lb/weir/internal/snat"
	"github.com/weir-lb/weir/internal/testbed/procstat"
)

func newSnatLabCommand() *cobra.Command {
	var file cli.ConfigFile
	var only, nats []string
	var asJSON bool
	var report string
	cmd := &cobra.Command{
		Use:   "lab [FILE]",
		Short: "Build the paths of scenarios from namespaces, offer more connections than they hold, and count",
		Long: `Build the path of each scenario from network namespaces, with the kernel's NAT (nft) at every place that translates
sources, offer it the scenario's connections with the workers of 'weir tcp', wait until nothing changes any more, and print
one table with the published measurement, the plan and the count. Then the same with Weir's own NAT
('weir lb run --datapath ebpf') as the last translator.

FILE is one of 'weir snat plan'; without it, the tables of the source document and a few further scenarios.
The last column is what the plateau finder of 'weir tcp client' calls the ceiling; the finder does not know the plan.

Needs root and nft. A run takes 5 to 40 s, all of them some 15 minutes. Ctrl-C ends it and leaves nothing behind.
A run that breaks is made once more; one that breaks again is a failed row with its reason, and the others stay.
Exit codes: 0 every count is the plan's, 1 one differs or a run failed, 2 wrong usage.`,
		Example: `  sudo weir snat lab
  sudo weir snat lab --only "Outbound ports" --nat kernel
  sudo weir snat lab examples/snat/lab.yaml --report lab.html
  sudo weir snat lab --json | jq '.cells[] | [.scenario, .plan.holds, .kernel.held, .weir.held]'`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			scenarios, err := snatLabScenarios(file.Path, only)
			if err != nil {
				return err
			}
			return runSnatLab(cmd, snatlab.Config{Scenarios: scenarios, NATs: nats}, asJSON, report)
		},
	}
	file.Add(cmd, " (YAML) with scenarios")
	cmd.Args = file.Args
	flags := cmd.Flags()
	flags.StringArrayVar(&only, "only", nil, "only scenarios with this text in their table or name; may be repeated")
	flags.StringSliceVar(&nats, "nat", snatlab.NATs(), "NATs to measure: "+strings.Join(snatlab.NATs(), ", "))
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	measuring.AddReportFlag(cmd, &report, measuring.ReportUsage)
	return cmd
}

// snatLabScenarios reads the file, or those in the binary, and keeps what only requests.
func snatLabScenarios(file string, only []string) (kept []snat.Scenario, err error) {
	var all []snat.Scenario
	if file != "" {
		if all, err = files.ReadScenarios(file); err != nil {
			return nil, err
		}
	} else {
		for _, file := range examples.Scenarios() {
			some, err := files.Scenarios(file.Name, file.Text)
			if err != nil {
				return nil, err
			}
			all = append(all, some...)
		}
	}
	if len(only) == 0 {
		return all, nil
	}
	names := files.ScenarioNames(all)
	for i, s := range all {
		for _, text := range only {
			if strings.Contains(strings.ToLower(names[i]), strings.ToLower(text)) {
				kept = append(kept, s)
				break
			}
		}
	}
	if len(kept) == 0 {
		return nil, cli.UsageError(fmt.Errorf("--only: no scenario has %q in its name; there are: %s", strings.Join(only, `" or "`), strings.Join(names, "; ")))
	}
	return kept, nil
}

func runSnatLab(cmd *cobra.Command, c snatlab.Config, asJSON bool, report string) (err error) {
	if err := c.Validate(); err != nil {
		return cli.UsageError(fmt.Errorf("--nat: %w", err))
	}
	row := privilege.SNATLab
	if slices.Equal(c.NATs, []string{snatlab.Kernel}) {
		row = privilege.SNATKernel
	}
	if err := privilege.Check(row); err != nil {
		return err
	}
	if c.Binary, err = os.Executable(); err != nil {
		return fmt.Errorf("find our own binary: %w", err)
	}
	if c.Launcher, err = measuring.TCPWorkers(cmd.ErrOrStderr()); err != nil {
		return err
	}
	progress := measuring.NewProgress(cmd.ErrOrStderr())
	c.Progress = progress.Show
	load := procstat.LoadAverage()
	result, err := snatlab.Run(cmd.Context(), c)
	progress.Clear()
	switch {
	case err != nil && cmd.Context().Err() != nil && errors.Is(err, cmd.Context().Err()):
		return errors.New("interrupted; everything that was started is gone")
	case err != nil:
		return err
	case asJSON:
		err = cli.PrintJSON(cmd.OutOrStdout(), result)
	default:
		err = snatlab.Write(cmd.OutOrStdout(), result)
	}
	if err == nil {
		method := fmt.Sprintf("%s\nload average: %s before, %s after", measuring.TypedCommand(), load, procstat.LoadAverage())
		err = measuring.WriteReport(report, func(w io.Writer) error { return snatlab.WriteHTML(w, result, method) })
	}
	if err == nil && !snatlab.OK(result) {
		return &cli.ExitError{Code: cli.ExitFailure} // the table says why
	}
	return err
}
