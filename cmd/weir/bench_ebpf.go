package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/datapath/ebpf"
)

func newBenchEBPFCommand() *cobra.Command {
	var config ebpf.BenchConfig
	var asJSON bool
	var hook string
	cmd := &cobra.Command{
		Use:   "ebpf",
		Short: "Nanoseconds per packet of the kernel data path",
		Long: `Measure what the XDP and TCX programs cost a packet, by BPF_PROG_TEST_RUN in a network namespace of its own.

A generator program writes every packet's headers and goes on to the program under test. "floor" is the generator alone, in
the same rounds; "net" is the difference. The 20th percentile of the rounds counts, for what else runs here only adds.
"reason" is what the packets were counted as. Needs root.

Beside it, in the same rounds and with the same packets, two small programs: "LRU" parses and looks the 5-tuple up in an LRU
hash table of 1048576 entries with keys of 40 bytes, as the flow tables of Katran and Cilium do; for a new flow it inserts into
that table when it is full. "FIB" parses and looks the destination up in the kernel's routes. "xLRU" and "xFIB" are net in terms
of those: 0.25 means a quarter of it.`,
		Example: `  weir bench ebpf
  weir bench ebpf --hook xdp --only hit
  weir bench ebpf --rounds 15 --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch hook {
			case "xdp":
				config.Hooks = []ebpf.Hook{ebpf.HookXDP}
			case "tcx":
				config.Hooks = []ebpf.Hook{ebpf.HookTCX}
			case "both":
			default:
				return fmt.Errorf("--hook %q: give xdp, tcx or both", hook)
			}
			config.Progress = func(what string) { fmt.Fprintln(cmd.ErrOrStderr(), "measure", what) }
			results, err := ebpf.Bench(cmd.Context(), config)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), results)
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "CASE\tHOOK\tFAMILY\tFLOWS\tNS\tFLOOR\tNET\tMPPS\tLRU\txLRU\tFIB\txFIB\tREASON")
			for _, r := range results {
				fmt.Fprintf(w, "%s\t%s\tIPv%d\t%d\t%.0f\t%.0f\t%.0f\t%.1f\t%s\t%s\t%s\t%s\t%s\n", r.Case, r.Hook, r.Family, r.Flows, r.NS, r.Floor, r.Net, 1e3/max(r.Net, 1),
					known("%.0f", r.LRU), known("%.2f", r.XLRU), known("%.0f", r.FIB), known("%.2f", r.XFIB), r.Reason)
			}
			return w.Flush()
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&config.Rounds, "rounds", 9, "rounds of each case")
	flags.IntVar(&config.Packets, "packets", 1<<18, "packets of a case in one round")
	flags.StringVar(&hook, "hook", "both", "xdp, tcx or both")
	flags.StringVar(&config.Only, "only", "", "measure only cases with this in their name")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// known formats what was measured; "-" else.
func known(format string, v float64) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf(format, v)
}
