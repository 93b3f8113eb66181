package demo

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/bench/demo"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/measuring"
	"github.com/weir-lb/weir/internal/terminal"
	"github.com/weir-lb/weir/internal/testbed/procstat"
)

func newDemoCommand() *cobra.Command {
	var (
		cfg    demo.Config
		report string
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show that sessions survive address changes, rebalances and a drained node",
		Long: `Start a user-space balancer, a cluster of CoAP/DTLS nodes and a load of DTLS clients, all on 127.0.0.1, and disturb them:
three times every NAT entry is dropped (every client's source address changes), twice the clients are spread again (records
reach nodes that do not own them), and one node is drained. A smaller group of clients without connection IDs goes through the
same events: it shows what would be lost. Needs no root and no file.

It exits 0 when no client with a connection ID lost its session or had to make a second handshake, 1 when one did.`,
		Example: `  weir demo
  weir demo --clients 1000 --nodes 5 --duration 1m --report demo.html
  weir demo --json | jq .lost`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cfg.Validate(); err != nil {
				return cli.UsageError(err)
			}
			return runDemo(cmd, cfg, report, asJSON)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&cfg.Clients, "clients", 200, "DTLS clients, each with a socket of its own (1 to 10000)")
	flags.IntVar(&cfg.Nodes, "nodes", 3, "CoAP/DTLS nodes behind the balancer (2 to 16)")
	cli.DurationVar(flags, &cfg.Duration, "duration", 30*time.Second, "length of the load (6s to 1h)")
	cli.OldFlag(cmd, "seconds", "", "duration")
	cli.DurationVar(flags, &cfg.Interval, "interval", 0, "pause of a client with a connection ID between response and next request; 0: none (at most 1s)")
	flags.Uint64Var(&cfg.Seed, "seed", 0, "seed of the load's random choices; 0 draws one and says which")
	measuring.AddReportFlag(cmd, &report, "write a page with plots to this file")
	flags.BoolVar(&asJSON, "json", false, "print the result as JSON on stdout; the live view goes to stderr")
	return cmd
}

// errNotProved is the failure of a demo that ran: the view shows why.
var errNotProved = errors.New("the demo did not prove its claim")

func runDemo(cmd *cobra.Command, cfg demo.Config, report string, asJSON bool) error {
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find our own binary: %w", err)
	}
	cfg.Binary, cfg.Out = binary, cmd.OutOrStdout()
	if asJSON {
		cfg.Out = cmd.ErrOrStderr()
	}
	for cfg.Seed == 0 {
		cfg.Seed = rand.Uint64() >> 32 // short enough to type
	}
	load := procstat.LoadAverage()
	result, err := demo.Run(cmd.Context(), cfg)
	if err != nil {
		return err
	}
	result.Command, result.LoadBefore, result.LoadAfter = measuring.TypedCommand(), load, procstat.LoadAverage()
	if err := measuring.WriteReport(report, result.WriteHTML); err != nil {
		return err
	}
	result.Report = report
	printDemo(cfg.Out, result)
	if asJSON {
		if err := cli.PrintJSON(cmd.OutOrStdout(), result); err != nil {
			return err
		}
	}
	if !result.OK {
		return errNotProved
	}
	return nil
}

func printDemo(out io.Writer, r *demo.Result) {
	fmt.Fprintln(out)
	for _, row := range [][2]string{
		{"requests", fmt.Sprint(r.Requests)},
		{"rate", fmt.Sprintf("%.0f/s", r.Rate)},
		{"latency", fmt.Sprintf("p50 %.2f, p99 %.2f ms", r.P50, r.P99)},
		{"longest", fmt.Sprintf("%.0f ms", r.Max)},
		{"retransmissions", fmt.Sprint(r.Retransmissions)},
		{"errors", fmt.Sprint(r.Errors)},
		{"forwarded", fmt.Sprintf("%d records", r.Forwarded)},
		{"new handshakes", fmt.Sprintf("%d with, %d without", r.Rehandshakes, r.Plain.Rehandshakes)},
		{"seed", fmt.Sprint(r.Seed)},
	} {
		fmt.Fprintf(out, "  %-15s  %s\n", row[0], row[1])
	}
	_ = terminal.Prose(out, "\n"+r.Verdict) // as the lines above: who reads it is gone if it fails
	for _, f := range r.Failures {
		fmt.Fprintln(out, "  not so: "+f)
	}
	if r.Report != "" {
		fmt.Fprintln(out, "Report with plots: "+r.Report)
	} else {
		fmt.Fprintln(out, "With --report FILE it also writes a page with plots.")
	}
}

// Family is weir demo.
func Family() cli.Family {
	return cli.Family{Command: newDemoCommand}
}
