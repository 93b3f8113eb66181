package nfqueue

import (
	"encoding/binary"
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/packet"
	"github.com/weir-lb/weir/internal/steering/steer"
	"github.com/weir-lb/weir/internal/workers"
)

// WorkerCounters are running totals of one worker.
type WorkerCounters struct {
	Packets    uint64 `json:"packets" metric:"weir_queue_packets_total" help:"Packets decided, by queue."`
	Bytes      uint64 `json:"bytes" metric:"weir_queue_bytes_total" help:"Bytes of the packets decided, from the IP header on."`
	Large      uint64 `json:"large" metric:"weir_queue_large_total" help:"Large segments (GSO) among the packets decided."`
	Marked     uint64 `json:"marked" metric:"weir_queue_marked_total" help:"Packets that came with a fwmark; with a fast path they should not be queued."`
	Batches    uint64 `json:"batches" metric:"weir_queue_batches_total" help:"Reads that brought packets."`
	MissingIDs uint64 `json:"missing_ids" metric:"weir_queue_missing_ids_total" help:"Gaps in the numbers of packets: lost between queue and weir."`
	Short      uint64 `json:"short" metric:"weir_queue_short_total" help:"Packets with headers beyond the copy range, dropped as malformed."`
	Queries    uint64 `json:"asked" metric:"weir_queue_icmp_queries_total" help:"ICMP errors about flows that another queue may know."`
}

// worker serves one queue in a thread of its own. It shares nothing with other workers except through its pointers and
// channels.
type worker struct {
	queue    queue
	number   uint16
	now      func() time.Duration
	engine   *steer.Engine
	held     *held
	pairs    pairs
	queries  queries
	tracing  *atomic.Pointer[Trace] // of the Datapath
	trace    *Trace                 // the trace that was open when the batch began; nil: none
	counters WorkerCounters
	lastID   uint32
	started  bool // lastID is valid

	packets    []Packet
	verdicts   []Verdict
	parsed     packet.Packet
	at         time.Duration // of the batch
	nextExpiry time.Duration
	inbox      *workers.Inbox[*worker]

	// release and discard are methods as values, made once: a closure per fragment would be an allocation.
	release, discard func(p *packet.Packet, id uint32)
}

// newWorker returns a worker for a first snapshot, whose limits determine the sizes of its tables.
func newWorker(q queue, number uint16, c *Config, s *lb.Snapshot, tracing *atomic.Pointer[Trace], journal steer.Journal) *worker {
	w := &worker{
		queue: q, number: number, now: c.Now, tracing: tracing,
		held:     newHeld(s.Limits.HeldFragments, s.Limits.FragmentTTL),
		packets:  make([]Packet, c.Batch),
		verdicts: make([]Verdict, 0, c.Batch+s.Limits.HeldFragments),
	}
	w.engine = steer.New(s, steer.Options{
		KernelAnswers: true, Workers: c.Count, MaxFlows: maxFlows(c, s),
		DropHeld: w.evictHeld, Journal: journal,
	})
	w.release, w.discard = w.decideHeld, w.dropHeld
	return w
}

// maxFlows is a worker's part of limits.flows.
func maxFlows(c *Config, s *lb.Snapshot) int { return max((s.Limits.Flows+c.Count-1)/c.Count, 1) }

// run serves the queue until it receives a nil request. Then it answers the packets that wait, and returns.
func (w *worker) run() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for {
		n, err := w.queue.Receive(w.packets, w.pollTimeout())
		if err != nil {
			return err
		}
		if err := w.iterate(n); err != nil {
			return err
		}
		if !w.inbox.Waiting() {
			continue
		}
		if !w.inbox.Serve(w) {
			return w.finish()
		}
		if err := w.flush(); err != nil {
			return err
		}
	}
}

// pollTimeout is how long the worker may sleep.
func (w *worker) pollTimeout() time.Duration {
	until, waiting := w.held.next()
	if w.queries.count > 0 && (!waiting || w.queries.until < until) {
		until, waiting = w.queries.until, true
	}
	if !waiting {
		return idleTimeout
	}
	return min(max(until-w.now(), time.Millisecond), idleTimeout)
}

// iterate handles the first n packets, and whatever is due.
func (w *worker) iterate(n int) error {
	w.at, w.trace = w.now(), w.tracing.Load()
	if w.held.count > 0 {
		w.held.expired += uint64(w.held.expire(w.at, w.discard))
	}
	if w.queries.count > 0 && w.at >= w.queries.until {
		w.expireQueries()
	}
	if n > 0 {
		w.counters.Batches++
	}
	for i := range w.packets[:n] {
		w.packet(&w.packets[i])
	}
	if w.at >= w.nextExpiry {
		w.engine.Expire(w.at, expireStep)
		w.nextExpiry = w.at + expireEvery
	}
	return w.flush()
}

// How often expired flows are removed from the table, and how many entries one step looks at. The table also removes expired
// entries in other operations.
const (
	expireEvery = 100 * time.Millisecond
	expireStep  = 4096
)

// packet decides one packet.
func (w *worker) packet(p *Packet) {
	if w.started {
		w.counters.MissingIDs += uint64(p.ID - w.lastID - 1)
	}
	w.lastID, w.started = p.ID, true
	w.counters.Packets++
	w.counters.Bytes += uint64(p.Length)
	if p.Large {
		w.counters.Large++
		fitLength(p)
	}
	if p.Mark != 0 {
		w.counters.Marked++
	}
	if p.NotIP {
		w.parsed = packet.Packet{}
		w.conclude(p, w.engine.NotIP())
		return
	}
	if err := packet.Parse(p.Data, &w.parsed); err != nil {
		if p.Length > len(p.Data) && (errors.Is(err, packet.ErrTruncated) || errors.Is(err, packet.ErrQuote)) {
			w.counters.Short++
		}
		w.parsed = packet.Packet{}
		w.conclude(p, w.engine.Malformed())
		return
	}
	w.parsed.Length = p.Length
	w.pairs.add(&w.parsed.Key)
	if w.parsed.Kind == packet.KindICMPError && w.queryWorkers(p) {
		return
	}
	w.conclude(p, w.engine.Packet(&w.parsed, w.at))
}

// conclude carries out the decision about the packet in w.parsed. It also decides the held fragments of its datagram.
func (w *worker) conclude(p *Packet, d steer.Decision) {
	if w.trace != nil {
		w.show(p, &w.parsed.Key, &d)
	}
	if d.Action != lb.Hold {
		w.verdicts = append(w.verdicts, verdictOf(p.ID, d))
	} else if w.held.on = p.Interface; !w.held.add(&w.parsed, p.ID, w.at) {
		w.verdicts = append(w.verdicts, Verdict{ID: p.ID, Drop: true})
	}
	switch {
	case w.held.count == 0:
	case w.parsed.First:
		w.held.released += uint64(w.held.take(w.parsed.Fragment, w.release))
	case w.parsed.Later && d.Action == lb.Drop:
		// The datagram cannot become complete any more.
		w.held.abandoned += uint64(w.held.take(w.parsed.Fragment, w.discard))
	}
}

// verdictOf converts a decision, which is not to hold, into a verdict for the kernel.
func verdictOf(id uint32, d steer.Decision) Verdict {
	if d.Action != lb.Forward && d.Action != lb.Pass {
		return Verdict{ID: id, Drop: true}
	}
	return Verdict{ID: id, Mark: d.Mark, Marked: d.Mark != 0}
}

// decideHeld answers a held fragment now that the first one of its datagram is known.
func (w *worker) decideHeld(p *packet.Packet, id uint32) {
	d := w.engine.Packet(p, w.at)
	if w.trace != nil {
		w.show(&Packet{ID: id, Data: p.Data, Length: p.Length, Interface: w.held.on}, &p.Key, &d)
	}
	w.verdicts = append(w.verdicts, verdictOf(id, d))
}

func (w *worker) dropHeld(_ *packet.Packet, id uint32) {
	w.verdicts = append(w.verdicts, Verdict{ID: id, Drop: true})
}

// evictHeld drops the held fragments of a datagram that is evicted for others.
func (w *worker) evictHeld(key flow.FragmentKey) {
	w.held.evicted += uint64(w.held.take(key, w.discard))
}

func (w *worker) flush() error {
	if len(w.verdicts) == 0 {
		return nil
	}
	err := w.queue.Answer(w.verdicts)
	w.verdicts = w.verdicts[:0]
	return err
}

// fitLength adapts the headers of a large segment beyond 65,535 bytes. Such a segment has no length in its IP header, so
// fitLength writes a length that Parse takes for that of a truncated packet. It changes only our copy.
func fitLength(p *Packet) {
	switch b := p.Data; {
	case p.Length <= 65535 || len(b) < 6:
	case b[0]>>4 == 4 && b[2]|b[3] == 0:
		binary.BigEndian.PutUint16(b[2:], 65535)
	case b[0]>>4 == 6 && b[4]|b[5] == 0:
		binary.BigEndian.PutUint16(b[4:], 65535)
	}
}

// finish answers the packets that the socket holds, up to a bound, and drops held fragments.
func (w *worker) finish() error {
	for range finishBatches {
		n, err := w.queue.Receive(w.packets, 0)
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		if err := w.iterate(n); err != nil {
			return err
		}
	}
	w.at = w.now()
	w.expireQueries()
	w.held.abandoned += uint64(w.held.expire(lb.Never, w.discard))
	return w.flush()
}

// finishBatches bounds the work of finish for a queue that never becomes empty.
const finishBatches = 64
