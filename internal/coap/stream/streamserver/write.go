package streamserver

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/coap/stream"
)

// touch makes the end of this poll write what is queued for p.
func (w *Worker) touch(p *Peer) {
	if !p.dirty && !p.ended {
		p.dirty = true
		w.dirty = append(w.dirty, p)
	}
}

// write writes what is queued, as much as the kernel accepts.
func (w *Worker) write(p *Peer) {
	if p.ended {
		return
	}
	if len(p.out) > 0 {
		n, err := p.socket.Write(p.out)
		if err != nil && !errors.Is(err, unix.EAGAIN) {
			p.end()
			return
		}
		if n > 0 {
			p.active, p.blocked = w.now, Never
		}
		p.out = p.out[:copy(p.out, p.out[n:])]
		if len(p.out) == 0 {
			p.out = nil
		}
	}
	if len(p.out) > abortBytes {
		w.stats.Slow++
		p.end()
		return
	}
	if len(p.out) == 0 && p.leaving {
		p.end()
		return
	}
	if p.stalled && len(p.out) <= queueBytes/2 {
		w.resume(p)
	}
	w.await(p)
}

// await sets what the poller reports: room while something is queued, bytes to read unless too much is queued.
func (w *Worker) await(p *Peer) {
	if p.ended {
		return
	}
	room, unread := len(p.out) > 0, p.stalled || len(p.out) > queueBytes || p.leaving
	if room && p.blocked == Never {
		p.blocked = w.now
		w.due.Set(p.slot, p.due())
	}
	if !room {
		p.blocked = Never
	}
	if room == p.room && unread == p.unread {
		return
	}
	p.room, p.unread = room, unread
	if w.poller.Await(&p.socket, p.token, !unread, room) != nil {
		p.end()
	}
}

// expire ends the connections whose deadline has passed. Deadlines that moved away are set here, not at each message.
func (w *Worker) expire() {
	for {
		slot, at, ok := w.due.First()
		if !ok || at > w.now {
			return
		}
		p := w.peers[slot]
		if due := p.due(); due > w.now {
			w.due.Set(slot, due)
			continue
		}
		w.due.Remove(slot)
		if p.blocked != Never && p.blocked+writeTime <= w.now {
			w.stats.Slow++
		} else {
			w.stats.TimedOut++
		}
		p.end()
	}
}

// drop closes a connection and forgets it.
func (w *Worker) drop(p *Peer) {
	if w.peers[p.slot] != p {
		return
	}
	p.ended = true
	w.handler.Closed(p, w.now)
	w.held -= p.held
	w.tokens.Remove(p.token)
	w.guests.Remove(p.slot)
	w.all.Remove(p.slot)
	w.due.Remove(p.slot)
	w.peers[p.slot] = nil
	w.free = append(w.free, p.slot)
	p.socket.Close() // leaves the poller
	p.out = nil
}

// close ends every connection, after the goroutine of the worker has ended.
func (w *Worker) close() {
	for _, p := range w.peers {
		if p != nil {
			if !p.leaving && p.queue(stream.AppendRelease(w.frame[:0])) {
				p.leave()
				_, _ = p.socket.Write(p.out) // as far as it fits: no program waits for it
			}
			w.drop(p)
		}
	}
	w.poller.Close()
}
