package udpnat

import (
	"errors"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/udpio"
)

// readEntry reads one datagram from an entry's socket. The epoll set is level-triggered, so an entry with more datagrams is
// reported again in the next iteration, after all others.
func (w *worker) readEntry(e *entry, now time.Duration) {
	if len(w.slab)-w.used < longest {
		w.flush()
	}
	buffer := w.slab[w.used : w.used+longest]
	n, from, err := w.receive(e, buffer)
	switch {
	case err == nil:
	case errors.Is(err, unix.EAGAIN):
		return
	case errors.Is(err, unix.ECONNREFUSED):
		w.counters.Refused++
		e.dest.refused.Add(1)
		return
	default:
		w.counters.ReceiveErrors++
		return
	}
	if from != e.dest.addr && !w.reroute(e, from, now) {
		return
	}
	first := !e.answered
	e.answered, e.missed, e.moves = true, 0, 0
	if e.dest.replied(now) {
		w.dp.revive(e.dest)
	}
	if w.table.touch(e, now) || first {
		w.engine.Renew(e.key, now)
		if !e.proven {
			w.prove(e)
		}
	}
	if !first {
		w.offer(e, now)
	}
	if w.faults.on && w.faults.onBackward() == lost {
		w.counters.LostBackward++
		w.engine.Count(lb.ReasonFault, nil)
		return
	}
	w.used += n
	w.reply(e, buffer[:n:n])
}

func (w *worker) receive(e *entry, buffer []byte) (int, netip.AddrPort, error) {
	if e.socket.Connected() {
		n, err := e.socket.Receive(buffer)
		return n, e.dest.addr, err
	}
	return e.socket.ReceiveFrom(buffer)
}

// reroute decides about a datagram that does not come from the entry's backend. With reverse address update on, a datagram
// from an active backend of the same service moves the entry to that backend. Any other such datagram comes from a stranger
// and is dropped.
func (w *worker) reroute(e *entry, from netip.AddrPort, now time.Duration) bool {
	w.counters.WrongRouted++
	if !w.reverse {
		return false
	}
	b := w.dp.view.Load().backendAt(e.service, from)
	if b == nil || b.State == lb.Down {
		return false
	}
	dest := w.dp.watch.get(lb.Target{Service: e.service, Backend: b.Name}, from)
	if !dest.is(Active) || w.retarget(e, dest) != nil {
		return false
	}
	e.pinned = false
	w.engine.Reassign(e.key, b, now)
	w.counters.Moved++
	return true
}

// reply queues a datagram for the client on the socket that the client addressed.
func (w *worker) reply(e *entry, payload []byte) {
	l := e.listener
	if !l.dirty {
		l.dirty = true
		w.waiting = append(w.waiting, l)
	}
	l.out = append(l.out, udpio.Message{Buf: payload, N: len(payload), Addr: e.client, Local: e.local})
	w.counters.Backwarded++
	w.counters.BackwardedBytes += uint64(len(payload))
	if len(l.out) == cap(l.out) {
		w.flush()
	}
}

// flush sends the replies that wait and empties the slab.
func (w *worker) flush() {
	for _, l := range w.waiting {
		sent := l.conn.WriteAll(l.out)
		w.counters.ReplyErrors += uint64(len(l.out) - sent)
		l.out = l.out[:0]
		l.dirty = false
	}
	w.waiting = w.waiting[:0]
	w.used = 0
}
