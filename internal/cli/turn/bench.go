package turn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weir-lb/weir/internal/bench"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/measuring"
	"github.com/weir-lb/weir/internal/testbed/procstat"
)

// turnBenchFlags are the flags of `weir turn bench`.
type turnBenchFlags struct {
	config    bench.TurnConfig
	cluster   benchCluster
	bandwidth string
	rates     []string
	maxRate   string
	out       measuring.Output
}

func newTurnBenchCommand() *cobra.Command {
	var f turnBenchFlags
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure what the TURN gateway and turncat carry and cost, as STUNner's benchmark does",
		Long: `Start a gateway, a turncat for each client and a sink, send UDP through them, and print what arrived: the rows of each
connection and their sum as iperf prints them, then CPU for a packet of each process. The same load is sent without TURN
("direct") first, and with --with coturn,stunnerd also through coturn's turnserver and STUNner's stunnerd (in the PATH, or named
by $WEIR_TURNSERVER and $WEIR_STUNNERD). Nothing else needs to be installed; iperf (version 2) is used where it is. As root
everything runs in a network namespace of its own.

  --road cat             client -> weir turn cat -> gateway -> sink, as STUNner's script does
  --road direct-channel  the generator sends ChannelData itself: what the gateway alone costs

--platform k8s measures a gateway that runs in Kubernetes, under Weir's operator or STUNner's: turncats and iperf here, an iperf server there,
which is made for the time of the measurement (a Deployment, a Service and a UDPRoute in the namespace of the Gateway).

--sweep measures 64, 128, 256, 512, 1024 and 1200 bytes: costs at --rates, and the highest rate with less than 1 % loss.`,
		Example: `  weir turn bench --clients 5 --duration 5s --size 1000 --bandwidth 100M
  weir turn bench --clients 5 --duration 2s --size 1000 --bandwidth 10M --with coturn
  sudo weir turn bench --sweep --with coturn,stunnerd --road direct-channel --report turn.html
  sudo weir turn bench --road direct-channel --offload tcx --clients 5 --size 100 --bandwidth 20M
  weir turn bench --road direct-channel --transport tcp --with coturn --clients 10 --duration 2s --size 160 --bandwidth 2M
  weir turn bench --platform k8s --gateway media/udp-gateway:udp-listener --clients 5 --duration 5s --size 1000 --bandwidth 10M
  weir turn bench --sweep --json > turn.json; weir bench report turn.json -o turn.html`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(f.parse(), f.cluster.parse(cmd, f.config.Platform)); err != nil {
				return cli.UsageError(err)
			}
			measure := bench.Turn
			if f.config.Platform == bench.PlatformKubernetes {
				measure = f.cluster.run
			}
			return runTurnBench(cmd, f.config, &f.out, measure)
		},
	}
	f.addLoad(cmd)
	f.addEnds(cmd.Flags())
	f.addSweep(cmd.Flags())
	f.cluster.addTo(cmd)
	for letter, name := range map[string]string{"n": "clients", "s": "size", "b": "bandwidth", "p": "platform"} {
		cli.OldShorthand(cmd, letter, name) // shorthands of STUNner's script; they have other meanings in weir nat and weir explain
	}
	f.out.Add(cmd)
	return cmd
}

// addLoad declares what the clients send.
func (f *turnBenchFlags) addLoad(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.IntVarP(&f.config.Clients, "clients", "n", 1, "turncats, or clients of the generator with --road direct-channel")
	cli.DurationVar(flags, &f.config.Duration, "duration", 10*time.Second, "length of a load")
	cli.OldFlag(cmd, "seconds", "t", "duration")
	flags.IntVarP(&f.config.Size, "size", "s", 1200, "bytes of a packet, 40 to 1472")
	flags.StringVarP(&f.bandwidth, "bandwidth", "b", "100000", "bits/s of each client, such as 100000, 100k or 10M")
	flags.StringVarP(&f.config.Platform, "platform", "p", bench.PlatformLocal, "local, or k8s: a gateway that runs in Kubernetes")
}

// addEnds declares through what, and between which ends, they send it.
func (f *turnBenchFlags) addEnds(flags *pflag.FlagSet) {
	// The flag keeps its first name, for scripts that use it; it names a path, as the JSON key of results does.
	flags.StringVar(&f.config.Path, "road", bench.TurnPathCat, "cat: through turncats; direct-channel: the generator sends ChannelData")
	flags.StringSliceVar(&f.config.With, "with", nil, "peers to compare with in the same run: "+strings.Join(bench.TurnPeers(), ", "))
	flags.StringVar(&f.config.Generator, "generator", bench.GeneratorAuto, "iperf, builtin, or auto: iperf where it is installed, builtin for sweeps and direct-channel")
	flags.StringVar(&f.config.Offload, "offload", "none", "of the gateway: none, auto, tcx, xdp; needs root")
	flags.StringVar(&f.config.Network, "network", bench.NetworkAuto, "loopback; veth: clients, servers and sink on hosts of their own, needs root; auto: veth with an offload")
	flags.StringVar(&f.config.Transport, "transport", bench.TransportUDP, "between the clients and the TURN server: udp, tcp, dtls")
	flags.StringVar(&f.config.Direction, "direction", bench.DirectionUp, "of the packets: up (clients to sink), or with --road direct-channel down")
	flags.IntVar(&f.config.Workers, "workers", 0, "workers of the gateway (default its own)")
	flags.IntVar(&f.config.Burst, "burst", 0, "packets that a client of the built-in generator sends in a row (default 1, with direct-channel 8)")
	flags.BoolVar(&f.config.NoGSO, "no-segment", false, "the built-in generator sends every packet by itself, without segmentation offload")
}

func (f *turnBenchFlags) addSweep(flags *pflag.FlagSet) {
	flags.BoolVar(&f.config.Sweep, "sweep", false, "measure all of --sizes, at --rates and at the highest rate that holds")
	flags.IntSliceVar(&f.config.Sizes, "sizes", bench.TurnSizes(), "sizes of a sweep in bytes")
	flags.StringSliceVar(&f.rates, "rates", []string{"20k"}, "of a sweep: packets/s of all clients at which costs are compared, such as 20k,120k")
	flags.IntVar(&f.config.Rounds, "rounds", 3, "of a sweep: rounds of each rate, of --duration")
	cli.DurationVar(flags, &f.config.Probe, "probe", time.Second, "of a sweep: length of a try when it looks for the highest rate")
	// The flag keeps its first name, for scripts that use it.
	flags.StringVar(&f.maxRate, "most", "1M", "of a sweep: packets/s at which the search stops")
}

// parse converts the texts of the command line into what the measurement takes.
func (f *turnBenchFlags) parse() (err error) {
	config := &f.config
	if config.Duration <= 0 {
		return fmt.Errorf("--duration %v: write a length, such as 5s or 500ms", config.Duration)
	}
	if config.Bandwidth, err = parseBits(f.bandwidth); err != nil {
		return fmt.Errorf("--bandwidth: %w", err)
	}
	if config.MaxRate, err = parseBits(f.maxRate); err != nil {
		return fmt.Errorf("--most: %w", err)
	}
	for _, text := range f.rates {
		rate, err := parseBits(text)
		if err != nil {
			return fmt.Errorf("--rates: %w", err)
		}
		config.Rates = append(config.Rates, rate)
	}
	return config.Validate()
}

func runTurnBench(cmd *cobra.Command, config bench.TurnConfig, out *measuring.Output, measure func(context.Context, bench.TurnConfig) ([]*bench.TurnRun, error)) error {
	load := procstat.LoadAverage()
	runs, err := measuring.Run(cmd, "", &config.Run, func(ctx context.Context) ([]*bench.TurnRun, error) {
		return measure(ctx, config)
	})
	if err != nil {
		return err
	}
	measuring.Describe(bench.Results(runs), load)
	if out.AsJSON {
		err = json.NewEncoder(cmd.OutOrStdout()).Encode(runs) // compact: histograms are long
	} else {
		err = bench.WriteTurn(cmd.OutOrStdout(), config, runs)
	}
	return errors.Join(err, measuring.WriteReport(out.Report, measuring.Draw(bench.Results(runs))))
}

// parseBits reads a number with an optional suffix k, M or G (powers of 1000).
func parseBits(text string) (float64, error) {
	digits, unit := text, 1.0
	if text != "" {
		if i := strings.IndexByte("kmg", text[len(text)-1]|0x20); i >= 0 {
			digits, unit = text[:len(text)-1], math.Pow(1000, float64(i+1))
		}
	}
	value, err := strconv.ParseFloat(digits, 64)
	if err != nil || math.IsNaN(value) || math.IsInf(value, 0) {
		return 0, fmt.Errorf("%q: write a number such as 100000, 100k or 10M", text)
	}
	return value * unit, nil
}
