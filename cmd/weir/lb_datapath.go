package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"runtime"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/control"
	"github.com/weir-lb/weir/internal/datapath/ebpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/datapath/nfqueue"
	"github.com/weir-lb/weir/internal/datapath/udpnat"
	"github.com/weir-lb/weir/internal/metrics"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// datapathCaps returns the capabilities of a data path of --datapath.
func datapathCaps(name string) (lb.Caps, error) {
	switch name {
	case "udp":
		return udpnat.Caps(), nil
	case "ebpf":
		return ebpf.Caps(attach.HookTCX), nil
	case "nfqueue":
		return nfqueue.Caps(), nil
	default:
		return lb.Caps{}, fmt.Errorf("--datapath: no data path %q; write ebpf, nfqueue or udp", name)
	}
}

// openDatapath opens the data path of --datapath. liveness is called when a backend becomes silent or answers again.
func openDatapath(name string, kernel *ebpfFlags, queues *nfqueueFlags, log *slog.Logger, liveness func(target lb.Target, silent bool)) (*balancer, error) {
	if _, err := datapathCaps(name); err != nil {
		return nil, cli.UsageError(err)
	}
	switch name {
	case "ebpf":
		return openEBPF(kernel, log)
	case "nfqueue":
		return openNFQueue(queues, kernel, log)
	}
	balancer, _, err := openUDP(udpnat.Config{Log: log, OnLiveness: liveness})
	return balancer, err
}

func openUDP(config udpnat.Config) (*balancer, *udpnat.Datapath, error) {
	if config.Workers == 0 {
		config.Workers = runtime.GOMAXPROCS(0)
	}
	// If every P is in a system call, Go's monitor wakes every 20 µs to take one away, which costs a third more processor
	// time per datagram. Spare Ps prevent that; no more threads run than there are workers.
	runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), config.Workers+2))
	datapath, err := udpnat.Open(config)
	if err != nil {
		return nil, nil, err
	}
	return &balancer{
		datapath: datapath,
		samples: func() []metrics.Sample {
			stats := datapath.Stats()
			return metrics.Of(stats.Common(), &stats)
		},
		flows: func(snapshot *lb.Snapshot, yield func(v1.Flow) bool) {
			for _, e := range datapath.Entries(v1.MaxFlows) {
				flow := v1.Flow{
					Protocol: "udp", Client: e.Client.String(), VIP: e.VIP.String(),
					Service: e.Backend.Service, Backend: e.Backend.Backend, Expires: -1,
				}
				if service := snapshot.Service(flow.Service); service != nil && service.Timeouts.UDP != lb.Never {
					flow.Expires = max(0, service.Timeouts.UDP-e.Idle).Seconds()
				}
				if !yield(flow) {
					return
				}
			}
		},
		console: func(loop *control.Loop) func(ctx context.Context, in io.Reader, out io.Writer) error {
			return udpnat.NewConsole(datapath, loop, udpnat.ConsoleOptions{}).Serve
		},
	}, datapath, nil
}
