package bench

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/bench"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/measuring"
	"github.com/weir-lb/weir/internal/terminal"
	"github.com/weir-lb/weir/internal/testbed/measure"
)

func newBenchListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the benchmarks",
		Example: `  weir bench list
  weir bench list --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all := bench.Scenarios()
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), all)
			}
			table := terminal.NewTable(cmd.OutOrStdout(), false)
			fmt.Fprintln(table, "COMMAND\tMEASURES\tNEEDS")
			for _, s := range all {
				fmt.Fprintf(table, "%s\t%s\t%s\n", s.Command, s.About, s.Needs)
			}
			return table.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func newBenchReportCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "report FILE.json... -o FILE.html",
		Short: "Draw results that a benchmark printed as JSON",
		Example: `  weir bench report dsr.json -o dsr.html
  weir bench report dsr.json coap.json -o all.html`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if output == "" {
				return cli.UsageError(errors.New("no output; name it with -o FILE.html, or -o - for standard output"))
			}
			if output != "-" {
				if err := measuring.Replaceable(output); err != nil {
					return cli.UsageError(fmt.Errorf("-o %s: %w", output, err))
				}
			}
			var results []*measure.Result
			for _, name := range args {
				more, err := readResults(name)
				if err != nil {
					return cli.UsageError(err)
				}
				results = append(results, more...)
			}
			if output == "-" {
				return bench.WriteReport(cmd.OutOrStdout(), results)
			}
			if err := measuring.WriteReport(output, measuring.Draw(results)); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%d results drawn in %s\n", len(results), output)
			return err
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "HTML file to write")
	return cmd
}

const maxResultBytes = 64 << 20

// readResults reads a list of results, or a single one.
func readResults(name string) ([]*measure.Result, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxResultBytes+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(text) > maxResultBytes {
		return nil, fmt.Errorf("%s: more than %d bytes", name, maxResultBytes)
	}
	results, err := bench.ParseResults(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return results, nil
}
