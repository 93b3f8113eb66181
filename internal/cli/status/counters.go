package status

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/terminal"
)

// Shown are the services of a status, each with what the data paths counted for it.
func Shown(status *v1.LBStatus) []v1.ServiceShown {
	list := []v1.ServiceShown{}
	for _, service := range status.Services {
		one := v1.ServiceShown{ServiceStatus: service}
		if k := status.Kernel; k != nil {
			one.Reasons, one.Carried, one.Flows = k.Reasons[service.Name], k.Backends[service.Name], k.Flows[service.Name]
		}
		if status.Queues != nil {
			one.Queued = queuedService(status.Queues, service.Name)
		}
		list = append(list, one)
	}
	return list
}

// queuedService returns the counters of a service, empty ones if there are none.
func queuedService(q *v1.NFQueueStatus, name string) *v1.NFQueueService {
	if q == nil || q.Services[name] == nil {
		return &v1.NFQueueService{}
	}
	return q.Services[name]
}

// Counters writes `weir lb show`: services with what they carry, totals at first, then rates since the look before.
type Counters struct {
	Dated bool // each look begins with its time
	last  *v1.LBStatus
	at    time.Time
}

// Write writes the services, their backends and what these carried, as of a time.
func (c *Counters) Write(w io.Writer, status *v1.LBStatus, at time.Time) error {
	defer func() { c.last, c.at = status, at }()
	if c.Dated {
		fmt.Fprintf(w, "%s  %s\n", at.Format(time.TimeOnly), numbers(&status.BalancerStatus))
	}
	if err := Services(w, status.Services, status.Tier); err != nil {
		return err
	}
	table, then := terminal.NewTable(w, false), &v1.LBStatus{}
	if c.last != nil {
		then = c.last
	}
	if status.Queues != nil {
		per := c.rates(at, then.Queues != nil)
		for i := range status.Services {
			name := status.Services[i].Name
			per.queued(table, name, queuedService(status.Queues, name), queuedService(then.Queues, name))
		}
		writeSpread(table, status.Queues, then.Queues, per)
	}
	if status.Kernel != nil {
		if status.Fast != nil {
			fmt.Fprintf(table, "\nFast path, before the queue:\n%s", queuedTwice(status))
		}
		per, before := c.rates(at, then.Kernel != nil), &v1.EBPFStatus{}
		if then.Kernel != nil {
			before = then.Kernel
		}
		for i := range status.Services {
			per.carried(table, status.Services[i].Name, status.Kernel, before)
		}
	}
	return table.Flush()
}

// rates writes counters: as they are, or as changes per second since an earlier look.
type rates struct {
	unit    string // of headings
	seconds float64
}

func (c *Counters) rates(at time.Time, earlier bool) rates {
	if !earlier {
		return rates{}
	}
	return rates{"/s", at.Sub(c.at).Seconds()}
}

func (r rates) of(now, then uint64) string {
	if r.seconds > 0 {
		return fmt.Sprintf("%.0f", float64(now-min(then, now))/r.seconds)
	}
	return fmt.Sprint(now)
}

// line is a row of counters with what they were at the look before, and cells that are no counters.
type line struct {
	name  string
	pairs [][2]uint64 // now, then
	cells []string
}

// block writes lines below a title and the headings of their counters, each with the unit, and of their other cells.
func (r rates) block(table *terminal.Table, title string, counters, others []string, lines []line) {
	fmt.Fprint(table, title)
	for _, heading := range counters {
		fmt.Fprintf(table, "\t%s%s", heading, r.unit)
	}
	for _, heading := range others {
		fmt.Fprint(table, "\t", heading)
	}
	fmt.Fprintln(table)
	for _, l := range lines {
		fmt.Fprint(table, "  ", l.name)
		for _, pair := range l.pairs {
			fmt.Fprint(table, "\t", r.of(pair[0], pair[1]))
		}
		for _, cell := range l.cells {
			fmt.Fprint(table, "\t", cell)
		}
		fmt.Fprintln(table)
	}
}

// part is block for lines of which there may be none: then nothing is written.
func (r rates) part(table *terminal.Table, title string, counters []string, lines []line) {
	if len(lines) > 0 {
		r.block(table, "  "+title, counters, nil, lines)
	}
	table.End()
}

// queued writes the packets of one service that came by queues: by backend, by flow rule and by reason.
func (r rates) queued(table *terminal.Table, name string, now, then *v1.NFQueueService) {
	total := uint64(0)
	for backend, n := range now.Backends {
		total += n.Packets - min(then.Backends[backend].Packets, n.Packets)
	}
	var backends, rules, reasons []line
	for _, backend := range slices.Sorted(maps.Keys(now.Backends)) {
		n, old := now.Backends[backend], then.Backends[backend]
		backends = append(backends, line{
			backend,
			[][2]uint64{{n.Packets, old.Packets}, {n.Bytes, old.Bytes}, {n.Opened, old.Opened}},
			[]string{percent(n.Packets-min(old.Packets, n.Packets), total)},
		})
	}
	for _, rule := range now.Rules {
		rules = append(rules, line{name: rule.Name, pairs: [][2]uint64{{rule.Packets, rulePackets(then, rule.Name)}}})
	}
	for _, reason := range largestFirst(now.Reasons, func(n uint64) uint64 { return n }) {
		reasons = append(reasons, line{name: reason, pairs: [][2]uint64{{now.Reasons[reason], then.Reasons[reason]}}})
	}
	r.block(table, "\n"+name, []string{"PACKETS", "BYTES", "NEW FLOWS"}, []string{"SHARE"}, backends)
	table.End()
	r.part(table, "FLOW RULE", []string{"PACKETS"}, rules)
	r.part(table, "REASON", []string{"PACKETS"}, reasons)
}

func rulePackets(s *v1.NFQueueService, name string) uint64 {
	for _, rule := range s.Rules {
		if rule.Name == name {
			return rule.Packets
		}
	}
	return 0
}

// carried writes the packets of one service that the kernel data path carried: by backend and by reason.
func (r rates) carried(table *terminal.Table, name string, now, before *v1.EBPFStatus) {
	flows, total := now.Flows[name], 0
	for _, n := range flows {
		total += n
	}
	var backends, reasons []line
	for _, backend := range slices.Sorted(maps.Keys(now.Backends[name])) {
		b, then := now.Backends[name][backend], before.Backends[name][backend]
		backends = append(backends, line{backend, [][2]uint64{
			{b.In.Packets, then.In.Packets}, {b.In.Bytes, then.In.Bytes}, {b.Out.Packets, then.Out.Packets}, {b.Out.Bytes, then.Out.Bytes}, {b.Opened, then.Opened},
		}, []string{fmt.Sprint(flows[backend]), percent(uint64(flows[backend]), uint64(total))}})
	}
	for _, reason := range largestFirst(now.Reasons[name], func(c v1.Count) uint64 { return c.Packets }) {
		n, then := now.Reasons[name][reason], before.Reasons[name][reason]
		reasons = append(reasons, line{name: reason, pairs: [][2]uint64{{n.Packets, then.Packets}, {n.Bytes, then.Bytes}}})
	}
	r.block(table, "\n"+name, []string{"PACKETS IN", "BYTES IN", "PACKETS OUT", "BYTES OUT", "NEW FLOWS"}, []string{"FLOWS", "SHARE"}, backends)
	table.End()
	r.part(table, "REASON", []string{"PACKETS", "BYTES"}, reasons)
}

// largestFirst are the keys of counters, those with the most first, equal ones in their order.
func largestFirst[V any](counters map[string]V, count func(V) uint64) []string {
	keys := slices.Sorted(maps.Keys(counters))
	slices.SortStableFunc(keys, func(a, b string) int { return cmp.Compare(count(counters[b]), count(counters[a])) })
	return keys
}

// writeSpread writes the packets of each queue, and a hint where their spread can be improved.
func writeSpread(table io.Writer, q, before *v1.NFQueueStatus, per rates) {
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
