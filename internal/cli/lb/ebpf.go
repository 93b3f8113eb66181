package lb

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/control/health"
	"github.com/weir-lb/weir/internal/datapath/ebpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/datapath/ebpf/pins"
	"github.com/weir-lb/weir/internal/metrics"
	"github.com/weir-lb/weir/internal/privilege"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// ebpfFlags are the flags of `weir lb run --datapath ebpf`.
type ebpfFlags struct {
	interfaces       []string
	hook             string
	pinPath          string
	order            string
	source4, source6 string
	noPeers          bool
	keep             bool
}

func (f *ebpfFlags) add(cmd *cobra.Command) {
	set := cmd.Flags()
	set.StringSliceVarP(&f.interfaces, "interface", "i", nil, "ebpf, and the fast path of nfqueue: interfaces that packets come in on, such as eth0,eth1")
	set.StringVar(&f.hook, "hook", "auto", "ebpf: where programs run: auto, xdp or tcx")
	set.StringVar(&f.pinPath, "pin-path", pins.DefaultPath, "ebpf, and the fast path of nfqueue (there by default "+pins.DefaultFrontPath+"): directory of a bpf file system that keeps flows and programs over a restart")
	set.BoolVar(&f.keep, "keep", true, "ebpf, nfqueue: programs and flows stay after the end, for the next start; with --keep=false, an interrupt or SIGTERM ends them as weir lb stop does")
	set.StringVar(&f.order, "tcx-order", "first", "ebpf: before or behind other TCX programs: first or last")
	set.StringVar(&f.source4, "tunnel-source4", "", "ebpf: outer IPv4 source of L3-DSR tunnels (default: what the route prefers)")
	set.StringVar(&f.source6, "tunnel-source6", "", "ebpf: outer IPv6 source of L3-DSR tunnels")
	set.BoolVar(&f.noPeers, "no-peers", false, "ebpf: leave the other ends of veth pairs alone")
}

func (f *ebpfFlags) config(log *slog.Logger) (ebpf.Config, error) {
	config := ebpf.Config{Interfaces: f.interfaces, PinPath: f.pinPath, Log: log, NoPeers: f.noPeers}
	var err error
	if config.Hook, err = attach.ParseHook(f.hook); err != nil {
		return config, fmt.Errorf("--hook: %w", err)
	}
	switch f.order {
	case "first":
	case "last":
		config.Last = true
	default:
		return config, fmt.Errorf("--tcx-order: no place %q; write first or last", f.order)
	}
	if len(f.interfaces) == 0 {
		return config, errors.New("--datapath ebpf: no interface; name those that packets come in on, such as --interface eth0,eth1")
	}
	if f.pinPath == "" {
		return config, fmt.Errorf("--pin-path is empty; write a directory of a bpf file system, such as %s", pins.DefaultPath)
	}
	for _, source := range []struct {
		flag, text string
		is6        bool
		into       *netip.Addr
	}{{"--tunnel-source4", f.source4, false, &config.Source4}, {"--tunnel-source6", f.source6, true, &config.Source6}} {
		if source.text == "" {
			continue
		}
		address, err := netip.ParseAddr(source.text)
		if err != nil || address.Is6() != source.is6 {
			return config, fmt.Errorf("%s: %q is no address of that family", source.flag, source.text)
		}
		*source.into = address
	}
	return config, nil
}

func openEBPF(flags *ebpfFlags, log *slog.Logger) (*balancer, error) {
	config, err := flags.config(log)
	if err != nil {
		return nil, cli.UsageError(err)
	}
	if err := privilege.Check(privilege.LBRunEBPF); err != nil {
		return nil, err
	}
	datapath, err := ebpf.Open(config)
	if err != nil {
		return nil, err
	}
	return &balancer{
		datapath: datapath,
		table:    datapath,
		network:  &health.Network{Source4: config.Source4, Source6: config.Source6},
		abandon:  datapath.Abandon,
		stop:     flags.stop(log),
		respond:  datapath.Respond,
		samples:  func() []metrics.Sample { return ebpfSamples(datapath) },
		flows: func(_ *lb.Snapshot, yield func(v1.Flow) bool) {
			datapath.Flows(func(f ebpf.Flow) bool { return yield(ebpfFlow(&f)) })
		},
		detached: func() string { return detached(datapath.Report().Interfaces) },
		status: func(s v1.BalancerStatus) any {
			return v1.LBStatus{BalancerStatus: s, Kernel: &v1.EBPFStatus{EBPFReport: datapath.Report(), EBPFCounters: countersText(datapath.Counters())}}
		},
	}, nil
}

// stop is nil if the data path is to be kept.
func (f *ebpfFlags) stop(log *slog.Logger) func() error {
	if f.keep {
		return nil
	}
	return func() error {
		_, err := pins.Stop(context.Background(), f.pinPath, log)
		return err
	}
}

// stopFront is stop for the program in front of queues.
func (f *ebpfFlags) stopFront(log *slog.Logger) func() error {
	if f.keep {
		return nil
	}
	return func() error { return pins.End(f.frontPins(), log) }
}

func ebpfFlow(f *ebpf.Flow) v1.Flow {
	flow := v1.Flow{
		Protocol: lb.Protocol(f.Protocol).String(), Client: f.Client.String(), VIP: f.VIP.String(),
		Service: f.Service, Backend: f.Backend, Expires: -1, State: f.State, Given: f.Given,
	}
	if f.Expires >= 0 {
		flow.Expires = f.Expires.Seconds()
	}
	if f.Source.IsValid() {
		flow.Source = f.Source.String()
	}
	return flow
}

func countersText(c ebpf.Counters) v1.EBPFCounters {
	text := v1.EBPFCounters{
		Other: reasonsText(c.Other), Reasons: map[string]map[string]v1.Count{}, Backends: map[string]map[string]v1.EBPFBackendCounters{},
		FlowsEvicted: c.FlowsEvicted, FlowsDisplaced: c.FlowsDisplaced,
	}
	for kind, n := range map[string]v1.Count{"ipip": c.Decapsulated.IPIP, "gue": c.Decapsulated.GUE} {
		if n.Packets > 0 {
			if text.Decapsulated == nil {
				text.Decapsulated = map[string]v1.Count{}
			}
			text.Decapsulated[kind] = n
		}
	}
	for name, reasons := range c.Services {
		text.Reasons[name] = reasonsText(reasons)
		text.Backends[name] = map[string]v1.EBPFBackendCounters{}
	}
	for target, b := range c.Backends {
		text.Backends[target.Service][target.Backend] = backendText(b)
	}
	for name, b := range c.Gone {
		if b != (ebpf.BackendCounts{}) {
			text.Backends[name][ebpf.Removed] = backendText(b)
		}
	}
	return text
}

func backendText(c ebpf.BackendCounts) v1.EBPFBackendCounters {
	return v1.EBPFBackendCounters{In: v1.Count(c.In), Out: v1.Count(c.Out), Opened: c.Opened}
}

func reasonsText(counts [lb.NumReasons]ebpf.Count) map[string]v1.Count {
	text := map[string]v1.Count{}
	for reason, c := range counts {
		if c.Packets > 0 {
			text[lb.Reason(reason).String()] = v1.Count(c)
		}
	}
	return text
}

// ebpfSamples returns the metrics of the kernel data path, or of the fast path's program.
func ebpfSamples(datapath *ebpf.Datapath) []metrics.Sample {
	counters, report := datapath.Counters(), datapath.Report()
	return metrics.Of(counters.Common(report.Tables), &counters, &report)
}

func newLBStopCommand() *cobra.Command {
	var pinPath string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "stop",
		Short: "End the kernel data path and remove everything it made",
		Long: `End the kernel data path of a pin path: detach its programs, remove its tables, give managed neighbours back to the
kernel, and turn GRO off again where weir turned it on. A weir that serves the pin path is ended first.

Without --pin-path it ends the kernel data path, or where there is none, the program of the fast path in front of queues.

An interrupt or SIGTERM of weir lb run leaves the data path at work, so that a restart or an update of weir breaks no
flow. This command is the way to end it.`,
		Example: `  weir lb stop
  weir lb stop --pin-path /sys/fs/bpf/weir/edge --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := privilege.Check(privilege.LBStop); err != nil {
				return err
			}
			log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			stopped, err := pins.Stop(cmd.Context(), pinPath, log)
			if err == nil && stopped == nil && !cmd.Flags().Changed("pin-path") {
				stopped, err = pins.Stop(cmd.Context(), pins.DefaultFrontPath, log)
			}
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(stopped)
			}
			if stopped == nil {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "nothing is kept at %s\n", pinPath)
				return err
			}
			ended := ""
			if stopped.Ended > 0 {
				ended = fmt.Sprintf("ended process %d; ", stopped.Ended)
			}
			offloads := ""
			if stopped.Offloads > 0 {
				offloads = fmt.Sprintf("; GRO off again at %d interfaces", stopped.Offloads)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%sdetached %s; removed %d tables, %d managed neighbours%s\n",
				ended, cmp.Or(strings.Join(stopped.Links, ", "), "nothing"), stopped.Maps, stopped.Neighbours, offloads)
			return err
		},
	}
	cmd.Flags().StringVar(&pinPath, "pin-path", pins.DefaultPath, "as of weir lb run")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
