package nfqueue

import (
	"slices"
	"time"

	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/packet"
)

// An ICMP error comes from a router, so the kernel's hash usually puts it into another queue than the flow that it quotes,
// and the entry of that flow belongs to another worker. The Maglev table mostly gives the same backend; after a change it
// may not. Therefore a worker that does not know the flow leaves the error in the kernel's queue and queries the other
// workers. The first worker that knows the flow decides.
const (
	// queryTimeout is how long an error waits for answers.
	queryTimeout = 20 * time.Millisecond
	// maxQueries bounds the errors that wait at one time, and the queries that start within one queryTimeout. A query costs
	// system calls, and anybody can send ICMP errors. Errors beyond the bound are decided without a query.
	maxQueries = 64
	// maxRequests bounds the queries and answers that wait for one worker.
	maxRequests = 16
)

// queries holds the ICMP errors of one worker that wait for answers.
type queries struct {
	peers  []*worker // the workers of the other queues
	slots  [maxQueries]query
	count  int
	until  time.Duration // no later than the time at which the oldest query expires
	serial uint64
	since  time.Duration // start of the current period of queryTimeout
	recent int           // queries that started in that period
}

// query is one ICMP error that waits; the slot is free if waiting is 0.
type query struct {
	packet  Packet // its Data is a copy
	key     flow.Key
	serial  uint64
	waiting int // answers that are still missing
}

// queryWorkers queries the other workers about the flow that w.parsed quotes. It returns false if there is no other worker
// or no need for a query.
func (w *worker) queryWorkers(p *Packet) bool {
	a := &w.queries
	if w.at-a.since >= queryTimeout {
		a.since, a.recent = w.at, 0
	}
	if len(a.peers) == 0 || w.parsed.QuoteLater || a.count == maxQueries || a.recent == maxQueries ||
		w.engine.Owner(w.parsed.Key, w.at) != nil {
		return false
	}
	slot := slices.IndexFunc(a.slots[:], func(q query) bool { return q.waiting == 0 })
	q := &a.slots[slot]
	data := append(q.packet.Data[:0], p.Data...)
	a.serial++
	q.packet, q.key, q.serial = *p, w.parsed.Key, a.serial
	q.packet.Data = data
	key, serial := q.key, q.serial
	for _, peer := range a.peers {
		// Never wait for a worker: it may be querying this one.
		if peer.inbox.Put(func(peer *worker) { peer.answerQuery(w, slot, serial, key) }) {
			q.waiting++
		}
	}
	if q.waiting == 0 {
		return false
	}
	if a.count == 0 {
		a.until = w.at + queryTimeout
	}
	a.count++
	a.recent++
	w.counters.Queries++
	return true
}

// answerQuery answers the query of another worker.
func (w *worker) answerQuery(from *worker, slot int, serial uint64, key flow.Key) {
	owner := w.engine.Owner(key, w.now())
	// Without room the other worker decides by itself when the query expires.
	from.inbox.Put(func(from *worker) { from.receiveAnswer(slot, serial, owner) })
}

// receiveAnswer takes the answer of another worker; owner is nil if that worker does not know the flow.
func (w *worker) receiveAnswer(slot int, serial uint64, owner *lb.Backend) {
	q := &w.queries.slots[slot]
	if q.waiting == 0 || q.serial != serial {
		return
	}
	if q.waiting--; owner == nil && q.waiting > 0 {
		return
	}
	w.at = w.now()
	w.decideQuery(q, owner)
}

// decideQuery decides a waiting error as if owner had the flow.
func (w *worker) decideQuery(q *query, owner *lb.Backend) {
	q.waiting = 0
	w.queries.count--
	if packet.Parse(q.packet.Data, &w.parsed) != nil {
		return // it was parsed before
	}
	w.parsed.Length = q.packet.Length
	w.conclude(&q.packet, w.engine.ErrorAbout(&w.parsed, owner, w.at))
}

// expireQueries decides every error that still waits.
func (w *worker) expireQueries() {
	for i := range w.queries.slots {
		if q := &w.queries.slots[i]; q.waiting > 0 {
			w.decideQuery(q, nil)
		}
	}
}
