package lb

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/terminal"
)

// printQueueStatus writes the part of `weir lb status` about queues.
func printQueueStatus(table io.Writer, q *v1.NFQueueStatus) {
	full := "dropped"
	if q.FailOpen {
		full = "let through without a mark (fail-open)"
	}
	fmt.Fprintf(table, "\nqueue length %d, receive buffer %d bytes, copy range %d bytes, batch %d; what finds its queue full is %s\n",
		q.Length, q.ReceiveBuffer, q.CopyRange, q.Batch, full)
	fmt.Fprintln(table, "QUEUE\tPORT ID\tWAITING\tHELD\tPACKETS\tQUEUE FULL\tBUFFER FULL\tMISSING IDS\tFLOWS\tOF")
	for i := range q.Queues {
		s := &q.Queues[i]
		fmt.Fprintf(table, "%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\n", s.Number, s.PortID, s.Waiting, s.Held, s.Packets, s.QueueDrops,
			s.UserDrops, s.MissingIDs, s.Flows, s.MaxFlows)
	}
	if t := &q.FlowTable; t.Evicted+t.Refused+t.Displaced > 0 {
		fmt.Fprintf(table, "flow table: %d of %d entries, %d proven; was full: %d unproven flows evicted, %d new flows refused, %d proven ones displaced by CID\n",
			t.Flows, t.MaxFlows, t.Proven, t.Evicted, t.Refused, t.Displaced)
	}
	f := &q.Fragments
	fmt.Fprintf(table, "fragments: %d datagrams remembered of %d entered; %d fragments were held, %d could not be, %d waited in vain; %d datagrams found no room\n",
		f.Datagrams, f.Inserts, f.Waited, f.Poisoned, f.Unanswered, f.Refused)
	if evicted := f.EvictedKnown + f.EvictedWaiting + f.EvictedLost; evicted+f.HeldEvicted > 0 {
		fmt.Fprintf(table, "to make room %d datagrams were forgotten (%d known, of these %d early, %d waiting, %d lost) and %d held fragments dropped\n",
			evicted, f.EvictedKnown, f.EvictedYoung, f.EvictedWaiting, f.EvictedLost, f.HeldEvicted)
	}
	if t := q.Tier; t != (v1.TierCounters{}) {
		fmt.Fprintf(table, "tier: %d fragments sent to other balancers, %d came back\n", t.Sent, t.Returned)
	}
}

// marked counts the packets that came to a queue with a mark.
func marked(q *v1.NFQueueStatus) (n uint64) {
	for i := range q.Queues {
		n += q.Queues[i].Marked
	}
	return n
}

// queuedTwice returns a warning when the queue's rule also takes packets that the fast path has marked; "" if it does not.
func queuedTwice(status *v1.LBStatus) string {
	if status.Fast == nil || !status.Fast.InUse || status.Queues == nil || marked(status.Queues) == 0 {
		return ""
	}
	return fmt.Sprintf("%d packets with a mark were queued all the same, which makes the fast path idle: let the rules leave them alone (weir lb rules --unmarked)\n",
		marked(status.Queues))
}

// printQueued writes what `weir lb show` adds for queues: by service, then the spread over queues.
func (s *shower) printQueued(table *terminal.Table, status *v1.LBStatus, at time.Time) {
	var before *v1.NFQueueStatus
	if s.last != nil {
		before = s.last.Queues
	}
	per := s.rates(at, before != nil)
	for i := range status.Services {
		name := status.Services[i].Name
		printQueuedService(table, name, queuedService(status.Queues, name), queuedService(before, name), per)
	}
	printSpread(table, status.Queues, before, per)
}

// printQueuedService writes the packets of one service: by backend, by flow rule and by reason.
func printQueuedService(table *terminal.Table, name string, service, then *v1.NFQueueService, per rates) {
	total := uint64(0)
	for backend, n := range service.Backends {
		total += n.Packets - min(then.Backends[backend].Packets, n.Packets)
	}
	fmt.Fprintf(table, "\n%s\tPACKETS%s\tBYTES%[2]s\tNEW FLOWS%[2]s\tSHARE\n", name, per.unit)
	for _, backend := range slices.Sorted(maps.Keys(service.Backends)) {
		n, old := service.Backends[backend], then.Backends[backend]
		fmt.Fprintf(table, "  %s\t%s\t%s\t%s\t%s\n", backend, per.of(n.Packets, old.Packets), per.of(n.Bytes, old.Bytes),
			per.of(n.Opened, old.Opened), percent(n.Packets-min(old.Packets, n.Packets), total))
	}
	table.End()
	for i, rule := range service.Rules {
		if i == 0 {
			fmt.Fprintf(table, "  FLOW RULE\tPACKETS%s\n", per.unit)
		}
		fmt.Fprintf(table, "  %s\t%s\n", rule.Name, per.of(rule.Packets, rulePackets(then, rule.Name)))
	}
	table.End()
	if len(service.Reasons) > 0 {
		fmt.Fprintf(table, "  REASON\tPACKETS%s\n", per.unit)
	}
	for _, reason := range mostFirst(service.Reasons, func(n uint64) uint64 { return n }) {
		fmt.Fprintf(table, "  %s\t%s\n", reason, per.of(service.Reasons[reason], then.Reasons[reason]))
	}
	table.End()
}

// printSpread writes the packets of each queue, and a hint where their spread can be improved.
func printSpread(table io.Writer, q, before *v1.NFQueueStatus, per rates) {
	fmt.Fprintf(table, "\nQUEUE\tPACKETS%s\tSHARE\tPER READ\tADDRESS PAIRS\tWAITING\tHELD\tQUEUE FULL%[1]s\tBUFFER FULL%[1]s\tMISSING IDS%[1]s\n", per.unit)
	spread := spreadOf(q, before)
	for i := range q.Queues {
		now, then := &q.Queues[i], v1.NFQueue{}
		if before != nil && i < len(before.Queues) {
			then = before.Queues[i]
		}
		perRead := "-"
		if reads := now.Batches - min(then.Batches, now.Batches); reads > 0 {
			perRead = fmt.Sprintf("%.1f", float64(spread.packets[i])/float64(reads))
		}
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%d\t%d\t%d\t%s\t%s\t%s\n", now.Number, per.of(now.Packets, then.Packets),
			percent(spread.packets[i], spread.total), perRead, now.AddressPairs, now.Waiting, now.Held,
			per.of(uint64(now.QueueDrops), uint64(then.QueueDrops)), per.of(uint64(now.UserDrops), uint64(then.UserDrops)), per.of(now.MissingIDs, then.MissingIDs))
	}
	if hint := spread.hint(q); hint != "" {
		fmt.Fprintln(table, hint)
	}
}

func percent(part, whole uint64) string {
	if whole == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f%%", 100*float64(part)/float64(whole))
}

// spread is how packets were distributed over queues.
type spread struct {
	packets []uint64
	total   uint64
}

func spreadOf(q, before *v1.NFQueueStatus) spread {
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

// With fewer packets the distribution means nothing. A queue with this share of them has too many.
const spreadPackets, spreadShare = 100, 0.8

// hint warns when sources hash to one queue.
func (s spread) hint(q *v1.NFQueueStatus) string {
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
