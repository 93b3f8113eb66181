package nfqueue

import (
	"slices"
	"time"

	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/packet"
)

// An ICMP error comes from a router, so the kernel's hash brings it to another queue than the flow it quotes, whose entry
// another worker has. Mostly the Maglev table says the same; after a change it may not. So a worker that does not know
// the flow lets the error wait in the kernel's queue and asks the others; the first one that knows it decides.
const (
	// askPatience is how long errors wait.
	askPatience = 20 * time.Millisecond
	// maxAsked is how many wait at one time, and how many are asked about in askPatience: questions cost system calls, and
	// anybody can send errors. More are decided without asking.
	maxAsked = 64
)

// asked are the errors of one worker that wait.
type asked struct {
	peers     []*worker // the other queues'
	questions [maxAsked]question
	count     int
	until     time.Duration // when the first of them is given up, or earlier
	serial    uint64
	since     time.Duration // of the present spell of askPatience
	recent    int           // questions in it
}

// question is one ICMP error; free if waiting is 0.
type question struct {
	packet  Packet // Data is its own
	key     flow.Key
	serial  uint64
	waiting int // answers to come
}

// ask asks the other workers about the flow that w.parsed quotes. It is false where there is nobody to ask or no need to.
func (w *worker) ask(p *Packet) bool {
	a := &w.asked
	if w.at-a.since >= askPatience {
		a.since, a.recent = w.at, 0
	}
	if len(a.peers) == 0 || w.parsed.QuoteLater || a.count == maxAsked || a.recent == maxAsked ||
		w.engine.Owner(w.parsed.Key, w.at) != nil {
		return false
	}
	slot := slices.IndexFunc(a.questions[:], func(q question) bool { return q.waiting == 0 })
	q := &a.questions[slot]
	data := append(q.packet.Data[:0], p.Data...)
	a.serial++
	q.packet, q.key, q.serial = *p, w.parsed.Key, a.serial
	q.packet.Data = data
	key, serial := q.key, q.serial
	for _, peer := range a.peers {
		// Never wait for a worker, who may be asking us.
		select {
		case peer.inbox <- func(peer *worker) { peer.tell(w, slot, serial, key) }:
			peer.queue.Wake()
			q.waiting++
		default:
		}
	}
	if q.waiting == 0 {
		return false
	}
	if a.count == 0 {
		a.until = w.at + askPatience
	}
	a.count++
	a.recent++
	w.counters.Asked++
	return true
}

// tell answers another worker's question.
func (w *worker) tell(asker *worker, slot int, serial uint64, key flow.Key) {
	owner := w.engine.Owner(key, w.now())
	select {
	case asker.inbox <- func(asker *worker) { asker.hear(slot, serial, owner) }:
		asker.queue.Wake()
	default: // it decides alone, in time
	}
}

// hear takes an answer; owner is nil where the flow is unknown.
func (w *worker) hear(slot int, serial uint64, owner *lb.Backend) {
	q := &w.asked.questions[slot]
	if q.waiting == 0 || q.serial != serial {
		return
	}
	if q.waiting--; owner == nil && q.waiting > 0 {
		return
	}
	w.at = w.now()
	w.settle(q, owner)
}

// settle decides a waiting error, as if owner had the flow.
func (w *worker) settle(q *question, owner *lb.Backend) {
	q.waiting = 0
	w.asked.count--
	if packet.Parse(q.packet.Data, &w.parsed) != nil {
		return // it was parsed before
	}
	w.parsed.Length = q.packet.Length
	w.conclude(&q.packet, w.engine.ErrorAbout(&w.parsed, owner, w.at))
}

// giveUpAsking decides every error that waits.
func (w *worker) giveUpAsking() {
	for i := range w.asked.questions {
		if q := &w.asked.questions[i]; q.waiting > 0 {
			w.settle(q, nil)
		}
	}
}
