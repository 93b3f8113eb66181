package main

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/control"
	"github.com/weir-lb/weir/internal/control/admin"
	"github.com/weir-lb/weir/internal/datapath/nfqueue"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/steer"
)

// nfqueueFlags are those of `weir lb run --datapath nfqueue`.
type nfqueueFlags struct {
	queues   string
	length   int
	copy     int
	batch    int
	buffer   int
	failOpen bool
	spin     time.Duration
}

func (f *nfqueueFlags) add(cmd *cobra.Command) {
	set := cmd.Flags()
	set.StringVar(&f.queues, "queue", "0", "nfqueue: queues to serve, such as 0 or 0:3, one worker for each")
	set.IntVar(&f.length, "queue-length", nfqueue.DefaultLength, "nfqueue: packets that may wait in each queue")
	set.IntVar(&f.copy, "copy-range", nfqueue.DefaultCopyRange, "nfqueue: bytes of each packet to look at")
	set.IntVar(&f.batch, "batch", nfqueue.DefaultBatch, "nfqueue: packets read and answered by one system call")
	set.IntVar(&f.buffer, "receive-buffer", 0, "nfqueue: bytes of each queue's socket (default: enough for a full queue)")
	set.BoolVar(&f.failOpen, "fail-open", false, "nfqueue: packets that find their queue full go on without a mark instead of being dropped")
	set.DurationVar(&f.spin, "spin", nfqueue.DefaultSpin, "nfqueue: under load, how long to look for the next packet before sleeping; 0: never")
}

func (f *nfqueueFlags) config(log *slog.Logger) (nfqueue.Config, error) {
	config := nfqueue.Config{
		Length: f.length, CopyRange: f.copy, Batch: f.batch, ReceiveBuffer: f.buffer, FailOpen: f.failOpen, Spin: f.spin, Log: log,
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

func openNFQueue(flags *nfqueueFlags, log *slog.Logger) (*balancer, error) {
	config, err := flags.config(log)
	if err == nil {
		err = config.Validate()
	}
	if err != nil {
		return nil, usageError(err)
	}
	// As for udpnat: spare Ps, so that Go's monitor has none to take from workers in system calls.
	runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), config.Count+2))
	datapath, err := nfqueue.Open(config)
	if err != nil {
		return nil, err
	}
	return &balancer{
		datapath: datapath,
		samples:  func() []admin.Sample { return nfqueueSamples(datapath.Stats()) },
		flows: func(_ *lb.Snapshot, yield func(admin.Flow) bool) {
			for _, f := range datapath.Flows(admin.MaxFlows) {
				if !yield(nfqueueFlow(&f)) {
					return
				}
			}
		},
		status: func(s control.Status) any {
			return lbStatus{Status: s, Queues: nfqueueText(datapath.Stats())}
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

// nfqueueStatus is what the queue data path adds to /status.
type nfqueueStatus struct {
	nfqueue.Stats
	Reasons   map[string]uint64         `json:"reasons"` // packets, of all services and of none
	Services  map[string]*queuedService `json:"services"`
	Fragments fragmentStatus            `json:"fragments"`
}

// queuedService is what one service carried.
type queuedService struct {
	Reasons  map[string]uint64        `json:"reasons"`
	Backends map[string]queuedBackend `json:"backends"`
}

type queuedBackend struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
	Opened  uint64 `json:"opened_flows"`
}

type fragmentStatus struct {
	Datagrams  int    `json:"datagrams"` // remembered now
	Refused    uint64 `json:"refused"`   // no room to remember
	Poisoned   uint64 `json:"poisoned"`  // could not be held
	Expired    uint64 `json:"expired"`   // datagrams forgotten in time
	Unanswered uint64 `json:"unanswered"`
}

func nfqueueText(s nfqueue.Stats) *nfqueueStatus {
	f := &s.Tables.Fragments
	text := &nfqueueStatus{
		Stats: s, Reasons: reasonCounts(s.Reasons), Services: map[string]*queuedService{},
		Fragments: fragmentStatus{f.Entries, f.Refused, f.Poisoned, f.Expired, f.Unanswered},
	}
	for name, reasons := range s.Services {
		text.Services[name] = &queuedService{reasonCounts(reasons), map[string]queuedBackend{}}
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

// nfqueueSamples are the numbers for Prometheus. Reasons that never happened are left out.
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
	for _, name := range sortedKeys(text.Services) {
		for reason, n := range text.Services[name].Reasons {
			none[reason] -= min(n, none[reason])
		}
	}
	text.Services[""] = &queuedService{Reasons: none}
	for _, name := range sortedKeys(text.Services) {
		service := text.Services[name]
		for _, reason := range sortedKeys(service.Reasons) {
			add("weir_packets_total", "Packets by service and by the reason of their treatment; an empty service: none, or one that is gone.", true, float64(service.Reasons[reason]), "service", name, "reason", reason)
		}
		for _, backend := range sortedKeys(service.Backends) {
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
			{"weir_queue_batches_total", "Reads that brought packets.", false, q.Batches},
			{"weir_queue_missing_ids_total", "Gaps in the numbers of packets: lost between queue and weir.", false, q.MissingIDs},
			{"weir_queue_short_total", "Packets with headers beyond the copy range.", false, q.Short},
			{"weir_queue_dropped_total", "Packets that found the queue full.", false, uint64(q.QueueDrops)},
			{"weir_queue_user_dropped_total", "Packets that found the socket's buffer full.", false, uint64(q.UserDrops)},
			{"weir_queue_refused_verdicts_total", "Verdicts that the kernel refused.", false, q.RefusedAnswers},
			{"weir_queue_held_released_total", "Early fragments that went on when the first one came.", false, q.HeldReleased},
			{"weir_queue_held_expired_total", "Early fragments whose first one never came.", false, q.HeldExpired},
			{"weir_queue_held_abandoned_total", "Early fragments dropped with the rest of their datagram.", false, q.HeldAbandoned},
			{"weir_queue_held", "Early fragments whose verdict waits.", true, uint64(q.Held)},
			{"weir_queue_waiting", "Packets that wait for their verdict.", true, uint64(q.Waiting)},
			{"weir_queue_address_pairs", "Estimate of the pairs of addresses seen in the last seconds.", true, uint64(q.AddressPairs)},
		} {
			add(n.name, n.help, !n.gauge, float64(n.value), "queue", number)
		}
	}
	add("weir_queue_length", "Bound of each queue.", false, float64(s.Length))
	for _, t := range []struct {
		name       string
		used, size int
	}{{"flows", s.Tables.Flows, s.Tables.MaxFlows}} {
		add("weir_table_entries", "Entries in use, by table.", false, float64(t.used), "table", t.name)
		add("weir_table_size", "Bound of a table.", false, float64(t.size), "table", t.name)
	}
	return samples
}

// printQueueStatus writes what `weir lb status` adds for queues.
func printQueueStatus(w io.Writer, q *nfqueueStatus) error {
	full := "dropped"
	if q.FailOpen {
		full = "let through without a mark (fail-open)"
	}
	fmt.Fprintf(w, "\nqueue length %d, receive buffer %d bytes, copy range %d bytes, batch %d; what finds its queue full is %s\n",
		q.Length, q.ReceiveBuffer, q.CopyRange, q.Batch, full)
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "QUEUE\tPORT ID\tWAITING\tHELD\tPACKETS\tQUEUE FULL\tBUFFER FULL\tMISSING IDS\tFLOWS\tOF")
	for i := range q.Queues {
		s := &q.Queues[i]
		fmt.Fprintf(table, "%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\n", s.Number, s.PortID, s.Waiting, s.Held, s.Packets, s.QueueDrops,
			s.UserDrops, s.MissingIDs, s.Flows, s.MaxFlows)
	}
	return table.Flush()
}

// printQueued writes what `weir lb show` adds for queues: by service, then the spread over queues.
func (s *shower) printQueued(status *lbStatus, at time.Time) error {
	q, per, unit := status.Queues, 0.0, ""
	var before *nfqueueStatus
	if s.last != nil && s.last.Queues != nil {
		before, per, unit = s.last.Queues, at.Sub(s.lastAt).Seconds(), "/s"
	}
	number := func(now, then uint64) string {
		if per > 0 {
			return fmt.Sprintf("%.0f", float64(now-min(then, now))/per)
		}
		return fmt.Sprint(now)
	}
	table := tabwriter.NewWriter(s.out, 0, 8, 2, ' ', 0)
	for i := range status.Services {
		name := status.Services[i].Name
		service, then := q.service(name), before.service(name)
		total := uint64(0)
		for backend, n := range service.Backends {
			total += n.Packets - min(then.Backends[backend].Packets, n.Packets)
		}
		fmt.Fprintf(table, "\n%s\tPACKETS%s\tBYTES%[2]s\tNEW FLOWS%[2]s\tSHARE\n", name, unit)
		for _, backend := range sortedKeys(service.Backends) {
			n, old := service.Backends[backend], then.Backends[backend]
			fmt.Fprintf(table, "  %s\t%s\t%s\t%s\t%s\n", backend, number(n.Packets, old.Packets), number(n.Bytes, old.Bytes),
				number(n.Opened, old.Opened), percent(n.Packets-min(old.Packets, n.Packets), total))
		}
		if err := table.Flush(); err != nil {
			return err
		}
		fmt.Fprintf(table, "  REASON\tPACKETS%s\n", unit)
		reasons := sortedKeys(service.Reasons)
		slices.SortStableFunc(reasons, func(a, b string) int { return cmp.Compare(service.Reasons[b], service.Reasons[a]) })
		for _, reason := range reasons {
			fmt.Fprintf(table, "  %s\t%s\n", reason, number(service.Reasons[reason], then.Reasons[reason]))
		}
		if err := table.Flush(); err != nil {
			return err
		}
	}
	fmt.Fprintf(table, "\nQUEUE\tPACKETS%s\tSHARE\tPER READ\tADDRESS PAIRS\tWAITING\tHELD\tQUEUE FULL%[1]s\tBUFFER FULL%[1]s\tMISSING IDS%[1]s\n", unit)
	spread := spreadOf(q, before)
	for i := range q.Queues {
		now, then := &q.Queues[i], nfqueue.QueueStats{}
		if before != nil && i < len(before.Queues) {
			then = before.Queues[i]
		}
		perRead := "-"
		if reads := now.Batches - min(then.Batches, now.Batches); reads > 0 {
			perRead = fmt.Sprintf("%.1f", float64(spread.packets[i])/float64(reads))
		}
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%d\t%d\t%d\t%s\t%s\t%s\n", now.Number, number(now.Packets, then.Packets),
			percent(spread.packets[i], spread.total), perRead, now.AddressPairs, now.Waiting, now.Held,
			number(uint64(now.QueueDrops), uint64(then.QueueDrops)), number(uint64(now.UserDrops), uint64(then.UserDrops)), number(now.MissingIDs, then.MissingIDs))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if hint := spread.hint(q); hint != "" {
		_, err := fmt.Fprintln(s.out, hint)
		return err
	}
	return nil
}

func percent(part, whole uint64) string {
	if whole == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f%%", 100*float64(part)/float64(whole))
}

// spread is how packets went over queues.
type spread struct {
	packets []uint64
	total   uint64
}

func spreadOf(q, before *nfqueueStatus) spread {
	var s spread
	for i := range q.Queues {
		n := q.Queues[i].Packets
		if before != nil && i < len(before.Queues) {
			n -= min(before.Queues[i].Packets, n)
		}
		s.packets = append(s.packets, n)
		s.total += n
	}
	return s
}

// Fewer packets than this say nothing about the spread, and a queue with this part of them has too many.
const spreadPackets, spreadShare = 100, 0.8

// hint tells when sources hash to one queue.
func (s spread) hint(q *nfqueueStatus) string {
	if len(s.packets) < 2 || s.total < spreadPackets {
		return ""
	}
	pairs := 0
	for i := range q.Queues {
		pairs += q.Queues[i].AddressPairs
	}
	for i, n := range s.packets {
		share := float64(n) / float64(s.total)
		if share < spreadShare {
			continue
		}
		why := fmt.Sprintf("queue %d gets %.0f%% of the packets (%d of about %d address pairs hash there)", q.Queues[i].Number, 100*share, q.Queues[i].AddressPairs, pairs)
		if pairs <= 4*len(s.packets) {
			return why + ": so few pairs cannot be spread better, more sources would"
		}
		return why + ": its sources are the busy ones; more queues would part them"
	}
	return ""
}
