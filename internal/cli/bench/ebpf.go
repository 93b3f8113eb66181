package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/bench"
	"github.com/weir-lb/weir/internal/bench/programcost"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/measuring"
	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/privilege"
	"github.com/weir-lb/weir/internal/terminal"
	"github.com/weir-lb/weir/internal/testbed/measure"
)

// benchEBPFFlags are the flags of `weir bench ebpf`.
type benchEBPFFlags struct {
	config   programcost.Config
	hook     string
	live     bool
	duration time.Duration
	families []string
	out      measuring.Output
}

// Sizes of the table for `weir bench ebpf --flows`: the generator knows 1<<24 flows, and a flood sends four times the size.
const minBenchFlows, maxBenchFlows = 1 << 10, 1 << 21

func newBenchEBPFCommand() *cobra.Command {
	var f benchEBPFFlags
	cmd := &cobra.Command{
		Use:   "ebpf",
		Short: "Nanoseconds and packets per second of the kernel data path",
		Long: `Measure what the XDP and TCX programs cost a packet, by BPF_PROG_TEST_RUN in a network namespace of its own.

A generator program writes every packet's headers and goes on to the program under test. "floor" is the generator alone, in
the same rounds; "net" is the difference. The 20th percentile of the rounds counts, because other load on the machine can only add time.
"reason" is what the packets were counted as. Needs root.

"table" is limits.flows of the service (--flows), "in use" the flows that were alive in the table at the end. New flows meet a
table that has been in use: as many flows are alive as limits.flows says, the other entries are expired, as many flows expire as
come, and nothing touches the table between the packets that are timed.

In the same rounds and with the same packets, two small programs: "LRU" parses and looks the 5-tuple up in an LRU
hash table of the same size with keys of 40 bytes, as the flow tables of Katran and Cilium do; for a new flow it inserts into
that table when it is full. "FIB" parses and looks the destination up in the kernel's routes. "xLRU" and "xFIB" are net in terms
of those: 0.25 means a quarter of it.

With --live it counts packets per second instead: one core has the kernel send the smallest UDP frames of 1024 and of 32768
flows through a lab of namespaces, over these paths in turns, and a program at the end counts and drops them:

` + measuring.IndentNames(bench.LivePaths()) + `
Medians, spreads and ratios to kernel routing and to the floor in the same round. The lab needs the package iptables.`,
		Example: `  weir bench ebpf
  weir bench ebpf --hook xdp --only hit
  weir bench ebpf --hook xdp --only 'new flow' --flows 262144
  weir bench ebpf --rounds 15 --json
  weir bench ebpf --live --report live.html
  weir bench ebpf --live --hook xdp --families ipv4 --rounds 3 --duration 1s`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(cmd); err != nil {
				return cli.UsageError(err)
			}
			if f.live {
				return runBenchLive(cmd, &f)
			}
			return runBenchEBPF(cmd, &f)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&f.config.Rounds, "rounds", 9, "rounds of each case (--live: 5)")
	flags.IntVar(&f.config.Packets, "packets", 1<<18, "packets of a case in one round")
	flags.IntVar(&f.config.Flows, "flows", 1<<20, "limits.flows: the size of the flow table, and of the LRU table")
	flags.StringVar(&f.hook, "hook", "both", "xdp, tcx or both")
	flags.StringVar(&f.config.Only, "only", "", "measure only cases, or paths, with this in their name")
	flags.BoolVar(&f.live, "live", false, "packets per second through a lab, of live frames")
	cli.DurationVar(flags, &f.duration, "duration", time.Second, "with --live: length of one round of a path")
	cli.OldFlag(cmd, "seconds", "", "duration")
	flags.StringSliceVar(&f.families, "families", nil, "with --live: ipv4, ipv6 (default both)")
	measuring.AddReportFlag(cmd, &f.out.Report, "with --live: "+measuring.ReportUsage)
	flags.BoolVar(&f.out.AsJSON, "json", false, "print JSON")
	return cmd
}

// check refuses flags that exclude each other, and takes the hook from its name.
func (f *benchEBPFFlags) check(cmd *cobra.Command) error {
	switch f.hook {
	case "xdp":
		f.config.Hooks = []attach.Hook{attach.HookXDP}
	case "tcx":
		f.config.Hooks = []attach.Hook{attach.HookTCX}
	case "both":
	default:
		return fmt.Errorf("--hook %q: give xdp, tcx or both", f.hook)
	}
	for _, name := range []string{"duration", "families", "report"} {
		if !f.live && cmd.Flags().Changed(name) {
			return fmt.Errorf("--%s is for --live", name)
		}
	}
	if f.config.Flows < minBenchFlows || f.config.Flows > maxBenchFlows {
		return fmt.Errorf("--flows %d: give %d to %d", f.config.Flows, minBenchFlows, maxBenchFlows)
	}
	return nil
}

// runBenchEBPF measures the programs by test runs.
func runBenchEBPF(cmd *cobra.Command, f *benchEBPFFlags) error {
	if err := privilege.Check(privilege.BenchEBPF); err != nil {
		return err
	}
	f.config.Progress = func(what string) { fmt.Fprintln(cmd.ErrOrStderr(), "measure", what) }
	results, err := programcost.Run(cmd.Context(), f.config)
	if err != nil {
		return err
	}
	if f.out.AsJSON {
		return cli.PrintJSON(cmd.OutOrStdout(), results)
	}
	return printBenchEBPF(cmd.OutOrStdout(), results)
}

func printBenchEBPF(out io.Writer, results []programcost.Result) error {
	w := terminal.NewTable(out, false)
	fmt.Fprintln(w, "CASE\tHOOK\tFAMILY\tFLOWS\tTABLE\tIN USE\tNS\tFLOOR\tNET\tMPPS\tLRU\txLRU\tFIB\txFIB\tREASON")
	for _, r := range results {
		fmt.Fprintf(w, "%s\t%s\tIPv%d\t%d\t%d\t%d\t%.0f\t%.0f\t%.0f\t%.1f\t%s\t%s\t%s\t%s\t%s\n", r.Case, r.Hook, r.Family, r.Flows, r.Table, r.InUse, r.NS, r.Floor, r.Net, 1e3/max(r.Net, 1),
			known("%.0f", r.LRU), known("%.2f", r.XLRU), known("%.0f", r.FIB), known("%.2f", r.XFIB), r.Reason)
	}
	return w.Flush()
}

// runBenchLive measures live frames through a lab.
func runBenchLive(cmd *cobra.Command, f *benchEBPFFlags) error {
	config := bench.GridConfig{Rounds: 5, Duration: f.duration, Families: f.families}
	if cmd.Flags().Changed("rounds") {
		config.Rounds = f.config.Rounds
	}
	if cmd.Flags().Changed("packets") {
		return cli.UsageError(errors.New("--packets is for the test runs; --live takes --duration"))
	}
	if cmd.Flags().Changed("flows") {
		return cli.UsageError(errors.New("--flows is for the test runs; --live has flows of its own"))
	}
	for _, path := range measuring.NameList(bench.LivePaths()) {
		weir := strings.HasPrefix(path, "weir-")
		if strings.Contains(path, f.config.Only) && (!weir || f.hook == "both" || strings.HasSuffix(path, f.hook)) {
			config.Paths = append(config.Paths, path)
		}
	}
	if config.Paths == nil {
		return cli.UsageError(fmt.Errorf("--only %q: no path on this hook has that in its name; there are %s", f.config.Only, strings.Join(measuring.NameList(bench.LivePaths()), ", ")))
	}
	return f.out.Run(cmd, privilege.BenchLive, &config.Run, config.ValidateLive(), func(ctx context.Context) ([]*measure.Result, error) {
		return bench.Live(ctx, config)
	})
}

// known formats what was measured; "-" else.
func known(format string, v float64) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf(format, v)
}
