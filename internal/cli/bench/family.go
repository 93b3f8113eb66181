package bench

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/bench"
	"github.com/weir-lb/weir/internal/cli"
)

// Family is weir bench.
func Family() cli.Family {
	return cli.Family{Command: newBenchCommand, Values: benchValues, Arguments: benchArguments}
}

func benchValues() map[string][]string {
	floods := slices.Concat(bench.DescribeFloods(), bench.DescribeFloodTargets())
	return map[string][]string{
		"weir bench coap --datapath":     {"ebpf"},
		"weir bench ebpf --hook":         {"xdp", "tcx", "both"},
		"--mode":                         {"nat", "l2dsr", "l3dsr"},
		"--roads":                        bench.CoapPaths(),
		"--families":                     bench.Families(),
		"--offloads":                     bench.NFQueueOffloads(),
		"weir bench run dsr --loads":     bench.DSRLoads(),
		"weir bench run dsr --only":      bench.DSRPaths(),
		"weir bench run nfqueue --loads": bench.NFQueueLoads(),
		"weir bench run nfqueue --only":  bench.NFQueuePaths(),
		"weir bench run floods --only":   floods,
		"weir bench run floods --with":   bench.FloodPeers(),
		"weir bench nat --with":          bench.NATPeers(),
		"weir bench nat --network":       {"loopback", "veth"},
		"weir bench run nfqueue --with":  bench.NFQueuePeers(),
		"weir bench run dump --only":     bench.DumpTargets(),

		"weir bench run failover --only":    bench.FailoverPaths(),
		"weir bench run failover --changes": bench.FailoverChanges(),
	}
}

func benchArguments() map[string]cobra.CompletionFunc {
	return map[string]cobra.CompletionFunc{
		"weir bench report": cli.FilesOf("json"),
	}
}
