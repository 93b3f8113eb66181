package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/bench"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/measuring"
	"github.com/weir-lb/weir/internal/terminal"
	"github.com/weir-lb/weir/internal/testbed/procstat"
)

func newBenchNATCommand() *cobra.Command {
	var config bench.NATConfig
	var asJSON bool
	var report string
	cmd := &cobra.Command{
		Use:   "nat",
		Short: "Compare what weir nat, socat and iptables spend on a forwarded datagram",
		Long: `Compare the processor time per forwarded datagram of weir nat, in user space and with its offload into the kernel, with a
straight echo, socat and an iptables DNAT.

Clients in a closed loop send to a UDP echo, straight and over each path, in turns. "path" is what the path's own processes
spend; a kernel path has none. "added" is what load, path and echo together spend more than straight, which can be
compared for all. As root everything runs in network namespaces of its own; without, offload and iptables are skipped.
With --network veth the path runs on a router between client and server, straight is what that router routes, and what
the kernel does beyond the processes (ksoftirqd) is in no column.`,
		Example: `  weir bench nat
  weir bench nat --rounds 7 --requests 200000 --json
  sudo weir bench nat --network veth
  WEIR_CF_NAT=cf-nat-3.14.0.jar weir bench nat --with cf-nat
  weir bench nat --cf-nat cf-nat-3.14.0.jar                       # the same`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := config.Validate(); err != nil {
				return cli.UsageError(err)
			}
			started, load := time.Now(), procstat.LoadAverage()
			result, err := measuring.Run(cmd, "", &config.Run, func(ctx context.Context) (bench.NATResult, error) { return bench.NAT(ctx, config) })
			if err != nil {
				return err
			}
			results, err := bench.NATResults(&result, started)
			if err != nil {
				return err
			}
			measuring.Describe(results, load)
			if err := measuring.WriteReport(report, measuring.Draw(results)); err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(result) // compact: histograms are long
			}
			return printBenchNAT(cmd.OutOrStdout(), &result)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&config.Clients, "clients", 200, "clients, each with a socket of its own and one request under way")
	flags.IntVar(&config.Requests, "requests", 60000, "requests of one path in one round")
	flags.IntVar(&config.Rounds, "rounds", 5, "rounds; the result is their median")
	flags.IntVar(&config.Payload, "payload-size", 64, "bytes of payload")
	flags.StringVar(&config.Network, "network", "loopback", "loopback; veth: client, path and server on hosts of their own, needs root")
	flags.IntVar(&config.Workers, "workers", 0, "workers of weir nat (default one per core)")
	flags.StringSliceVar(&config.With, "with", nil, "peers to compare with in the same run: "+strings.Join(bench.NATPeers(), ", ")+" (its jar is $WEIR_CF_NAT; needs java)")
	flags.StringVar(&config.CfNAT, "cf-nat", "", "JAR of cf-nat (3.0 or later): --with cf-nat with that jar")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	measuring.AddReportFlag(cmd, &report, measuring.ReportUsage)
	return cmd
}

func printBenchNAT(out io.Writer, r *bench.NATResult) error {
	fmt.Fprintf(out, "%d clients, %d requests of %d bytes, median of %d rounds; %d cores, Linux %s, %s\n\n",
		r.Clients, r.Requests, r.Payload, r.Rounds, r.Cores, r.Kernel, r.Network)
	w := terminal.NewTable(out, true)
	fmt.Fprintln(w, "path\treq/s\tpath µs/datagram\tmin-max\tpath ms/1000 requests\tadded µs/datagram\tall µs/request\tlost\t")
	for i := range r.Paths {
		path := &r.Paths[i]
		if path.Skipped != "" {
			fmt.Fprintf(w, "%s\tskipped: %s\t\t\t\t\t\t\t\n", path.Name, path.Skipped)
			continue
		}
		fmt.Fprintf(w, "%s\t%.0f\t%.2f\t%.2f-%.2f\t%.2f\t%.2f\t%.2f\t%d\t\n", path.Name, path.Rate, path.ProxyCPU,
			path.ProxyMin, path.ProxyMax, path.PerRequest, path.AddedCPU, path.TotalCPU, path.Lost)
	}
	return w.Flush()
}

// newBenchUDPEchoCommand is the far end of `weir bench nat`.
func newBenchUDPEchoCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "udp-echo HOST:PORT",
		Short:   "Answer UDP datagrams with themselves",
		Example: `  weir bench udp-echo 127.0.0.1:7007`,
		Hidden:  true,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			at, err := netip.ParseAddrPort(args[0])
			if err != nil {
				return cli.UsageError(fmt.Errorf("address %q: write ADDRESS:PORT", args[0]))
			}
			return bench.Echo(cmd.Context(), at)
		},
	}
}
