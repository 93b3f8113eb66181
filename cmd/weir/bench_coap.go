package main

import (
	"encoding/json"
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

func newBenchCoapCommand() *cobra.Command {
	var (
		cfg      bench.CoapConfig
		datapath string
		asJSON   bool
	)
	cmd := &cobra.Command{
		Use:   "coap",
		Short: "Measure what a CoAP/DTLS request costs its servers, with and without forwarding",
		Long: `Run nodes, a balancer and a load of DTLS clients as processes on loopback and measure the servers' CPU time per request:

  plain               one node, CoAP over UDP
  direct              one node, DTLS with connection ids
  cluster             three nodes behind weir nat, every record reaches its owner
  cluster-wrong-node  the same after a rebalance: two of three records reach another node and are forwarded

With --datapath ebpf (root), the nodes are in a lab of namespaces, and every client changes its source address and port four times:

  moved-nat           weir nat takes each for a new client: most records reach another node and are forwarded
  moved-ebpf          weir lb run --datapath ebpf reads the node in the connection id: nothing is forwarded

Each node has one worker. CPU time and requests are differences over the window, so handshakes are not in them. Trust the
microseconds per request and their ratios; requests per second are what clients, balancer and servers share of the machine.`,
		Example: `  weir bench coap
  weir bench coap --clients 500 --duration 5s --roads cluster,cluster-wrong-node
  weir bench coap --datapath ebpf
  weir bench coap --json > coap.json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cfg.Clients < 1 || cfg.Clients > 20000 {
				return usageError(fmt.Errorf("--clients: %d is not between 1 and 20000", cfg.Clients))
			}
			if cfg.Duration < time.Second || cfg.Warmup < 100*time.Millisecond {
				return usageError(fmt.Errorf("--duration of %v and --warmup of %v: give at least 1s and 100ms", cfg.Duration, cfg.Warmup))
			}
			switch {
			case datapath == "ebpf" && !cmd.Flags().Changed("roads"):
				cfg.Roads = bench.MovedRoads()
			case datapath != "" && datapath != "ebpf":
				return usageError(fmt.Errorf("--datapath: no comparison with %q; write ebpf", datapath))
			}
			return runBenchCoap(cmd, cfg, asJSON)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&cfg.Clients, "clients", 2000, "DTLS clients, each with a socket of its own")
	durationVar(flags, &cfg.Duration, "duration", 8*time.Second, "length of the measured window")
	durationVar(flags, &cfg.Warmup, "warmup", 2*time.Second, "load before the window")
	flags.StringSliceVar(&cfg.Roads, "roads", bench.CoapRoads(), "what to measure")
	flags.StringVar(&datapath, "datapath", "", "ebpf: compare forwarding nodes with the kernel data path, clients moving")
	flags.BoolVar(&asJSON, "json", false, "print the results as a JSON list")
	return cmd
}

func runBenchCoap(cmd *cobra.Command, cfg bench.CoapConfig, asJSON bool) error {
	if slices.ContainsFunc(cfg.Roads, func(road string) bool { return slices.Contains(bench.MovedRoads(), road) }) {
		if err := privilege.Check(privilege.BenchMoved); err != nil {
			return err
		}
	}
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find our own binary: %w", err)
	}
	cfg.Binary = binary
	cfg.Progress = func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), line) }
	results, err := bench.Coap(cmd.Context(), cfg)
	if err != nil {
		return err
	}
	if asJSON {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(results)
	}
	return printBenchCoap(cmd.OutOrStdout(), results)
}

// printBenchCoap writes one row for each road, and the ratios of the run.
func printBenchCoap(w io.Writer, results []*measure.Result) error {
	table := terminal.NewTable(w, true)
	fmt.Fprintln(table, "road\tserver us/req\tbalancer us/req\tclient us/req\tforwarded\treqs/s\tp50 ms\tp99 ms\tservers MB\tretrans.\tlost sessions\t")
	cost := map[string]float64{}
	for _, r := range results {
		cost[r.Road] = figure(r, bench.FigureServer)
		balancer := "-"
		if spent := r.CPUPerRequest("balancer"); spent > 0 {
			balancer = fmt.Sprintf("%.1f", micros(spent))
		}
		fmt.Fprintf(table, "%s\t%.1f\t%s\t%.1f\t%.0f%%\t%.0f\t%.1f\t%.1f\t%.1f\t%.0f\t%.0f\t\n", r.Road, cost[r.Road], balancer, micros(r.CPUPerRequest("clients")),
			100*figure(r, bench.FigureForwarded), r.Rate(), measure.Millis(r.Latency.Quantile(0.5)), measure.Millis(r.Latency.Quantile(0.99)),
			figure(r, bench.FigureMemory)/1e6, figure(r, bench.FigureRetrans), figure(r, bench.FigureSessions))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	var b strings.Builder
	for _, r := range results {
		if changed := figure(r, bench.FigureMoves); changed > 0 {
			fmt.Fprintf(&b, "\n%s: %.0f changes of a source address, %.0f records forwarded between nodes, %.0f sessions lost or begun anew, %d errors", r.Road, changed,
				figure(r, bench.FigureForeign), figure(r, bench.FigureSessions), r.Errors)
		}
	}
	if forwarded, steered := cost["moved-nat"], cost["moved-ebpf"]; forwarded > 0 && steered > 0 {
		fmt.Fprintf(&b, "\n\nsteered by connection id in the kernel, a request costs its servers %.2f of what it costs with forwarding.\n", steered/forwarded)
	}
	if right, wrong := cost["cluster"], cost["cluster-wrong-node"]; right > 0 && wrong > 0 {
		fmt.Fprintf(&b, "\nforwarding costs %+.0f%% server CPU.\n", 100*(wrong/right-1))
	}
	b.WriteString("\nFigures of other servers are in docs/figures.md, with their machine and date; they do not compare with those above.\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func figure(r *measure.Result, name string) float64 {
	for _, f := range r.Figures {
		if f.Name == name {
			return f.Value
		}
	}
	return 0
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
