package load

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/turn/requests"
	"github.com/weir-lb/weir/internal/udpio"
)

const (
	sinkToken   = uint64(MaxClients)
	readBatch   = 64
	largestRead = 65535 // a coalesced read
	tickEvery   = 100 * time.Millisecond
)

// run is the receiver's state of a phase.
type run struct {
	id        uint64
	size      int
	direction Direction
	up, down  []tracker
	begin     int64 // of the phase, as the trackers count
	// Latency of all connections of a direction together, by when they arrived.
	upLatency, downLatency *measure.Timeline
	// For the goroutine that waits until all datagrams have arrived.
	upCount, downCount atomic.Uint64
	last               atomic.Int64
}

func newRun(id uint64, phase Phase, clients int, begin int64) *run {
	r := &run{
		id: id, size: phase.Size, direction: phase.Direction, up: make([]tracker, clients), down: make([]tracker, clients),
		begin: begin, upLatency: measure.NewTimeline(time.Second), downLatency: measure.NewTimeline(time.Second),
	}
	for i := range clients {
		r.up[i].begin, r.up[i].last = begin, begin
		r.down[i].begin, r.down[i].last = begin, begin
	}
	r.last.Store(begin)
	return r
}

// receive is the receiver: one thread for the sink and all the clients.
func (l *Load) receive() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(l.ended)
	size := largestRead
	if l.config.NoCoalesce {
		size = min(l.config.Size+1+requests.ChannelHeader, largestRead)
	}
	messages := udpio.NewMessages(readBatch, max(size, 2048))
	tokens := make([]uint64, 256)
	next := time.Now().Add(tickEvery)
	for !l.ending.Load() {
		n, woken, err := l.poller.Wait(tokens, tickEvery)
		if err != nil {
			return // the poller is gone
		}
		for _, token := range tokens[:n] {
			l.read(token, messages)
		}
		if now := time.Now(); woken || now.After(next) {
			next = now.Add(tickEvery)
			l.control(now)
		}
	}
}

// control runs requested functions and the clients' timers.
func (l *Load) control(now time.Time) {
	l.mu.Lock()
	queue := l.queue
	l.queue = nil
	l.mu.Unlock()
	for _, f := range queue {
		f(now)
	}
	if !l.config.Server.IsValid() {
		return
	}
	for _, c := range l.clients {
		c.note(c.tick(now))
		if c.step == idle && c.err == nil && now.After(c.due) {
			c.note(c.begin(now, refresh, bind))
		}
	}
}

// note stores the first failure.
func (c *client) note(err error) {
	if c.err == nil {
		c.err = err
	}
}

// read reads at most one batch of a socket, so that the other sockets are read as well.
func (l *Load) read(token uint64, messages []udpio.Message) {
	if token == sinkToken {
		l.readSink(messages)
		return
	}
	c, r, now := l.clients[token], l.run.Load(), int64(0)
	_, err := c.link.receive(messages, 0, func(b []byte) {
		if now == 0 {
			now = l.now() // after the read
		}
		l.atClient(r, c, b, now)
	})
	if errors.Is(err, io.EOF) { // of a stream; of ECONNREFUSED and the like what was lost is counted as lost
		c.note(fmt.Errorf("client %d: the server %v closed the connection", c.id, l.config.Server))
		_ = c.link.close()
	}
}

func (l *Load) readSink(messages []udpio.Message) {
	n, err := l.sink.ReadBatch(messages, 0)
	if err != nil || n == 0 {
		return
	}
	now, r := l.now(), l.run.Load()
	for i := range messages[:n] {
		m := &messages[i]
		eachSegment(m, func(b []byte) { l.atSink(r, b, m.Addr, now) })
	}
	if r != nil && r.direction == Echo {
		l.sink.WriteAll(messages[:n])
	}
}

func (l *Load) atSink(r *run, b []byte, from netip.AddrPort, now int64) {
	h, ok, whole := parse(b)
	if !ok || int(h.conn) >= len(l.from) || h.flags&flagDown != 0 {
		return
	}
	if old := l.from[h.conn].Load(); old == nil || *old != from {
		l.from[h.conn].Store(&from)
	}
	if r == nil || h.run != r.id {
		if h.flags&flagProbe == 0 {
			l.late.Add(1)
		}
		return
	}
	if r.count(&r.up[h.conn], r.upLatency, h, whole && len(b) == r.size, now, len(b)) {
		r.upCount.Add(1)
	}
}

func (l *Load) atClient(r *run, c *client, b []byte, now int64) {
	if l.config.Server.IsValid() {
		if len(b) > 0 && b[0]>>6 == 0 {
			c.note(c.answer(b, time.Now()))
			return
		}
		var ok bool
		if b, ok = requests.ChannelData(b); !ok {
			return
		}
	}
	h, ok, whole := parse(b)
	if !ok || int(h.conn) != c.id {
		return
	}
	if h.flags&flagProbe != 0 && l.sink == nil {
		peer := l.config.Peer
		l.from[c.id].Store(&peer)
	}
	if r == nil || h.run != r.id || (h.flags&flagDown == 0) != (r.direction == Echo) {
		return
	}
	if l.sink == nil {
		h.sent += (now - h.sent) / 2 // as if it had been sent half a round trip before now
	}
	if r.count(&r.down[c.id], r.downLatency, h, whole && len(b) == r.size, now, len(b)) {
		r.downCount.Add(1)
	}
}

// count counts a datagram of the run and reports whether it is a new one.
func (r *run) count(t *tracker, latency *measure.Timeline, h header, whole bool, now int64, size int) bool {
	if !whole {
		t.damaged++
		return false
	}
	if !t.arrive(h.sequence, h.sent, now, size) {
		return false
	}
	latency.Record(time.Duration(now-r.begin), time.Duration(now-h.sent))
	r.last.Store(now)
	return true
}
