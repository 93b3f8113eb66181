package nfqueue

import (
	"github.com/weir-lb/weir/internal/metrics"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/steer"
)

// QueueStats is one queue with its worker at one moment.
type QueueStats struct {
	Number uint16 `json:"queue" label:"queue"`
	WorkerCounters
	KernelQueue
	Held           int    `json:"held" metric:"weir_queue_held" help:"Early fragments whose verdict waits."`
	HeldReleased   uint64 `json:"held_released" metric:"weir_queue_held_released_total" help:"Early fragments that went on when the first one came."`
	HeldExpired    uint64 `json:"held_expired" metric:"weir_queue_held_expired_total" help:"Early fragments dropped, because the first one never came."`
	HeldAbandoned  uint64 `json:"held_abandoned" metric:"weir_queue_held_abandoned_total" help:"Early fragments dropped with the rest of their datagram, or at the end of weir."`
	HeldEvicted    uint64 `json:"held_evicted" metric:"weir_queue_held_evicted_total" help:"Early fragments dropped to make room for others."`
	RefusedAnswers uint64 `json:"refused_verdicts" metric:"weir_queue_refused_verdicts_total" help:"Verdicts that the kernel refused, because the packet was gone."`
	OddMessages    uint64 `json:"odd_messages" metric:"weir_queue_odd_messages_total" help:"Messages of the kernel that are no packet and no known error."`
	CutMessages    uint64 `json:"cut_messages" metric:"weir_queue_cut_messages_total" help:"Messages of the kernel that were longer than the receive buffer."`
	Sleeps         uint64 `json:"sleeps" metric:"weir_queue_sleeps_total" help:"How often the worker waited for packets."`
	AddressPairs   int    `json:"address_pairs" metric:"weir_queue_address_pairs" help:"Estimate of the pairs of addresses seen in the last seconds; the kernel balances queues by pair."`
	Flows          int    `json:"flows"`
	MaxFlows       int    `json:"max_flows"`
}

// Stats is the state of a Datapath at one moment.
type Stats struct {
	Generation    uint64       `json:"generation"`
	Length        int          `json:"queue_length" metric:"weir_queue_length" help:"Maximum number of packets in each queue."`
	CopyRange     int          `json:"copy_range"`     // bytes
	Batch         int          `json:"batch"`          // packets
	ReceiveBuffer int          `json:"receive_buffer"` // bytes in force, of each queue
	FailOpen      bool         `json:"fail_open"`
	Queues        []QueueStats `json:"queues" metric:""`
	// Reasons counts packets, of all services and of none.
	Reasons  lb.ReasonCounts                     `json:"-"`
	Services map[string]lb.ReasonCounts          `json:"-"`
	Backends map[lb.Target]steer.BackendCounters `json:"-"`
	Rules    []RuleStats                         `json:"-" metric:""`                  // in the order of their precedence
	Tables   steer.TableCounters                 `json:"-" metric:",datapath=nfqueue"` // of all workers
	Kept     Kept                                `json:"-" metric:""`
	pause    metrics.Histogram                   // of the workers, while flows are listed
}

// RuleStats is one flow rule in force.
type RuleStats struct {
	Service string `label:"service"`
	Name    string `label:"rule"`
	Packets uint64 `metric:"weir_flow_rule_packets_total" help:"Packets that a flow rule itself decided; not those decided by a flow or fragment entry."`
}

// Stats collects the counters of every worker.
func (d *Datapath) Stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := &d.config
	s := Stats{
		Length: c.Length, CopyRange: c.CopyRange, Batch: c.Batch, FailOpen: c.FailOpen, Queues: []QueueStats{},
		Services: map[string]lb.ReasonCounts{}, Backends: map[lb.Target]steer.BackendCounters{},
	}
	if snapshot := d.snapshot; snapshot != nil {
		s.Generation = snapshot.Generation
	}
	if len(d.kernel) > 0 {
		s.ReceiveBuffer = d.kernel[0].buffer
	}
	var rows map[uint16]KernelQueue
	if !d.closed {
		rows, _ = d.readTable() // without rows the kernel's columns are zero
	}
	s.pause, s.Kept = d.pause, d.keptLocked()
	d.group.Do(func(w *worker) { s.Queues = append(s.Queues, w.stats(&s)) })
	d.sumRowsLocked(&s)
	for i := range s.Queues {
		q := &s.Queues[i]
		q.KernelQueue = rows[q.Number]
		if len(d.kernel) == 0 {
			continue
		}
		k := &d.kernel[i].queueCounters
		q.RefusedAnswers, q.OddMessages, q.CutMessages, q.Sleeps = k.refused.Load(), k.odd.Load(), k.truncated.Load(), k.sleeps.Load()
	}
	return s
}

// stats returns the state of this worker and adds its part to the sums in s.
func (w *worker) stats(s *Stats) QueueStats {
	tables := w.engine.Tables()
	q := QueueStats{
		Number: w.number, WorkerCounters: w.counters,
		Held: w.held.count, HeldReleased: w.held.released, HeldExpired: w.held.expired, HeldAbandoned: w.held.abandoned, HeldEvicted: w.held.evicted,
		AddressPairs: w.pairs.estimate(w.now()), Flows: tables.Flows, MaxFlows: tables.MaxFlows,
	}
	addReasons(&s.Reasons, w.engine.Reasons())
	addTables(&s.Tables, &tables)
	return q
}

// rowsPerStep is how many services, backends and flow rules a worker counts between two batches for Stats.
const rowsPerStep = 512

// rows are the counters that one step copies from a worker.
type rows struct {
	services []serviceRow
	backends []backendRow
	rules    []ruleRow
}

type serviceRow struct {
	name    string
	reasons lb.ReasonCounts
}

type backendRow struct {
	backend *lb.Backend
	counted steer.BackendCounters
}

type ruleRow struct {
	rule *lb.FlowRule
	n    uint64
}

// sumRowsLocked sums the rows, of which there may be thousands. No snapshot is applied meanwhile, so the number of rows does
// not change.
func (d *Datapath) sumRowsLocked(s *Stats) {
	r := rows{
		services: make([]serviceRow, 0, rowsPerStep), backends: make([]backendRow, 0, rowsPerStep), rules: make([]ruleRow, 0, rowsPerStep),
	}
	for i := range d.workers {
		rule := 0
		for from, last := 0, false; !last; last = from == 0 {
			r.services, r.backends, r.rules = r.services[:0], r.backends[:0], r.rules[:0]
			d.group.One(i, func(w *worker) { from = w.countRows(&r, from) })
			rule = s.add(&r, rule)
		}
	}
}

// countRows copies up to rowsPerStep rows, starting with number from. It returns the number of the next row, or 0 if there
// is none.
func (w *worker) countRows(r *rows, from int) (next int) {
	e := w.engine
	services, backends, rules := e.Snapshot().Services, e.NumBackends(), len(e.Snapshot().Rules)
	total := len(services) + backends + rules
	end := min(from+rowsPerStep, total)
	for n := from; n < end; n++ {
		switch i := n - len(services); {
		case i < 0:
			r.services = append(r.services, serviceRow{services[n].Name, e.ServiceReasons(n)})
		case i < backends:
			b, counted := e.Backend(i)
			r.backends = append(r.backends, backendRow{b, counted})
		default:
			rule, hits := e.Rule(i - backends)
			r.rules = append(r.rules, ruleRow{rule, hits})
		}
	}
	if end == total {
		return 0
	}
	return end
}

// add adds rows to the sums. rule is the number of the first flow rule in rows; add returns the number of the next one.
func (s *Stats) add(r *rows, rule int) int {
	for i := range r.services {
		sum := s.Services[r.services[i].name]
		addReasons(&sum, r.services[i].reasons)
		s.Services[r.services[i].name] = sum
	}
	for i := range r.backends {
		b, n := r.backends[i].backend, &r.backends[i].counted
		target := lb.Target{Service: b.Service.Name, Backend: b.Name}
		sum := s.Backends[target]
		sum.Packets += n.Packets
		sum.Bytes += n.Bytes
		sum.NewFlows += n.NewFlows
		s.Backends[target] = sum
	}
	for _, row := range r.rules {
		if rule == len(s.Rules) {
			s.Rules = append(s.Rules, RuleStats{Service: row.rule.Service.Name, Name: row.rule.Name})
		}
		s.Rules[rule].Packets += row.n
		rule++
	}
	return rule
}

func addTables(sum, part *steer.TableCounters) {
	for _, n := range []struct{ to, by *int }{
		{&sum.Flows, &part.Flows},
		{&sum.MaxFlows, &part.MaxFlows},
		{&sum.ProvenFlows, &part.ProvenFlows},
		{&sum.Fragments.Entries, &part.Fragments.Entries},
		{&sum.Fragments.Held, &part.Fragments.Held},
	} {
		*n.to += *n.by
	}
	f, g := &sum.Fragments, &part.Fragments
	for _, n := range []struct{ to, by *uint64 }{
		{&sum.FlowsRefused, &part.FlowsRefused},
		{&sum.FlowsExpired, &part.FlowsExpired},
		{&sum.FlowsEvicted, &part.FlowsEvicted},
		{&sum.FlowsDisplaced, &part.FlowsDisplaced},
		{&f.Inserts, &g.Inserts},
		{&f.Lookups, &g.Lookups},
		{&f.Waited, &g.Waited},
		{&f.Refused, &g.Refused},
		{&f.Poisoned, &g.Poisoned},
		{&f.Collisions, &g.Collisions},
		{&f.Expired, &g.Expired},
		{&f.Unanswered, &g.Unanswered},
		{&f.HeldEvicted, &g.HeldEvicted},
		{&f.EvictedLost, &g.EvictedLost},
		{&f.EvictedWaiting, &g.EvictedWaiting},
		{&f.EvictedKnown, &g.EvictedKnown},
		{&f.EvictedYoung, &g.EvictedYoung},
		{&sum.Tier.Sent, &part.Tier.Sent},
		{&sum.Tier.Returned, &part.Tier.Returned},
		{&sum.Tier.Unguarded, &part.Tier.Unguarded},
	} {
		*n.to += *n.by
	}
}

func addReasons(sum *lb.ReasonCounts, part lb.ReasonCounts) {
	for i, n := range part {
		sum[i] += n
	}
}

// troubles are the totals about which an operator must be warned when they grow.
type troubles struct {
	queueDrops, userDrops, missing, short, refused, heldExpired, flowsRefused, flowsEvicted, fragmentsRefused, poisoned, heldEvicted, returned uint64

	flows, maxFlows int
}

func (d *Datapath) troubles() troubles {
	s := d.Stats()
	var t troubles
	for i := range s.Queues {
		q := &s.Queues[i]
		t.queueDrops += uint64(q.QueueDrops)
		t.userDrops += uint64(q.UserDrops)
		t.missing += q.MissingIDs
		t.short += q.Short
		t.refused += q.RefusedAnswers
		t.heldExpired += q.HeldExpired
		t.heldEvicted += q.HeldEvicted
	}
	t.flows, t.maxFlows, t.flowsEvicted = s.Tables.Flows, s.Tables.MaxFlows, s.Tables.FlowsEvicted
	t.returned = s.Tables.Tier.Returned
	t.flowsRefused, t.fragmentsRefused, t.poisoned = s.Tables.FlowsRefused, s.Tables.Fragments.Refused, s.Tables.Fragments.Poisoned
	return t
}

// complain logs the troubles that have grown since before, and returns the current totals.
func (d *Datapath) complain(before troubles) troubles {
	now := d.troubles()
	for _, trouble := range []struct {
		text        string
		before, now uint64
		remedy      string
	}{
		{"packets found their queue full", before.queueDrops, now.queueDrops, "more queues (--queue, and --queue-balance in the rule), or a greater --queue-length"},
		{"packets found the socket's buffer full", before.userDrops, now.userDrops, "a greater --receive-buffer, or a smaller --copy-range"},
		{"packet numbers are missing", before.missing, now.missing, "as above: the kernel could not deliver them"},
		{"headers reach beyond the copy range", before.short, now.short, "a greater --copy-range"},
		{"the kernel refused verdicts", before.refused, now.refused, "none if an interface went down; else another process answers for this queue"},
		{"early fragments whose first one never came", before.heldExpired, now.heldExpired, "see whether all fragments pass this balancer, and through one queue: no --queue-cpu-fanout"},
		{"fragment table full", before.fragmentsRefused, now.fragmentsRefused, "a greater limits.fragments, or a shorter limits.fragment_ttl"},
		{"early fragments were dropped so that others find room", before.heldEvicted, now.heldEvicted, "a greater limits.held_fragments; see whether a source floods"},
		{"fragments that could not be held", before.poisoned, now.poisoned, "a greater limits.held_fragments or limits.held_per_datagram"},
		{"fragments came back from another balancer of the tier", before.returned, now.returned, "the same tier section, hash and hash_key on each balancer"},
	} {
		if trouble.now > trouble.before {
			d.config.Log.Warn(trouble.text, "event", "queue_trouble", "count", trouble.now-trouble.before, "total", trouble.now, "remedy", trouble.remedy)
		}
	}
	if d.full.Becomes(now.flowsRefused+now.flowsEvicted, d.config.Now()) {
		d.config.Log.Warn("flow table full; it counts as full until no flow had to make room for a minute", "flows", now.flows, "of", now.maxFlows,
			"evicted", now.flowsEvicted, "refused", now.flowsRefused, "remedy", "a greater limits.flows; see whether a source floods (weir lb flows)")
	}
	return now
}
