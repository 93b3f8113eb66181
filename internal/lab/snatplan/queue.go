package snatplan

import "math/bits"

// event is something that happens at a moment; 16 bytes, so that ten million of them fit.
type event struct {
	at      uint64 // ns of virtual time
	replica uint32 // or node
	dst     uint16
	what    what
	arg     uint8 // try, way to end, or hold-down group
}

// what happens at an event.
type what uint8

const (
	arrive  what = iota // open: a connection comes, and the next is scheduled
	burst               // open: many come
	slot                // keep: a replica opens its next connection
	connect             // one connection's first SYN
	retry               // a SYN again
	ends                // the lifetime is over
	release             // a hold-down group's ports are free
	grow                // a node's allocation doubles
	start               // original: a process starts
	step                // original: its next connect
	beat                // original: its heartbeats
	tick                // original: the server's loop
)

// queue is a radix heap: a priority queue for keys that never go back, O(1) amortised, without comparisons of payloads
// and without allocations once its buckets have grown. Events of one moment come out in an order that hangs only on
// what was pushed.
type queue struct {
	last    uint64
	buckets [65][]event
	size    int
}

func (q *queue) push(e event) {
	i := bits.Len64(e.at ^ q.last)
	q.buckets[i] = append(q.buckets[i], e)
	q.size++
}

// pop returns the earliest event; the queue is not empty.
func (q *queue) pop() event {
	if len(q.buckets[0]) == 0 {
		q.refill()
	}
	n := len(q.buckets[0]) - 1
	e := q.buckets[0][n]
	q.buckets[0] = q.buckets[0][:n]
	q.size--
	return e
}

// refill spreads the lowest bucket that has something over those below it.
func (q *queue) refill() {
	i := 1
	for len(q.buckets[i]) == 0 {
		i++
	}
	least := q.buckets[i][0].at
	for _, e := range q.buckets[i] {
		least = min(least, e.at)
	}
	q.last = least
	for _, e := range q.buckets[i] {
		to := bits.Len64(e.at ^ least)
		q.buckets[to] = append(q.buckets[to], e)
	}
	q.buckets[i] = q.buckets[i][:0]
}
