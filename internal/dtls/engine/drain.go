package engine

import "time"

// A drain ends the sessions of an engine so that no client loses a request, and not all clients make a new session elsewhere at once: each session
// has its time within the first three quarters of the drain. From then on it ends with close_notify behind the answer to its next request, or when it has been
// silent for a while. New handshakes are not begun meanwhile.

const (
	drainSilence = 2 * time.Second        // of a session that has no request under way
	drainScan    = 100 * time.Millisecond // between two looks for such sessions
)

// Draining lets a Handler keep a session from ending in a drain for now. A Handler that has this method is asked; of others, sessions without a
// request being served have nothing under way.
type Draining interface {
	// Busy reports whether an answer to p, or a part of a body, is to come later.
	Busy(p *Peer) bool
}

// drain is the drain of a worker. Times are its clock's.
type drain struct {
	begun, within time.Duration // within 0: there is none
	scanAt        time.Duration
}

// Drain begins to end the sessions: all of them within a time, but for those whose clients have requests under way until then. Stats has how many
// are left. Only the first call counts. Safe from any goroutine.
func (e *Engine) Drain(within time.Duration) {
	for _, w := range e.workers {
		w.drainWithin.CompareAndSwap(0, int64(max(within, 1)))
		w.Post(func() {}) // wakes it, if it does not run anyway
	}
}

// drainTick begins a drain, and looks for silent sessions whose time has come.
func (w *Worker) drainTick() {
	d := &w.drain
	if d.within == 0 {
		if d.within = time.Duration(w.drainWithin.Load()); d.within == 0 {
			return
		}
		d.begun, d.scanAt = w.now, w.now
	}
	if w.server == nil || d.scanAt > w.now {
		return
	}
	d.scanAt = w.now + drainScan
	for p := w.peers.oldest; p != nil; {
		next := p.newer
		if w.now-p.last >= drainSilence {
			w.drainPeer(p)
		}
		p = next
	}
}

// drainNext returns when drainTick is due.
func (w *Worker) drainNext() time.Duration {
	if w.drain.within == 0 || w.server == nil || w.peers.count == 0 {
		return Never
	}
	return w.drain.scanAt
}

// drainPeer ends a session that has no request under way, if a drain is at its time.
func (w *Worker) drainPeer(p *Peer) {
	d := &w.drain
	if d.within == 0 || p.association == nil || p.closed || w.now < d.begun+d.timeOf(p.slot) || w.draining != nil && w.draining.Busy(p) {
		return
	}
	w.stats.Drained++
	w.Close(p)
}

// timeOf is the time of a session since the begin. Slots follow each other, so their products with the golden ratio are spread evenly.
func (d *drain) timeOf(slot int32) time.Duration {
	const golden = 2654435769 // 2^32 divided by the golden ratio
	share := float64(uint32(slot)*golden) / (1 << 32)
	return time.Duration(share * float64(d.within) * 3 / 4)
}
