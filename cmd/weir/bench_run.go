package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/bench"
	"github.com/weir-lb/weir/internal/privilege"
	"github.com/weir-lb/weir/internal/terminal"
	"github.com/weir-lb/weir/internal/testbed/measure"
)

// newBenchRunCommand groups the scenarios that need networks of their own.
func newBenchRunCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run SCENARIO",
		Short: "Run a scenario in network namespaces and compare its paths",
		Example: `  sudo weir bench run dsr
  sudo weir bench run dsr --rounds 1 --duration 1s --only routing,iptables-dnat`,
		Args: noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newBenchDSRCommand(), newBenchNFQueueCommand(), newBenchFloodsCommand(), newBenchDumpCommand(), newBenchSoakCommand())
	return cmd
}

func newBenchDSRCommand() *cobra.Command {
	var (
		config bench.GridConfig
		out    benchOutput
	)
	cmd := &cobra.Command{
		Use:   "dsr",
		Short: "TCP throughput, packet rate and CPU: routing, kernel DNAT, and Weir's modes on both hooks",
		Long: `Build the lab "dsr" once for each path and load the paths in turns. Medians, spreads, ratios to plain routing of the same round,
and the whole machine's processor time, softirqs included.

Paths:
` + indentNames(bench.DSRPaths()) + `
Loads:
` + indentNames(bench.DSRLoads()) + `
Needs root, and the Debian packages iperf, iperf3, iptables and nftables for the paths and loads that use them. A full run
of 5 rounds takes about 15 minutes. An interrupt ends it and leaves nothing behind. On a machine that others use, run it
by nice -n -10.`,
		Example: `  sudo weir bench run dsr --report dsr.html
  sudo weir bench run dsr --rounds 3 --duration 1s --only weir-l2dsr-tcx --loads iperf2
  sudo weir bench run dsr --json > dsr.json; weir bench report dsr.json -o dsr.html`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return out.run(cmd, privilege.BenchDSR, &config.Run, config.ValidateDSR(), func(ctx context.Context) ([]*measure.Result, error) {
				return bench.DSR(ctx, config)
			})
		},
	}
	flags := cmd.Flags()
	addRoundFlags(cmd, &config.Rounds, &config.Duration)
	flags.StringSliceVar(&config.Paths, "only", nil, "paths to measure besides routing (default all)")
	flags.StringSliceVar(&config.Loads, "loads", nil, "loads: "+strings.Join(nameList(bench.DSRLoads()), ", ")+" (default all)")
	flags.StringSliceVar(&config.Families, "families", nil, "address families: "+strings.Join(bench.Families(), ", ")+" (default both)")
	out.addFlags(cmd)
	return cmd
}

// addRoundFlags adds how often and how long a scenario loads each of its paths.
func addRoundFlags(cmd *cobra.Command, rounds *int, length *time.Duration) {
	flags := cmd.Flags()
	flags.IntVar(rounds, "rounds", 5, "rounds; the result is their median")
	durationVar(flags, length, "duration", 2*time.Second, "length of one load over one path in one round")
	oldFlag(cmd, "seconds", "", "duration")
}

// runBench runs a benchmark of many processes of this binary and shows how far it is. row is that of the privileges it needs.
func runBench[R any](cmd *cobra.Command, row string, run *bench.Run, measureAll func(context.Context) (R, error)) (results R, err error) {
	if row != "" {
		if err := privilege.Check(row); err != nil {
			return results, err
		}
	}
	if run.Binary, err = os.Executable(); err != nil {
		return results, fmt.Errorf("find our own binary: %w", err)
	}
	line := newProgress(cmd.ErrOrStderr())
	run.Progress = line.show
	results, err = measureAll(cmd.Context())
	line.clear()
	if cmd.Context().Err() != nil && errors.Is(err, cmd.Context().Err()) {
		err = errors.New("interrupted; everything that was started is gone")
	}
	return results, err
}

// benchOutput is how a benchmark tells its results.
type benchOutput struct {
	asJSON bool
	report string
}

func (o *benchOutput) addFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print the results as a JSON list")
	addReportFlag(cmd, &o.report, reportUsage)
}

// run measures what a checked configuration asks for, prints the results, draws the report, and fails where one of them failed or
// missed an aim.
func (o *benchOutput) run(cmd *cobra.Command, row string, run *bench.Run, wrong error, measureAll func(context.Context) ([]*measure.Result, error)) error {
	if wrong != nil {
		return usageError(wrong)
	}
	results, err := runBench(cmd, row, run, measureAll)
	if err != nil {
		return err
	}
	switch {
	case o.asJSON && slices.ContainsFunc(results, func(r *measure.Result) bool { return r.Latency != nil }):
		err = json.NewEncoder(cmd.OutOrStdout()).Encode(results) // compact: histograms are long
	case o.asJSON:
		err = printJSON(cmd.OutOrStdout(), results)
	default:
		err = bench.WriteText(cmd.OutOrStdout(), results)
	}
	if err = errors.Join(err, writeReport(o.report, draw(results))); err != nil {
		return err
	}
	return bench.Check(results)
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

// nameList is the names of such lines.
func nameList(lines []string) (names []string) {
	for _, line := range lines {
		name, _, _ := strings.Cut(line, "\t")
		names = append(names, name)
	}
	return names
}

// progressLine shows how far a long run is: one line rewritten on a terminal, else a line now and then.
type progressLine struct {
	live    *terminal.Live
	started time.Time
	last    time.Time
}

func newProgress(w io.Writer) *progressLine {
	return &progressLine{live: terminal.NewLive(w), started: time.Now()}
}

func (p *progressLine) show(done float64, what string) {
	now := time.Now()
	left := ""
	if elapsed := now.Sub(p.started); done > 0.02 && elapsed > 2*time.Second {
		left = fmt.Sprintf(", %v left", time.Duration(float64(elapsed)*(1-done)/done).Round(time.Second))
	}
	line := fmt.Sprintf("%3.0f%%  %s%s", 100*done, what, left)
	switch {
	case p.live.IsTerminal():
		p.live.Show(line)
	case now.Sub(p.last) > 10*time.Second:
		p.last = now
		fmt.Fprintln(p.live, line)
	}
}

func (p *progressLine) clear() { p.live.Clear() }
