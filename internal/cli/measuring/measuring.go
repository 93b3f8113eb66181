package measuring

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
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/privilege"
	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/procstat"
)

// AddRoundFlags adds how often and how long a scenario loads each of its paths.
func AddRoundFlags(cmd *cobra.Command, rounds *int, length *time.Duration) {
	flags := cmd.Flags()
	flags.IntVar(rounds, "rounds", 5, "rounds; the result is their median")
	cli.DurationVar(flags, length, "duration", 2*time.Second, "length of one load over one path in one round")
	cli.OldFlag(cmd, "seconds", "", "duration")
}

// Run runs a benchmark of many processes of this binary and shows how far it is. row is that of the privileges it needs.
func Run[R any](cmd *cobra.Command, row string, run *bench.Run, measureAll func(context.Context) (R, error)) (results R, err error) {
	if row != "" {
		if err := privilege.Check(row); err != nil {
			return results, err
		}
	}
	if run.Binary, err = os.Executable(); err != nil {
		return results, fmt.Errorf("find our own binary: %w", err)
	}
	line := NewProgress(cmd.ErrOrStderr())
	run.Progress = line.Show
	results, err = measureAll(cmd.Context())
	line.Clear()
	if cmd.Context().Err() != nil && errors.Is(err, cmd.Context().Err()) {
		err = errors.New("interrupted; everything that was started is gone")
	}
	return results, err
}

// Output is how a benchmark prints its results.
type Output struct {
	AsJSON bool
	Report string
}

// Add adds --json and --report.
func (o *Output) Add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.AsJSON, "json", false, "print the results as a JSON list")
	AddReportFlag(cmd, &o.Report, ReportUsage)
}

// Run measures what a checked configuration requests, prints the results, draws the report, and fails where one of them failed or
// missed an aim.
func (o *Output) Run(cmd *cobra.Command, row string, run *bench.Run, wrong error, measureAll func(context.Context) ([]*measure.Result, error)) error {
	if wrong != nil {
		return cli.UsageError(wrong)
	}
	load := procstat.LoadAverage()
	results, err := Run(cmd, row, run, measureAll)
	if err != nil {
		return err
	}
	Describe(results, load)
	switch {
	case o.AsJSON && slices.ContainsFunc(results, func(r *measure.Result) bool { return r.Latency != nil }):
		err = json.NewEncoder(cmd.OutOrStdout()).Encode(results) // compact: histograms are long
	case o.AsJSON:
		err = cli.PrintJSON(cmd.OutOrStdout(), results)
	default:
		err = bench.WriteText(cmd.OutOrStdout(), results)
	}
	if err = errors.Join(err, WriteReport(o.Report, Draw(results))); err != nil {
		return err
	}
	return bench.Check(results)
}

// Describe enters in results what they were made with: the command that was typed, and the load average before and now.
func Describe(results []*measure.Result, loadBefore string) {
	command, now := TypedCommand(), procstat.LoadAverage()
	for _, r := range results {
		r.Command, r.LoadBefore, r.LoadAfter = command, loadBefore, now
	}
}

// IndentNames lays out "name\twhat it is" lines for a help text.
func IndentNames(lines []string) string {
	var b strings.Builder
	for _, line := range lines {
		name, about, _ := strings.Cut(line, "\t")
		fmt.Fprintf(&b, "  %-16s %s\n", name, about)
	}
	return b.String()
}

// NameList is the names of such lines.
func NameList(lines []string) (names []string) {
	for _, line := range lines {
		name, _, _ := strings.Cut(line, "\t")
		names = append(names, name)
	}
	return names
}

// Draw is what a report file gets.
func Draw(results []*measure.Result) func(io.Writer) error {
	return func(w io.Writer) error { return bench.WriteReport(w, results) }
}
