package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"

	"github.com/weir-lb/weir/internal/control"
	"github.com/weir-lb/weir/internal/control/admin"
	"github.com/weir-lb/weir/internal/datapath/ebpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/datapath/nfqueue"
	"github.com/weir-lb/weir/internal/datapath/udpnat"
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
		return nil, usageError(err)
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
		samples:  func() []admin.Sample { return udpSamples(datapath.Stats()) },
		flows: func(snapshot *lb.Snapshot, yield func(admin.Flow) bool) {
			for _, e := range datapath.Entries(admin.MaxFlows) {
				flow := admin.Flow{
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

func udpSamples(stats udpnat.Stats) []admin.Sample {
	samples := []admin.Sample{
		{Name: "weir_flows", Help: "Entries of the flow table.", Value: float64(stats.Entries)},
		{Name: "weir_flows_proven", Help: "Entries of the flow table that a backend has answered.", Value: float64(stats.Proven)},
		{Name: "weir_flows_max", Help: "Bound of the flow table.", Value: float64(stats.MaxEntries)},
	}
	reasons := make([]string, 0, len(stats.Reasons))
	for reason := range stats.Reasons {
		reasons = append(reasons, reason)
	}
	slices.Sort(reasons)
	for _, reason := range reasons {
		samples = append(samples, admin.Sample{
			Name: "weir_packets_total", Help: "Packets by the reason of their treatment.", Counter: true,
			Labels: []admin.Label{{Name: "reason", Value: reason}}, Value: float64(stats.Reasons[reason]),
		})
	}
	c := &stats.Counters
	for _, counter := range []struct {
		name, help string
		value      uint64
	}{
		{"weir_udp_received_total", "Datagrams from clients.", c.Received},
		{"weir_udp_forwarded_total", "Datagrams to backends.", c.Forwarded},
		{"weir_udp_forwarded_bytes_total", "Bytes to backends.", c.ForwardedBytes},
		{"weir_udp_backwarded_total", "Datagrams to clients.", c.Backwarded},
		{"weir_udp_backwarded_bytes_total", "Bytes to clients.", c.BackwardedBytes},
		{"weir_udp_filtered_total", "Datagrams from clients that are no DTLS record, dropped.", c.Filtered},
		{"weir_udp_undecided_total", "Datagrams from clients that steering dropped.", c.Undecided},
		{"weir_udp_wrong_routed_total", "Replies that came from elsewhere than the flow's backend.", c.WrongRouted},
		{"weir_udp_moved_total", "Flows that such a reply moved.", c.Moved},
		{"weir_udp_entries_full_total", "New flows dropped because the table was full of answered ones.", c.EntriesFull},
		{"weir_udp_exhausted_total", "New flows dropped for want of a descriptor or port.", c.Exhausted},
		{"weir_udp_evicted_total", "Entries that no backend had answered, closed for new flows.", c.Evicted},
		{"weir_udp_displaced_total", "Answered entries closed for datagrams whose CID names a live owner.", c.Displaced},
		{"weir_udp_expired_total", "Entries that timed out.", c.Expired},
		{"weir_udp_opened_total", "Entries made.", c.Opened},
		{"weir_udp_cleared_total", "Entries dropped by the operator or with their VIP.", c.Cleared},
		{"weir_udp_send_errors_total", "Datagrams the kernel refused, to backends.", c.SendErrors},
		{"weir_udp_reply_errors_total", "Datagrams the kernel refused, to clients.", c.ReplyErrors},
		{"weir_udp_receive_errors_total", "Reads that failed.", c.ReceiveErrors},
		{"weir_udp_refused_total", "ICMP answers: nobody listens at the backend.", c.Refused},
		{"weir_udp_backend_timeouts_total", "Backends that turned stale.", c.BackendTimeouts},
		{"weir_udp_receive_overflows_total", "Datagrams the kernel dropped before Weir read them.", c.ReceiveOverflows},
	} {
		samples = append(samples, admin.Sample{Name: counter.name, Help: counter.help, Counter: true, Value: float64(counter.value)})
	}
	return samples
}
