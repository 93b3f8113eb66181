package turncat

import (
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/weir-lb/weir/internal/udpio"
)

const (
	holdPackets  = 128       // datagrams that are held for a client's first session
	holdBytes    = 128 << 10 // maximum of their bytes
	holdAllBytes = 8 << 20   // maximum of the bytes held for all clients of a worker
	firstBackoff = int64(250 * time.Millisecond)
	maxBackoff   = int64(10 * time.Second)
)

// client is one local client: an address at the UDP listener, or a stream.
type client struct {
	addr    netip.AddrPort
	local   netip.Addr // the address that it sent to
	stream  *stream    // nil: UDP
	probe   chan<- error
	removed bool

	link     *link // the link that carries its data; nil: none now
	spare    *link // replaces link, because the credentials of link have expired
	attempts int
	retryAt  int64 // time of the next attempt if link is nil, or if spare is nil and wanted
	renewing bool
	to       netip.AddrPort // the alternate server, if any

	lastSeen int64
	reading  bool // the stream's goroutine runs
	finished bool // its input has ended
	held     [][]byte
	heldSize int

	chained    bool // in worker.up
	head, tail int32
}

// hold stores a datagram until the first session is ready. After that, datagrams of a client without a session are
// lost: see drop.
func (c *client) hold(w *worker, data []byte) {
	if c.attempts > 0 || len(c.held) >= holdPackets || c.heldSize+len(data) > holdBytes || w.heldSize+len(data) > holdAllBytes {
		w.counters.gap.Add(1)
		return
	}
	c.held = append(c.held, append([]byte(nil), data...))
	c.heldSize += len(data)
	w.heldSize += len(data)
}

// release discards the held datagrams.
func (c *client) release(w *worker) {
	w.heldSize -= c.heldSize
	c.held, c.heldSize = nil, 0
}

// clientAt returns the client of a datagram; it admits a new one.
func (w *worker) clientAt(m *udpio.Message, now int64) *client {
	if c := w.clients[m.Addr]; c != nil {
		return c
	}
	if !w.t.admit() {
		w.counters.full.Add(1)
		w.t.warn("as many clients as --max-clients allows: datagrams of further ones are dropped", "clients", w.t.config.MaxClients)
		return nil
	}
	c := &client{addr: m.Addr, local: m.Local, lastSeen: now}
	w.clients[m.Addr] = c
	w.add(c, now)
	return c
}

func (w *worker) add(c *client, now int64) {
	w.all[c] = struct{}{}
	c.lastSeen = now
	w.connect(c, now)
}

// remove removes a client and releases its allocations.
func (w *worker) remove(c *client, now int64) {
	if c.removed {
		return
	}
	c.removed = true
	w.counters.gap.Add(uint64(len(c.held)))
	c.release(w)
	delete(w.all, c)
	if w.last == c {
		w.last = nil
	}
	if c.stream == nil {
		delete(w.clients, c.addr)
	} else {
		c.stream.close()
		if !c.reading {
			c.stream.end()
		}
	}
	if c.probe == nil {
		w.t.leave()
	}
	for _, l := range []*link{c.link, c.spare} {
		if l != nil {
			w.retire(l, now)
		}
	}
	c.link, c.spare = nil, nil
	if w.t.config.Listen.Kind == KindStdio && c.probe == nil {
		w.t.finish()
	}
}

// tick runs the timers of every client and link, and schedules the next tick.
func (w *worker) tick(now int64) {
	w.nextTick = never // the calls below make it earlier
	for c := range w.all {
		end := c.lastSeen + int64(w.t.config.IdleTimeout)
		if c.finished {
			end = c.lastSeen + int64(w.t.config.Linger)
		} else if c.stream != nil && w.t.config.Listen.Kind == KindStdio {
			end = never
		}
		switch {
		case now >= end:
			if !c.finished {
				w.counters.idle.Add(1)
				w.t.config.Log.Debug("client idle", "client", c.name())
			}
			w.remove(c, now)
			continue
		case c.retryAt != 0 && now >= c.retryAt:
			c.retryAt = 0
			w.connect(c, now)
		}
		w.soon(end)
		if c.retryAt != 0 {
			w.soon(c.retryAt)
		}
	}
	for l := range w.links.All {
		if l == nil {
			continue
		}
		due, v := l.session.tick(now)
		w.act(l, v, now)
		if !l.gone {
			w.soon(due)
		}
	}
	if l := w.heldLink; l != nil {
		if now >= w.heldUntil {
			w.releaseHeld(now)
		}
		w.soon(w.heldUntil)
	}
	if w.stopAt != 0 {
		w.soon(w.stopAt)
	}
	w.nextTick = max(w.nextTick, now+tickGrain)
	if w.stopAt != 0 && w.live == 0 {
		w.nextTick = now
	}
}

// soon schedules the next tick no later than at.
func (w *worker) soon(at int64) { w.nextTick = min(w.nextTick, at) }

// again schedules another attempt, with an increasing delay.
func (w *worker) again(c *client, now int64) {
	wait := min(firstBackoff<<min(c.attempts, 10), maxBackoff)
	c.attempts++
	c.retryAt = now + wait*3/4 + rand.Int64N(wait/2)
	w.soon(c.retryAt)
}

func (c *client) name() string {
	switch {
	case c.probe != nil:
		return "check"
	case c.stream != nil:
		return "stream"
	}
	return c.addr.String()
}

// takeInbox handles the reports of the streams' goroutines.
func (w *worker) takeInbox(now int64) {
	entries, data := w.inbox.Take()
	for i := range entries {
		e := &entries[i]
		switch e.notice {
		case arrived:
			w.arrive(e.stream, e.probe, now)
		case dialed:
			w.dialedLink(e.link, e.stream, e.err, now)
		case datagram:
			b := data[:e.n]
			data = data[e.n:]
			if l := e.stream.link; l != nil && !l.gone {
				w.fromServer(l, b, now)
			} else if c := e.stream.client; c != nil && !c.removed {
				c.lastSeen = now
				w.sendCopy(c, b)
			}
		case finished:
			w.streamEnded(e.stream, e.err, now)
		case begin:
			w.begin()
		case halt:
			w.halt(now)
		}
		*e = entry{}
	}
	w.flushUp(now)
	w.flushDown()
}

// arrive creates a client for an accepted stream, or for a check.
func (w *worker) arrive(s *stream, probe chan<- error, now int64) {
	switch {
	case w.stopAt != 0 && s != nil:
		s.end()
		w.t.leave()
		return
	case w.stopAt != 0:
		return
	case probe != nil:
		w.add(&client{probe: probe}, now)
		return
	}
	c := &client{stream: s}
	s.client = c
	w.add(c, now)
}

func (w *worker) streamEnded(s *stream, err error, now int64) {
	if l := s.link; l != nil {
		if !l.gone {
			if err == nil {
				err = errServerClosed
			}
			w.act(l, l.session.fail(err), now)
		}
		return
	}
	c := s.client
	if c == nil || c.removed {
		return
	}
	if err != nil {
		w.remove(c, now)
		return
	}
	c.finished, c.lastSeen = true, now
	w.soon(now + int64(w.t.config.Linger))
}

// begin starts to watch the listener. Until then the kernel queues what clients send.
func (w *worker) begin() {
	if w.near == nil || w.stopAt != 0 {
		return
	}
	if err := w.poller.AddConn(w.near, nearToken); err != nil {
		w.broken = err
	}
}

// halt releases all allocations; run returns when that is done.
func (w *worker) halt(now int64) {
	w.stopAt = now + stopTime
	if w.near != nil {
		_ = w.near.Close()
		w.near = nil
	}
	for c := range w.all {
		w.remove(c, now)
	}
	w.releaseHeld(now)
	w.soon(now)
}
