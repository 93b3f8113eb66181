package sim

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/bench/fragsim"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/measuring"
	"github.com/weir-lb/weir/internal/terminal"
)

func newSimCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sim",
		Short: "Simulate in virtual time what would take hours",
		Example: `  weir sim fragments --rate 2500 --ttl 200ms
  weir sim fragments --table nfqlb --hsize 223 --rate 1000 --ttl 200ms --duration 5m --parallel 8 --repeat 16`,
		Args: cli.NoSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.SuggestionsMinimumDistance = 2
	cmd.AddCommand(newSimFragmentsCommand())
	return cmd
}

func newSimFragmentsCommand() *cobra.Command {
	var c fragsim.Config
	var hsize int
	var table, report string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "fragments",
		Short: "How big must the fragment table be? Hours of fragmented datagrams in seconds",
		Long: `Fill a fragment table with datagrams in virtual time and count those it has no room for; then advise a size.

Table weir is the one that the data paths use, with size + buckets entries. Table nfqlb is that of nfqlb with
--ft_size=SIZE --ft_buckets=BUCKETS, whose loss depends on collisions of its hash. The traffic is that of nfqlb's own
simulator: each arrival is a new datagram with the next id, nothing is removed.`,
		Example: `  weir sim fragments --rate 2500 --ttl 200ms
  weir sim fragments --table nfqlb --hsize 223 --rate 1000 --ttl 200ms --duration 5m --parallel 8 --repeat 16
  weir sim fragments --table nfqlb --size 499 --buckets 100 --rate 2500 --duration 20s --report loss.html
  weir sim fragments --hsize 10000 --ttl 50ms --rate 100000 --json | jq .mean`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			flags := cmd.Flags()
			if flags.Changed("hsize") {
				if flags.Changed("size") || flags.Changed("buckets") {
					return cli.UsageError(errors.New("--hsize sets size and buckets; write it, or --size and --buckets"))
				}
				c.Size, c.Buckets = hsize, hsize
			}
			if c.Table, err = fragsim.ParseKind(table); err != nil {
				return cli.UsageError(fmt.Errorf("--table: %w", err))
			}
			if err := c.Validate(); err != nil {
				return cli.UsageError(fmt.Errorf("--%w", err))
			}
			return simulateFragments(cmd, c, report, asJSON)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&table, "table", "weir", "weir or nfqlb")
	flags.IntVar(&hsize, "hsize", 0, "size and buckets in one")
	flags.IntVar(&c.Size, "size", 4000, "main buckets (nfqlb's ft_size)")
	flags.IntVar(&c.Buckets, "buckets", 4000, "extra buckets (nfqlb's ft_buckets)")
	cli.DurationVar(flags, &c.TTL, "ttl", 200*time.Millisecond, "how long a datagram is remembered")
	flags.IntVar(&c.Rate, "rate", 10000, "fragmented datagrams per second")
	cli.DurationVar(flags, &c.Duration, "duration", 20*time.Second, "length of the traffic, in virtual time")
	flags.IntVar(&c.Repeat, "repeat", 4, "runs, each with its own start")
	flags.IntVar(&c.Parallel, "parallel", 4, "runs at one time; the results are the same")
	flags.Uint64Var(&c.Seed, "seed", 1, "seed of the arrivals; the same seed gives the same results")
	measuring.AddReportFlag(cmd, &report, "write a page with plots of the loss over size and rate to this file")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func simulateFragments(cmd *cobra.Command, c fragsim.Config, report string, asJSON bool) error {
	ctx := cmd.Context()
	line := measuring.NewProgress(cmd.ErrOrStderr())
	defer line.Clear()
	progress := func(what string) fragsim.Progress {
		return func(done float64) {
			if time.Since(line.Started) > 2*time.Second {
				line.Show(done, what)
			}
		}
	}
	results, err := fragsim.Run(ctx, c, progress("simulate"))
	if err != nil {
		return measuring.Interrupted(err)
	}
	advice, err := fragsim.Advise(ctx, c, progress("look for a size"))
	if err != nil {
		return measuring.Interrupted(err)
	}
	mean := fragsim.Mean(results)
	out := v1.FragmentSimulation{
		Table: c.Table.String(), Rate: c.Rate, Duration: c.Duration.Seconds(), Seed: c.Seed,
		Verdict: fragsim.Verdict(c, mean), Mean: mean, Runs: results, Advice: advice, Report: report,
	}
	if report != "" {
		curves, err := fragsim.Sweep(ctx, c, progress("draw the curves"))
		if err != nil {
			return measuring.Interrupted(err)
		}
		command := "weir " + strings.Join(os.Args[1:], " ")
		if err := measuring.WriteReport(report, func(w io.Writer) error {
			return fragsim.WriteReport(w, c, results, advice, curves, command, time.Now())
		}); err != nil {
			return err
		}
	}
	line.Clear()
	if asJSON {
		return cli.PrintJSON(cmd.OutOrStdout(), out)
	}
	w := terminal.NewTable(cmd.OutOrStdout(), true)
	if err := errors.Join(fragsim.WriteTable(w, results), w.Flush()); err != nil {
		return err
	}
	if err := terminal.Prose(cmd.OutOrStdout(), "\n"+out.Verdict+"\n"+strings.TrimSuffix(fragsim.AdviceText(advice), "\n")); err != nil {
		return err
	}
	if report != "" {
		fmt.Fprintln(cmd.OutOrStdout(), "Report with plots: "+report)
	}
	return nil
}

// Family is weir sim.
func Family() cli.Family {
	return cli.Family{Command: newSimCommand, Values: simValues}
}

func simValues() map[string][]string {
	return map[string][]string{
		"--table": {"weir", "nfqlb"},
	}
}
