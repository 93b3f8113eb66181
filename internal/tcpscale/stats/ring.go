package stats

import "time"

const (
	fineStep, finePoints     = time.Second, 3600
	coarseStep, coarsePoints = 10 * time.Second, 8640
)

// point is one step of a history; absent: nothing was received.
type point struct {
	clients, servers                  float32 // established as reported by clients, by servers
	opened, lost, reconnected, failed float32 // per second
	present                           bool
}

func (p *point) add(o point) {
	p.clients += o.clients
	p.servers += o.servers
	p.opened += o.opened
	p.lost += o.lost
	p.reconnected += o.reconnected
	p.failed += o.failed
	p.present = true
}

func (p *point) divide(n float32) {
	p.clients /= n
	p.servers /= n
	p.opened /= n
	p.lost /= n
	p.reconnected /= n
	p.failed /= n
}

// ring keeps the newest points, at most most of them, one for each step since the service began.
type ring struct {
	maximum int
	points  []point // grows up to maximum, then wraps
	start   int     // index of the oldest
	first   int64   // the step of the oldest
}

// next is the step after the newest.
func (r *ring) next() int64 { return r.first + int64(len(r.points)) }

// at is the point of a step that is held.
func (r *ring) at(step int64) *point {
	return &r.points[(r.start+int(step-r.first))%len(r.points)]
}

// put sets a step's point. Steps that were left out become absent; one before the newest is ignored.
func (r *ring) put(step int64, p point) {
	switch {
	case len(r.points) == 0 || step-r.next() >= int64(r.maximum): // nothing held, or all of it too old
		r.points, r.start, r.first = r.points[:0], 0, step
	case step == r.next()-1: // a second tick within one step
		*r.at(step) = p
		return
	case step < r.next():
		return
	}
	for r.next() < step {
		r.push(point{})
	}
	r.push(p)
}

func (r *ring) push(p point) {
	if len(r.points) < r.maximum {
		r.points = append(r.points, p)
		return
	}
	r.points[r.start] = p
	r.start = (r.start + 1) % len(r.points)
	r.first++
}

// history is a fine and a coarse ring over the same time.
type history struct {
	fine, coarse ring
	sum          point // of the coarse step under way
	count        float32
	step         int64 // the coarse step under way
}

func newHistory() *history {
	return &history{fine: ring{maximum: finePoints}, coarse: ring{maximum: coarsePoints}, step: -1}
}

// put adds the point of a moment, counted from the service's start. The coarse ring holds means of what was present.
func (h *history) put(since time.Duration, p point) {
	if n := int64(since / fineStep); len(h.fine.points) == 0 || n >= h.fine.next() {
		h.fine.put(n, p)
	}
	if step := int64(since / coarseStep); step != h.step {
		h.step, h.sum, h.count = step, point{}, 0
	}
	if p.present {
		h.sum.add(p)
		h.count++
	}
	mean := h.sum
	if h.count > 0 {
		mean.divide(h.count)
	}
	h.coarse.put(h.step, mean)
}
