package lb

import (
	"context"
	"io"
	"log/slog"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/balancing"
	"github.com/weir-lb/weir/internal/control"
	"github.com/weir-lb/weir/internal/datapath/udpnat"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// openDatapath opens the data path of --datapath. liveness is called when a backend becomes silent or answers again.
func openDatapath(name string, kernel *ebpfFlags, queues *nfqueueFlags, log *slog.Logger, liveness func(target lb.Target, silent bool)) (*balancer, error) {
	if _, err := balancing.Caps(name); err != nil {
		return nil, cli.UsageError(err)
	}
	switch name {
	case "ebpf":
		return openEBPF(kernel, log)
	case "nfqueue":
		return openNFQueue(queues, kernel, log)
	}
	return openUDP(udpnat.Config{Log: log, OnLiveness: liveness})
}

func openUDP(config udpnat.Config) (*balancer, error) {
	datapath, err := balancing.OpenUDP(config)
	if err != nil {
		return nil, err
	}
	return &balancer{
		datapath: datapath,
		samples:  datapath.Samples,
		flows:    datapath.Flows,
		respond:  func(context.Context) { datapath.Respond() },
		console: func(loop *control.Loop) func(ctx context.Context, in io.Reader, out io.Writer) error {
			return udpnat.NewConsole(datapath, loop, udpnat.ConsoleOptions{}).Serve
		},
	}, nil
}
