package lb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/control/admin"
	"github.com/weir-lb/weir/internal/control/history"
	"github.com/weir-lb/weir/internal/datapath/ebpf/decap"
	"github.com/weir-lb/weir/internal/metrics"
	"github.com/weir-lb/weir/internal/privilege"
	"github.com/weir-lb/weir/internal/terminal"
)

func newLBDecapCommand() *cobra.Command {
	var name, hook string
	var from []string
	var asJSON bool
	var flags cli.ServeFlags
	cmd := &cobra.Command{
		Use:   "decap --interface NAME --from PREFIX...",
		Short: "On a backend of mode l3dsr: take the balancer's tunnel off",
		Long: `Take the tunnel of mode l3dsr off on a backend, without a tunnel device, until interrupted.

IP-in-IP of both families and GUE (UDP port 6080) are opened when they come to an address of this machine from a
source of --from: the outer addresses of the balancers. Whoever may send through the tunnel can pose as any client,
so others' tunnel packets are dropped; all else passes untouched. The VIP has to be on this machine, as on lo:

  ip address add 10.0.0.1/32 dev lo

Counters are printed at the end, and served by --admin while it runs.`,
		Example: `  weir lb decap --interface eth0 --from 10.2.0.1
  weir lb decap --interface eth0 --from 10.2.0.0/24 --from 2001:db8::/64 --hook xdp
  weir lb decap --interface eth0 --from 10.2.0.1 --metrics :9184 --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c := decap.Config{Interface: name}
			if name == "" {
				return cli.UsageError(errors.New("no interface; name the one that the balancer's packets come in on with --interface"))
			}
			var err error
			if c.Hook, err = decap.ParseHook(hook); err != nil {
				return cli.UsageError(fmt.Errorf("--hook: %w", err))
			}
			if c.From, err = parsePrefixes(from); err != nil {
				return cli.UsageError(fmt.Errorf("--from: %w", err))
			}
			if err := privilege.Check(privilege.LBDecap); err != nil {
				return err
			}
			return runDecap(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), c, flags, asJSON)
		},
	}
	cmd.Flags().StringVarP(&name, "interface", "i", "", "interface that the balancer's packets come in on")
	cmd.Flags().StringSliceVar(&from, "from", nil, "address or prefix that balancers send from; may be given again")
	cmd.Flags().StringVar(&hook, "hook", "auto", "auto, xdp or tcx; auto: tcx on veth and other software links, else xdp")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the counters as JSON")
	flags.Add(cmd, cli.DecapPart())
	return cmd
}

func parsePrefixes(texts []string) ([]netip.Prefix, error) {
	if len(texts) == 0 {
		return nil, errors.New("no source is allowed; name the balancers' outer addresses")
	}
	prefixes := make([]netip.Prefix, 0, len(texts))
	for _, text := range texts {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			a, bad := netip.ParseAddr(text)
			if bad != nil || a.Zone() != "" {
				return nil, fmt.Errorf("%q is no address or prefix; write it as 10.2.0.1 or 10.2.0.0/24", text)
			}
			p = netip.PrefixFrom(a, a.BitLen())
		}
		prefixes = append(prefixes, p)
	}
	return prefixes, nil
}

func runDecap(ctx context.Context, out, errOut io.Writer, c decap.Config, flags cli.ServeFlags, asJSON bool) error {
	log, err := cli.NewLogger(errOut, flags.Log)
	if err != nil {
		return cli.UsageError(err)
	}
	d, err := decap.Open(c)
	if err != nil {
		return err
	}
	defer func() {
		if err := d.Close(); err != nil {
			log.Error("detach", "error", err)
		}
	}()
	hook, why := d.Hook()
	log.Info("attached", "interface", c.Interface, "hook", hook.String(), "why", why)
	started := time.Now()
	adminConfig := admin.Config{
		Ready:   func() error { return nil },
		Status:  func() any { return decapStatus(d, c, started) },
		Metrics: func() []metrics.Sample { return metrics.Of(decapStatus(d, c, started)) },
		Plots:   []history.Plot{{Title: "Packets on the tunnel", Rate: true, Lines: []history.Source{{Metric: "weir_decap_packets_total", By: "outcome"}}}},
	}
	if err := cli.Serve(ctx, flags, log, adminConfig, nil, d.Run); err != nil {
		return err
	}
	status := decapStatus(d, c, started)
	if asJSON {
		return cli.PrintJSON(out, status)
	}
	table := terminal.NewTable(out, true)
	fmt.Fprintln(table, "OUTCOME\tPACKETS\tBYTES\t")
	for _, name := range sortedNames(status.Counters) {
		fmt.Fprintf(table, "%s\t%d\t%d\t\n", name, status.Counters[name].Packets, status.Counters[name].Bytes)
	}
	return table.Flush()
}

func decapStatus(d *decap.Decap, c decap.Config, started time.Time) v1.DecapStatus {
	hook, _ := d.Hook()
	counts, err := d.Counters()
	report := v1.DecapStatus{Interface: c.Interface, Hook: hook.String(), From: c.From, Seconds: time.Since(started).Seconds(), Counters: counts}
	if err != nil {
		report.Error = err.Error()
	}
	return report
}

func sortedNames(counts map[string]v1.Count) []string {
	names := make([]string, 0, len(counts))
	for name := range counts {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
