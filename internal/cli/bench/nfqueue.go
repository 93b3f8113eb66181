package bench

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/bench"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/measuring"
	"github.com/weir-lb/weir/internal/privilege"
	"github.com/weir-lb/weir/internal/testbed/measure"
)

func newBenchNFQueueCommand() *cobra.Command {
	var (
		config     bench.NFQueueConfig
		bandwidths []string
		out        measuring.Output
	)
	cmd := &cobra.Command{
		Use:   "nfqueue",
		Short: "TCP, UDP, fragments, small packets and latency through NFQUEUE, compared with the same path without it",
		Long: `Build the lab "nfqueue" (and "nfqueue-dsr" for fragments) once for each path and setting of the offloads, and load them in
turns. Medians, spreads, ratios to direct of the same round, processor time of the machine and of weir for a packet, and
what the queues counted before and after.

Paths:
` + measuring.IndentNames(bench.NFQueuePaths()) + `
Loads:
` + measuring.IndentNames(bench.NFQueueLoads()) + `
TCP is measured with segmentation offload on and off (ethtool -K gro, gso, tso of every interface), datagrams once: it is no
matter of theirs. With --with nfqlb, nfqlb takes weir's place in networks of its own, in turns with the others: same rules, same
routes by mark, as long queues, fragment table of the same size, hash of the address and ports; its program is in the PATH or
named by $WEIR_NFQLB. Needs root, and the Debian packages iperf, iptables and ethtool. A full run of 5 rounds takes about
15 minutes. The programs of the run get a higher priority than others (autogroup, -15). An interrupt ends it and leaves
nothing behind.`,
		Example: `  sudo weir bench run nfqueue --report nfqueue.html
  sudo weir bench run nfqueue --rounds 3 --duration 1s --only queue,fast --loads tcp,flood --offloads off
  sudo weir bench run nfqueue --loads udp,fragments --bandwidths 500M,1G --fragment-rates 20000 --families ipv4,ipv6
  sudo WEIR_NFQLB=/usr/local/bin/nfqlb weir bench run nfqueue --with nfqlb --loads tcp,flood
  sudo weir bench run nfqueue --json > nfqueue.json; weir bench report nfqueue.json -o nfqueue.html`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if config.Bandwidths, err = parseBandwidths(bandwidths); err != nil {
				return cli.UsageError(err)
			}
			return out.Run(cmd, privilege.BenchNFQueue, &config.Run, config.Validate(), func(ctx context.Context) ([]*measure.Result, error) {
				return bench.NFQueue(ctx, config)
			})
		},
	}
	flags := cmd.Flags()
	measuring.AddRoundFlags(cmd, &config.Rounds, &config.Duration)
	flags.StringSliceVar(&config.Paths, "only", nil, "paths to measure besides direct (default all)")
	flags.StringSliceVar(&config.With, "with", nil, "peers to compare with in the same run: "+strings.Join(bench.NFQueuePeers(), ", "))
	flags.StringSliceVar(&config.Loads, "loads", nil, "loads: "+strings.Join(measuring.NameList(bench.NFQueueLoads()), ", ")+" (default all)")
	flags.StringSliceVar(&config.Families, "families", []string{"ipv4"}, "address families: "+strings.Join(bench.Families(), ", "))
	flags.StringSliceVar(&config.Offloads, "offloads", nil, "segmentation offload: "+strings.Join(bench.NFQueueOffloads(), ", ")+" (default both)")
	flags.StringSliceVar(&bandwidths, "bandwidths", []string{"2G", "4G"}, "of the load udp: bit/s of payload, such as 500M or 2G")
	flags.IntSliceVar(&config.Fragmented, "fragment-rates", []int{15000, 40000}, "of the load fragments: datagrams a second")
	out.Add(cmd)
	return cmd
}

// parseBandwidths reads numbers of bit/s with iperf's units.
func parseBandwidths(texts []string) ([]float64, error) {
	var list []float64
	for _, text := range texts {
		digits, unit := text, 1.0
		switch {
		case strings.HasSuffix(text, "M"):
			digits, unit = text[:len(text)-1], 1e6
		case strings.HasSuffix(text, "G"):
			digits, unit = text[:len(text)-1], 1e9
		}
		value, err := strconv.ParseFloat(digits, 64)
		if err != nil {
			return nil, fmt.Errorf("--bandwidths %q: write bit/s, such as 500M or 2G", text)
		}
		list = append(list, value*unit)
	}
	return list, nil
}
