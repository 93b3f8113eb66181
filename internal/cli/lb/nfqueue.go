package lb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/datapath/nfqueue"
	"github.com/weir-lb/weir/internal/metrics"
	"github.com/weir-lb/weir/internal/privilege"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/steer"
)

// nfqueueFlags are the flags of `weir lb run --datapath nfqueue`.
type nfqueueFlags struct {
	queues   string
	length   int
	copy     int
	batch    int
	buffer   int
	failOpen bool
	spin     time.Duration
	fast     string
	flows    string // file
}

func (f *nfqueueFlags) add(cmd *cobra.Command) {
	set := cmd.Flags()
	set.StringVar(&f.queues, "queue", "0", "nfqueue: queues to serve, such as 0 or 0:3, one worker for each")
	set.StringVar(&f.fast, "fast", fastAuto, "nfqueue: a TCX program at --interface marks what it can before the queue: auto, on (or fail), off")
	set.StringVar(&f.flows, "flows-state", "", "nfqueue: file that keeps the flows for the next start, also after kill -9; empty for none (default: the socket of --admin with .flows instead of .sock)")
	set.IntVar(&f.length, "queue-length", nfqueue.DefaultLength, "nfqueue: packets that may wait in each queue")
	set.IntVar(&f.copy, "copy-range", nfqueue.DefaultCopyRange, "nfqueue: bytes of each packet to look at")
	set.IntVar(&f.batch, "batch", nfqueue.DefaultBatch, "nfqueue: packets read and answered by one system call")
	set.IntVar(&f.buffer, "receive-buffer", 0, "nfqueue: bytes of each queue's socket (default: enough for a full queue)")
	set.BoolVar(&f.failOpen, "fail-open", false, "nfqueue: packets that find their queue full go on without a mark instead of being dropped")
	cli.CompleteFlag(cmd, "flows-state", cli.FilesOf("flows"))
	cli.DurationVar(set, &f.spin, "spin", nfqueue.DefaultSpin, "nfqueue: under load, how long to look for the next packet before sleeping; 0: never")
}

func (f *nfqueueFlags) config(log *slog.Logger) (nfqueue.Config, error) {
	config := nfqueue.Config{
		Length: f.length, CopyRange: f.copy, Batch: f.batch, ReceiveBuffer: f.buffer, FailOpen: f.failOpen, Spin: f.spin, Log: log,
		FlowFile: f.flows,
	}
	if f.spin < 0 {
		return config, fmt.Errorf("--spin %s: write 0 (never) to 1ms", f.spin)
	}
	if f.spin == 0 {
		config.Spin = -1
	}
	for _, flag := range []struct {
		name  string
		value int
	}{{"queue-length", f.length}, {"copy-range", f.copy}, {"batch", f.batch}} {
		if flag.value == 0 { // the package would take its default
			return config, fmt.Errorf("--%s 0: write a number from 1", flag.name)
		}
	}
	if !slices.Contains([]string{fastAuto, fastOn, fastOff}, f.fast) {
		return config, fmt.Errorf("--fast %q: write auto, on or off", f.fast)
	}
	first, last, several := strings.Cut(f.queues, ":")
	a, err := strconv.ParseUint(first, 10, 16)
	b := a
	if err == nil && several {
		b, err = strconv.ParseUint(last, 10, 16)
	}
	if err != nil || b < a {
		return config, fmt.Errorf("--queue %q: write a number from 0 to 65535, or FIRST:LAST such as 0:3", f.queues)
	}
	config.First, config.Count = uint16(a), int(b-a)+1
	return config, nil
}

func openNFQueue(flags *nfqueueFlags, kernel *ebpfFlags, log *slog.Logger) (*balancer, error) {
	config, err := flags.config(log)
	config.DropFlows = !kernel.keep
	if err == nil {
		err = config.Validate()
	}
	if err != nil {
		return nil, cli.UsageError(err)
	}
	if err := privilege.Check(privilege.LBRunNFQueue); err != nil {
		return nil, err
	}
	// As for udpnat: spare Ps, so that Go's monitor does not take any from workers in system calls.
	runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), config.Count+2))
	datapath, err := nfqueue.Open(config)
	if err != nil {
		return nil, err
	}
	fast, err := withFast(flags.fast, datapath, kernel, log)
	if err != nil {
		return nil, errors.Join(err, datapath.Close())
	}
	return &balancer{
		datapath: fast,
		abandon:  fast.Abandon,
		stop:     kernel.stopFront(log),
		respond:  func(context.Context) { datapath.Respond() },
		samples:  func() []metrics.Sample { return append(nfqueueSamples(datapath), fastSamples(fast)...) },
		flows: func(_ *lb.Snapshot, yield func(v1.Flow) bool) {
			going := true
			datapath.Flows(func(f nfqueue.Flow) bool {
				going = yield(nfqueueFlow(&f))
				return going
			})
			if going {
				fastFlows(fast, yield)
			}
		},
		trace: traceQueues(datapath),
		status: func(s v1.BalancerStatus) any {
			status := v1.LBStatus{BalancerStatus: s, Queues: nfqueueText(datapath.Stats())}
			status.Fast, status.Kernel = statusOfFast(fast)
			return status
		},
	}, nil
}

func nfqueueFlow(f *nfqueue.Flow) v1.Flow {
	flow := v1.Flow{
		Protocol: lb.Protocol(f.Protocol).String(), Client: f.Client.String(), VIP: f.VIP.String(),
		Service: f.Service, Backend: f.Backend, State: f.State, Expires: -1,
	}
	if f.Left < lb.Never/2 { // one that never expires has ages left
		flow.Expires = max(0, f.Left).Seconds()
	}
	return flow
}

func nfqueueText(s nfqueue.Stats) *v1.NFQueueStatus {
	f := &s.Tables.Fragments
	text := &v1.NFQueueStatus{
		Generation: s.Generation, Length: s.Length, CopyRange: s.CopyRange, Batch: s.Batch, ReceiveBuffer: s.ReceiveBuffer, FailOpen: s.FailOpen,
		Queues: make([]v1.NFQueue, 0, len(s.Queues)), Reasons: reasonCounts(s.Reasons), Services: map[string]*v1.NFQueueService{},
		Fragments: v1.FragmentStatus{
			Datagrams: f.Entries, Inserts: f.Inserts, Lookups: f.Lookups, Waited: f.Waited, Refused: f.Refused, Poisoned: f.Poisoned,
			Collisions: f.Collisions, Expired: f.Expired, Unanswered: f.Unanswered, HeldEvicted: f.HeldEvicted,
			EvictedKnown: f.EvictedKnown, EvictedYoung: f.EvictedYoung, EvictedWaiting: f.EvictedWaiting, EvictedLost: f.EvictedLost,
		},
		FlowTable: v1.FlowTableStatus{
			Flows: s.Tables.Flows, MaxFlows: s.Tables.MaxFlows, Proven: s.Tables.ProvenFlows, Evicted: s.Tables.FlowsEvicted,
			Refused: s.Tables.FlowsRefused, Expired: s.Tables.FlowsExpired, Displaced: s.Tables.FlowsDisplaced,
		},
		Tier: v1.TierCounters(s.Tables.Tier),
		Kept: keptText(&s.Kept),
	}
	for i := range s.Queues {
		text.Queues = append(text.Queues, queueText(&s.Queues[i]))
	}
	for name, reasons := range s.Services {
		text.Services[name] = &v1.NFQueueService{Reasons: reasonCounts(reasons), Backends: map[string]v1.NFQueueBackend{}}
	}
	for _, rule := range s.Rules {
		if service := text.Services[rule.Service]; service != nil {
			service.Rules = append(service.Rules, v1.NFQueueRule{Name: rule.Name, Packets: rule.Packets})
		}
	}
	for target, n := range s.Backends {
		if service := text.Services[target.Service]; service != nil {
			service.Backends[target.Backend] = queuedBackendOf(n)
		}
	}
	return text
}

// keptText says which flows outlive the process.
func keptText(k *nfqueue.Kept) *v1.KeptFlows {
	return &v1.KeptFlows{
		File: k.File, Why: k.Why, Unkept: k.Unkept, TookOver: k.Flows[steer.RestoredFlow], Expired: k.Flows[steer.RestoreExpired],
		NotConfigured: k.Flows[steer.RestoreGone], NoRoom: k.Flows[steer.RestoreNoRoom], Damaged: k.Damaged + k.Flows[steer.RestoreBad], Seconds: k.Took.Seconds(),
	}
}

func queueText(q *nfqueue.QueueStats) v1.NFQueue {
	k := &q.KernelQueue
	return v1.NFQueue{
		Number: q.Number, NFQueueWorker: v1.NFQueueWorker(q.WorkerCounters),
		NFQueueKernel: v1.NFQueueKernel{
			PortID: k.PortID, Waiting: k.Waiting, CopyRange: k.CopyRange, QueueDrops: k.QueueDrops, UserDrops: k.UserDrops, LastID: k.LastID,
		},
		Held: q.Held, HeldReleased: q.HeldReleased, HeldExpired: q.HeldExpired, HeldAbandoned: q.HeldAbandoned, HeldEvicted: q.HeldEvicted,
		RefusedAnswers: q.RefusedAnswers, OddMessages: q.OddMessages, CutMessages: q.CutMessages, Sleeps: q.Sleeps,
		AddressPairs: q.AddressPairs, Flows: q.Flows, MaxFlows: q.MaxFlows,
	}
}

func queuedBackendOf(n steer.BackendCounters) v1.NFQueueBackend {
	return v1.NFQueueBackend{Packets: n.Packets, Bytes: n.Bytes, Opened: n.NewFlows}
}

func reasonCounts(counts [lb.NumReasons]uint64) map[string]uint64 {
	text := map[string]uint64{}
	for reason, n := range counts {
		if n > 0 {
			text[lb.Reason(reason).String()] = n
		}
	}
	return text
}

func nfqueueSamples(datapath *nfqueue.Datapath) []metrics.Sample {
	stats := datapath.Stats()
	return metrics.Of(stats.Common(), &stats)
}
