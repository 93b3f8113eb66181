package maps

import "time"

// Quarantine hands out numbers from 1. A number that was given back rests for a second before it is handed out again, because
// a program that is still running may read what the number stood for. It is not safe for concurrent use.
type Quarantine struct {
	fresh, end uint32
	resting    []rest // oldest first
}

type rest struct {
	number uint32
	since  time.Time
}

const rested = time.Second

// NewQuarantine returns one with the numbers from 1 to size.
func NewQuarantine(size int) *Quarantine { return &Quarantine{fresh: 1, end: uint32(size) + 1} }

// Take hands out a number; false if none is free.
func (q *Quarantine) Take(now time.Time) (uint32, bool) {
	if len(q.resting) > 0 && now.Sub(q.resting[0].since) >= rested {
		n := q.resting[0].number
		q.resting = q.resting[1:]
		return n, true
	}
	if q.fresh == q.end {
		return 0, false
	}
	q.fresh++
	return q.fresh - 1, true
}

// Give takes a number back; with the zero time, one that was never used.
func (q *Quarantine) Give(n uint32, now time.Time) { q.resting = append(q.resting, rest{n, now}) }
