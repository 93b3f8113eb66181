package main

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/control"
	"github.com/weir-lb/weir/internal/control/admin"
	"github.com/weir-lb/weir/internal/datapath/nfqueue"
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
		samples:  func() []admin.Sample { return append(nfqueueSamples(datapath.Stats()), fastSamples(fast)...) },
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

// nfqueueSamples returns the metrics for Prometheus. Reasons that never happened are left out.
func nfqueueSamples(s nfqueue.Stats) []admin.Sample {
	var samples []admin.Sample
	add := func(name, help string, counter bool, value float64, labels ...string) {
		sample := admin.Sample{Name: name, Help: help, Counter: counter, Value: value}
		for i := 0; i < len(labels); i += 2 {
			sample.Labels = append(sample.Labels, admin.Label{Name: labels[i], Value: labels[i+1]})
		}
		samples = append(samples, sample)
	}
	text := nfqueueText(s)
	none := reasonCounts(s.Reasons)
	for _, name := range slices.Sorted(maps.Keys(text.Services)) {
		for reason, n := range text.Services[name].Reasons {
			none[reason] -= min(n, none[reason])
		}
	}
	text.Services[""] = &queuedService{Reasons: none}
	for _, name := range slices.Sorted(maps.Keys(text.Services)) {
		service := text.Services[name]
		for _, reason := range slices.Sorted(maps.Keys(service.Reasons)) {
			add("weir_packets_total", "Packets by service and by the reason of their treatment; an empty service: none, or one that is gone.", true, float64(service.Reasons[reason]), "service", name, "reason", reason)
		}
		for _, rule := range service.Rules {
			add("weir_flow_rule_packets_total", "Packets that a flow rule decided about; memory of flows and fragments aside.", true, float64(rule.Packets), "service", name, "rule", rule.Name)
		}
		for _, backend := range slices.Sorted(maps.Keys(service.Backends)) {
			n, labels := service.Backends[backend], []string{"service", name, "backend", backend}
			add("weir_backend_packets_total", "Packets by backend.", true, float64(n.Packets), append(labels, "direction", "to_backend")...)
			add("weir_backend_bytes_total", "Bytes by backend.", true, float64(n.Bytes), append(labels, "direction", "to_backend")...)
			add("weir_backend_flows_opened_total", "Flows by the backend they were given.", true, float64(n.Opened), labels...)
		}
	}
	for i := range s.Queues {
		q := &s.Queues[i]
		number := strconv.Itoa(int(q.Number))
		for _, n := range []struct {
			name, help string
			gauge      bool
			value      uint64
		}{
			{"weir_queue_packets_total", "Packets decided, by queue.", false, q.Packets},
			{"weir_queue_bytes_total", "Bytes of those packets, from the IP header on.", false, q.Bytes},
			{"weir_queue_large_total", "Large segments among those packets.", false, q.Large},
			{"weir_queue_marked_total", "Packets that came with a fwmark; with a fast path they should not be queued.", false, q.Marked},
			{"weir_queue_batches_total", "Reads that brought packets.", false, q.Batches},
			{"weir_queue_missing_ids_total", "Gaps in the numbers of packets: lost between queue and weir.", false, q.MissingIDs},
			{"weir_queue_short_total", "Packets with headers beyond the copy range.", false, q.Short},
			{"weir_queue_dropped_total", "Packets that found the queue full.", false, uint64(q.QueueDrops)},
			{"weir_queue_user_dropped_total", "Packets that found the socket's buffer full.", false, uint64(q.UserDrops)},
			{"weir_queue_refused_verdicts_total", "Verdicts that the kernel refused.", false, q.RefusedAnswers},
			{"weir_queue_held_released_total", "Early fragments that went on when the first one came.", false, q.HeldReleased},
			{"weir_queue_held_expired_total", "Early fragments whose first one never came.", false, q.HeldExpired},
			{"weir_queue_held_abandoned_total", "Early fragments dropped with the rest of their datagram.", false, q.HeldAbandoned},
			{"weir_queue_held_evicted_total", "Early fragments dropped so that others find room.", false, q.HeldEvicted},
			{"weir_queue_held", "Early fragments whose verdict waits.", true, uint64(q.Held)},
			{"weir_queue_waiting", "Packets that wait for their verdict.", true, uint64(q.Waiting)},
			{"weir_queue_address_pairs", "Estimate of the pairs of addresses seen in the last seconds.", true, uint64(q.AddressPairs)},
		} {
			add(n.name, n.help, !n.gauge, float64(n.value), "queue", number)
		}
	}
	add("weir_queue_length", "Bound of each queue.", false, float64(s.Length))
	add("weir_table_entries", "Entries in use, by table.", false, float64(s.Tables.Flows), "table", "flows")
	add("weir_table_size", "Bound of a table.", false, float64(s.Tables.MaxFlows), "table", "flows")
	add("weir_table_proven", "Entries that have proven themselves, by table.", false, float64(s.Tables.ProvenFlows), "table", "flows")
	add("weir_table_refused_total", "Flows that found the table full of proven ones.", true, float64(s.Tables.FlowsRefused), "table", "flows")
	add("weir_table_evicted_total", "Unproven entries removed for new ones, by table.", true, float64(s.Tables.FlowsEvicted), "table", "flows")
	add("weir_table_expired_total", "Entries that timed out, by table.", true, float64(s.Tables.FlowsExpired), "table", "flows")
	add("weir_table_displaced_total", "Proven entries removed for packets whose CID names a live owner, by table.", true, float64(s.Tables.FlowsDisplaced), "table", "flows")
	add("weir_table_entries", "Entries in use, by table.", false, float64(s.Tables.Fragments.Entries), "table", "fragments")
	f := &text.Fragments
	for _, n := range []struct {
		event string
		value uint64
	}{
		{"insert", f.Inserts},
		{"lookup", f.Lookups},
		{"wait", f.Waited},
		{"refuse", f.Refused},
		{"poison", f.Poisoned},
		{"collide", f.Collisions},
		{"expire", f.Expired},
		{"evicted_known", f.EvictedKnown},
		{"evicted_young", f.EvictedYoung},
		{"evicted_waiting", f.EvictedWaiting},
		{"evicted_lost", f.EvictedLost},
		{"held_evicted", f.HeldEvicted},
		{"unanswered", f.Unanswered},
	} {
		add("weir_fragment_events_total", "What happened in the fragment tables.", true, float64(n.value), "event", n.event)
	}
	for _, n := range []struct {
		fate  string
		value uint64
	}{{"sent", text.Tier.Sent}, {"returned", text.Tier.Returned}, {"unguarded", text.Tier.Unguarded}} {
		add("weir_tier_fragments_total", "Fragments for other balancers of the tier.", true, float64(n.value), "fate", n.fate)
	}
	return samples
}
