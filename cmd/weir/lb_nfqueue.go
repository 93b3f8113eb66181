package main

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/control"
	"github.com/weir-lb/weir/internal/control/admin"
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
}

func (f *nfqueueFlags) add(cmd *cobra.Command) {
	set := cmd.Flags()
	set.StringVar(&f.queues, "queue", "0", "nfqueue: queues to serve, such as 0 or 0:3, one worker for each")
	set.StringVar(&f.fast, "fast", fastAuto, "nfqueue: a TCX program at --interface marks what it can before the queue: auto, on (or fail), off")
	set.IntVar(&f.length, "queue-length", nfqueue.DefaultLength, "nfqueue: packets that may wait in each queue")
	set.IntVar(&f.copy, "copy-range", nfqueue.DefaultCopyRange, "nfqueue: bytes of each packet to look at")
	set.IntVar(&f.batch, "batch", nfqueue.DefaultBatch, "nfqueue: packets read and answered by one system call")
	set.IntVar(&f.buffer, "receive-buffer", 0, "nfqueue: bytes of each queue's socket (default: enough for a full queue)")
	set.BoolVar(&f.failOpen, "fail-open", false, "nfqueue: packets that find their queue full go on without a mark instead of being dropped")
	durationVar(set, &f.spin, "spin", nfqueue.DefaultSpin, "nfqueue: under load, how long to look for the next packet before sleeping; 0: never")
}

func (f *nfqueueFlags) config(log *slog.Logger) (nfqueue.Config, error) {
	config := nfqueue.Config{
		Length: f.length, CopyRange: f.copy, Batch: f.batch, ReceiveBuffer: f.buffer, FailOpen: f.failOpen, Spin: f.spin, Log: log,
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
	if err == nil {
		err = config.Validate()
	}
	if err != nil {
		return nil, usageError(err)
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
		samples:  func() []metrics.Sample { return append(nfqueueSamples(datapath), fastSamples(fast)...) },
		flows: func(_ *lb.Snapshot, yield func(admin.Flow) bool) {
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
		status: func(s control.Status) any {
			status := lbStatus{Status: s, Queues: nfqueueText(datapath.Stats())}
			status.Fast, status.Kernel = statusOfFast(fast)
			return status
		},
	}, nil
}

func nfqueueFlow(f *nfqueue.Flow) admin.Flow {
	flow := admin.Flow{
		Protocol: lb.Protocol(f.Protocol).String(), Client: f.Client.String(), VIP: f.VIP.String(),
		Service: f.Service, Backend: f.Backend, State: f.State, Expires: -1,
	}
	if f.Left < lb.Never/2 { // one that never expires has ages left
		flow.Expires = max(0, f.Left).Seconds()
	}
	return flow
}

// nfqueueStatus is the part of /status about the queue data path.
type nfqueueStatus struct {
	nfqueue.Stats
	Reasons   map[string]uint64         `json:"reasons"` // packets, of all services and of none
	Services  map[string]*queuedService `json:"services"`
	FlowTable flowTableStatus           `json:"flow_table"`
	Fragments fragmentStatus            `json:"fragments"`
	Tier      tierStatus                `json:"tier"`
}

// queuedService is what one service carried.
type queuedService struct {
	Reasons  map[string]uint64        `json:"reasons"`
	Backends map[string]queuedBackend `json:"backends"`
	Rules    []queuedRule             `json:"flow_rules,omitempty"` // the one that wins first
}

type queuedRule struct {
	Name    string `json:"name"`
	Packets uint64 `json:"packets"` // that the rule itself decided; not those decided by a flow or fragment entry
}

type queuedBackend struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
	Opened  uint64 `json:"opened_flows"`
}

// fragmentStatus is the fragment tables of all queues.
type fragmentStatus struct {
	Datagrams  int    `json:"datagrams"`  // remembered now
	Inserts    uint64 `json:"inserts"`    // datagrams entered
	Lookups    uint64 `json:"lookups"`    // fragments asked about
	Waited     uint64 `json:"waited"`     // fragments held
	Refused    uint64 `json:"refused"`    // datagrams refused because the table was full
	Poisoned   uint64 `json:"poisoned"`   // could not be held
	Collisions uint64 `json:"collisions"` // first fragments of a known datagram with another decision
	Expired    uint64 `json:"expired"`    // datagrams forgotten in time
	Unanswered uint64 `json:"unanswered"` // fragments whose first one never came
	// Datagrams removed before their time to make room.
	EvictedKnown   uint64 `json:"evicted_known"`   // the first fragment was seen
	EvictedYoung   uint64 `json:"evicted_young"`   // of these, in the first half of their ttl
	EvictedWaiting uint64 `json:"evicted_waiting"` // early fragments were held
	EvictedLost    uint64 `json:"evicted_lost"`    // fragments were lost already
	HeldEvicted    uint64 `json:"held_evicted"`    // held fragments that were dropped to make room for others
}

// flowTableStatus is the flow tables of all queues.
type flowTableStatus struct {
	Flows     int    `json:"flows"`
	MaxFlows  int    `json:"max_flows"`
	Proven    int    `json:"proven"`    // of flows: established TCP, others of two packets and more
	Evicted   uint64 `json:"evicted"`   // unproven ones, each for a new flow
	Refused   uint64 `json:"refused"`   // new flows without an entry: the table was full of proven ones
	Expired   uint64 `json:"expired"`   //
	Displaced uint64 `json:"displaced"` // proven ones, each for a packet whose CID names a live owner
}

// tierStatus is what went to other balancers of the tier.
type tierStatus struct {
	Sent      uint64 `json:"sent"`
	Returned  uint64 `json:"returned"`
	Unguarded uint64 `json:"unguarded"`
}

func nfqueueText(s nfqueue.Stats) *nfqueueStatus {
	f := &s.Tables.Fragments
	text := &nfqueueStatus{
		Stats: s, Reasons: reasonCounts(s.Reasons), Services: map[string]*queuedService{},
		Fragments: fragmentStatus{
			Datagrams: f.Entries, Inserts: f.Inserts, Lookups: f.Lookups, Waited: f.Waited, Refused: f.Refused, Poisoned: f.Poisoned,
			Collisions: f.Collisions, Expired: f.Expired, Unanswered: f.Unanswered, HeldEvicted: f.HeldEvicted,
			EvictedKnown: f.EvictedKnown, EvictedYoung: f.EvictedYoung, EvictedWaiting: f.EvictedWaiting, EvictedLost: f.EvictedLost,
		},
		FlowTable: flowTableStatus{
			Flows: s.Tables.Flows, MaxFlows: s.Tables.MaxFlows, Proven: s.Tables.ProvenFlows, Evicted: s.Tables.FlowsEvicted,
			Refused: s.Tables.FlowsRefused, Expired: s.Tables.FlowsExpired, Displaced: s.Tables.FlowsDisplaced,
		},
		Tier: tierStatus(s.Tables.Tier),
	}
	for name, reasons := range s.Services {
		text.Services[name] = &queuedService{Reasons: reasonCounts(reasons), Backends: map[string]queuedBackend{}}
	}
	for _, rule := range s.Rules {
		if service := text.Services[rule.Service]; service != nil {
			service.Rules = append(service.Rules, queuedRule{rule.Name, rule.Packets})
		}
	}
	for target, n := range s.Backends {
		if service := text.Services[target.Service]; service != nil {
			service.Backends[target.Backend] = queuedBackendOf(n)
		}
	}
	return text
}

func queuedBackendOf(n steer.BackendCounters) queuedBackend {
	return queuedBackend{n.Packets, n.Bytes, n.NewFlows}
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

func (q *nfqueueStatus) service(name string) *queuedService {
	if q == nil || q.Services[name] == nil {
		return &queuedService{}
	}
	return q.Services[name]
}

func (s *queuedService) rule(name string) uint64 {
	for _, rule := range s.Rules {
		if rule.Name == name {
			return rule.Packets
		}
	}
	return 0
}

func nfqueueSamples(datapath *nfqueue.Datapath) []metrics.Sample {
	stats := datapath.Stats()
	return metrics.Of(stats.Common(), &stats)
}
