package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/weir-lb/weir/internal/lab/bench"
	"github.com/weir-lb/weir/internal/lab/measure"
)

// newBenchRunCommand groups the scenarios that need networks of their own.
func newBenchRunCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run SCENARIO",
		Short: "Run a scenario in network namespaces and compare its roads",
		Example: `  sudo weir bench run dsr
  sudo weir bench run dsr --rounds 1 --seconds 1 --only routing,iptables-dnat`,
		Args: noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newBenchDSRCommand(), newBenchNFQueueCommand())
	return cmd
}

func newBenchDSRCommand() *cobra.Command {
	var (
		config  bench.DSRConfig
		seconds int
		asJSON  bool
		report  string
	)
	cmd := &cobra.Command{
		Use:   "dsr",
		Short: "TCP throughput, packet rate and CPU: routing, kernel DNAT, and Weir's modes on both hooks",
		Long: `Build the lab "dsr" once for each road and load them in turns. Medians, spreads, ratios to plain routing of the same round,
and the whole machine's processor time, softirqs included.

Roads:
` + indentNames(bench.DescribeDSRRoads()) + `
Loads:
` + indentNames(bench.DescribeDSRLoads()) + `
Needs root, and the Debian packages iperf, iperf3, iptables and nftables for the roads and loads that use them. A full run
of 5 rounds takes about 15 minutes. An interrupt ends it and leaves nothing behind. On a machine that others use, run it
by nice -n -10.`,
		Example: `  sudo weir bench run dsr --report dsr.html
  sudo weir bench run dsr --rounds 3 --seconds 1 --only weir-l2dsr-tcx --loads iperf2
  sudo weir bench run dsr --json > dsr.json; weir bench report dsr.json -o dsr.html`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			config.Duration = time.Duration(seconds) * time.Second
			if err := config.Validate(); err != nil {
				return usageError(err)
			}
			if config.Binary, err = os.Executable(); err != nil {
				return fmt.Errorf("find our own binary: %w", err)
			}
			progress := newProgress(cmd.ErrOrStderr())
			config.Progress = progress.show
			results, err := bench.DSR(cmd.Context(), config)
			progress.clear()
			if cmd.Context().Err() != nil && errors.Is(err, cmd.Context().Err()) {
				return errors.New("interrupted; everything that was started is gone")
			}
			if err != nil {
				return err
			}
			if err := printDSR(cmd.OutOrStdout(), results, asJSON); err != nil {
				return err
			}
			if report != "" {
				if err := writeReport(report, results); err != nil {
					return err
				}
			}
			if failed := bench.Failed(results); failed > 0 {
				return fmt.Errorf("%d of %d measurements failed", failed, len(results))
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&config.Rounds, "rounds", 5, "rounds; the result is their median")
	flags.IntVar(&seconds, "seconds", 2, "length of one load over one road in one round")
	flags.StringSliceVar(&config.Roads, "only", nil, "roads to measure beside routing (default all)")
	flags.StringSliceVar(&config.Loads, "loads", nil, "loads: "+strings.Join(bench.DSRLoads(), ", ")+" (default all)")
	flags.StringSliceVar(&config.Families, "families", nil, "address families: "+strings.Join(bench.DSRFamilies(), ", ")+" (default both)")
	flags.BoolVar(&asJSON, "json", false, "print the results as a JSON list")
	flags.StringVar(&report, "report", "", "also write an HTML report with plots to this file")
	_ = cmd.RegisterFlagCompletionFunc("only", cobra.FixedCompletions(bench.DSRRoads(), cobra.ShellCompDirectiveNoFileComp)) // fails only for an unknown flag
	return cmd
}

func printDSR(w io.Writer, results []*measure.Result, asJSON bool) error {
	if asJSON {
		return printJSON(w, results)
	}
	return bench.WriteDSR(w, results)
}

// indentNames lays out "name\twhat it is" lines for a help text.
func indentNames(lines []string) string {
	var b strings.Builder
	for _, line := range lines {
		name, about, _ := strings.Cut(line, "\t")
		fmt.Fprintf(&b, "  %-16s %s\n", name, about)
	}
	return b.String()
}

// progressLine shows how far a long run is: one line rewritten on a terminal, else a line now and then.
type progressLine struct {
	w        io.Writer
	terminal bool
	started  time.Time
	last     time.Time
}

func newProgress(w io.Writer) *progressLine {
	file, ok := w.(*os.File)
	return &progressLine{w: w, terminal: ok && term.IsTerminal(int(file.Fd())), started: time.Now()}
}

func (p *progressLine) show(done float64, what string) {
	now := time.Now()
	left := ""
	if elapsed := now.Sub(p.started); done > 0.02 && elapsed > 2*time.Second {
		left = fmt.Sprintf(", %v left", time.Duration(float64(elapsed)*(1-done)/done).Round(time.Second))
	}
	switch {
	case p.terminal:
		fmt.Fprintf(p.w, "\r\x1b[K%3.0f%%  %s%s", 100*done, what, left)
	case now.Sub(p.last) > 10*time.Second:
		p.last = now
		fmt.Fprintf(p.w, "%3.0f%%  %s%s\n", 100*done, what, left)
	}
}

func (p *progressLine) clear() {
	if p.terminal {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
