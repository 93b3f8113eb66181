package streamserver

import (
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/coap/stream"
	"github.com/weir-lb/weir/internal/steering/evict"
	"github.com/weir-lb/weir/internal/steering/heap"
	"github.com/weir-lb/weir/internal/udpio"
	"github.com/weir-lb/weir/internal/workers"
)

// Worker owns some of the connections. All fields but the atomic ones and inbox belong to its goroutine.
type Worker struct {
	server  *Server
	handler Handler
	poller  *udpio.Poller
	inbox   *workers.Inbox[*Worker]
	events  [eventsSize]uint64
	tokens  workers.Tokens[*Peer]

	peers  []*Peer // by slot
	free   []int32
	due    heap.Heap[time.Duration]
	guests evict.Order[evict.Source]
	all    evict.Order[evict.Source] // to count what a source holds
	held   int                       // bytes of incomplete messages
	wakeAt time.Duration             // of Handler.Tick
	now    time.Duration
	stop   bool

	dirty []*Peer // with something to write
	ended []*Peer // to be closed at the end of the poll

	in, plain, answer, frame []byte
	message                  message.Message
	stats                    Stats
	accepted                 atomic.Uint64
	refused, failed          atomic.Uint64 // by the accepting goroutines
}

func newWorker(s *Server) (*Worker, error) {
	poller, err := udpio.NewPoller(eventsSize)
	if err != nil {
		return nil, err
	}
	w := &Worker{
		server: s, poller: poller, wakeAt: Never,
		in: make([]byte, readBytes), answer: make([]byte, 0, stream.MaxMessage),
	}
	w.inbox = s.group.Add(w, poller.Wake)
	return w, nil
}

// Post runs f soon on the goroutine of the worker, never before it returns. Any goroutine may call it; it never blocks, and false means
// that f will not run.
func (w *Worker) Post(f func()) bool { return w.inbox.Put(func(*Worker) { f() }) }

// WakeAt requests a call of Handler.Tick no later than at.
func (w *Worker) WakeAt(at time.Duration) { w.wakeAt = min(w.wakeAt, at) }

// take gives the worker a connection, from any goroutine.
func (w *Worker) take(conn *net.TCPConn, secure *tls.Conn, t *wire, client netip.AddrPort) {
	socket, err := duplicate(conn)
	if err != nil {
		w.refused.Add(1)
		return
	}
	p := &Peer{worker: w, socket: socket, addr: client, source: evict.SourceOf(client.Addr()), tls: secure, wire: t, incomplete: Never, blocked: Never}
	if !w.inbox.Put(func(w *Worker) { w.open(p) }) {
		w.refused.Add(1)
		p.socket.Abort()
	}
}

// open enters a connection, if there is room.
func (w *Worker) open(p *Peer) {
	if !w.room(p.source) {
		w.stats.Refused++
		p.socket.Abort()
		return
	}
	p.opened, p.active = w.now, w.now
	if p.wire != nil {
		p.wire.peer = p
	}
	p.token = w.tokens.Add(p)
	if err := w.poller.AddStream(&p.socket, p.token); err != nil {
		w.tokens.Remove(p.token)
		w.stats.Refused++
		p.socket.Abort()
		return
	}
	w.enter(p)
	p.queue(stream.AppendCSM(nil, stream.Announced()))
	if p.tls != nil {
		w.readTLS(p) // what came with the end of the handshake
	}
}

// enter gives p a slot.
func (w *Worker) enter(p *Peer) {
	if n := len(w.free); n > 0 {
		p.slot, w.free = w.free[n-1], w.free[:n-1]
		w.peers[p.slot] = p
	} else {
		p.slot = int32(len(w.peers))
		w.peers = append(w.peers, p)
	}
	w.guests.Add(p.slot, p.source)
	w.all.Add(p.slot, p.source)
	w.due.Set(p.slot, p.due())
}

// room makes room for a connection of a source: of those without a request, the oldest of the source that has its share, or one by the
// order of package evict if the table is full. It returns false if there is none.
func (w *Worker) room(source evict.Source) bool {
	bound := w.server.cfg.MaxConnections
	slot, ok := int32(0), true
	switch {
	case w.all.Held(source) >= share(bound):
		slot, ok = w.guests.FirstOf(source)
	case w.all.Len() >= bound:
		slot, ok = w.guests.First()
	default:
		return true
	}
	if !ok {
		return false
	}
	w.stats.Evicted++
	w.drop(w.peers[slot])
	return true
}

// run serves until the worker is stopped.
func (w *Worker) run() error {
	for !w.stop {
		if err := w.poll(w.timeout()); err != nil {
			return err
		}
	}
	return nil
}

func (w *Worker) timeout() time.Duration {
	next := w.wakeAt
	if _, at, ok := w.due.First(); ok {
		next = min(next, at)
	}
	return min(max(0, next-w.server.cfg.now()), 30*time.Second)
}

// poll waits at most wait for ready connections and serves them.
func (w *Worker) poll(wait time.Duration) error {
	n, woken, err := w.poller.Wait(w.events[:], wait)
	if err != nil {
		return err
	}
	w.now = w.server.cfg.now()
	if woken {
		w.stop = !w.inbox.Serve(w)
	}
	for _, token := range w.events[:n] {
		if p := w.tokens.At(token); p != nil {
			w.serve(p)
		}
	}
	w.expire()
	if w.wakeAt <= w.now {
		w.wakeAt = Never
		next := w.handler.Tick(w.now)
		w.wakeAt = min(w.wakeAt, next)
	}
	w.finish()
	return nil
}

// finish ends a poll: it writes what is queued and closes what has ended.
func (w *Worker) finish() {
	for len(w.dirty) > 0 || len(w.ended) > 0 {
		dirty := w.dirty
		w.dirty = nil
		for _, p := range dirty {
			p.dirty = false
			if !p.room {
				w.write(p)
			}
		}
		ended := w.ended
		w.ended = nil
		for _, p := range ended {
			w.drop(p)
		}
	}
}

// serve handles a connection that the poller reported: it writes what is queued, then reads once. If more is left, the poller reports
// the connection again after all other ones.
func (w *Worker) serve(p *Peer) {
	if p.room {
		w.write(p)
	}
	if p.ended || p.unread {
		return
	}
	n, err := p.socket.Read(w.in)
	if errors.Is(err, unix.EAGAIN) {
		return
	}
	if n > 0 {
		p.active = w.now
	}
	if p.tls != nil {
		p.wire.in, p.wire.err = w.in[:n], err
		w.readTLS(p)
		return
	}
	if err != nil {
		p.end()
		return
	}
	w.decode(p, w.in[:n])
}

// readTLS decodes what TLS has received, including the contents of its own buffers.
func (w *Worker) readTLS(p *Peer) {
	if w.plain == nil {
		w.plain = make([]byte, readBytes)
	}
	for !p.ended && !p.leaving && !p.stalled {
		n, err := p.tls.Read(w.plain)
		if n > 0 {
			w.decode(p, w.plain[:n])
		}
		if errors.Is(err, errWouldBlock) {
			break
		}
		if err != nil {
			p.end() // closed, broken, or a record that does not open
		}
	}
	w.touch(p) // messages of TLS itself
}

// decode handles the messages in what was received.
func (w *Worker) decode(p *Peer, in []byte) {
	w.stats.Received += uint64(len(in))
	p.decoder.Feed(in)
	w.advance(p)
}

// advance handles the messages that have come, until too much is queued for the peer.
func (w *Worker) advance(p *Peer) {
	for !p.ended && !p.leaving {
		if p.stalled = len(p.out) > queueBytes; p.stalled {
			p.decoder.Pause()
			break
		}
		ok, err := p.decoder.Next(&w.message)
		if err != nil {
			w.abort(p, err.Error())
			return
		}
		if !ok {
			break
		}
		w.receive(p)
	}
	w.hold(p)
}

// resume goes on with a connection that was stalled.
func (w *Worker) resume(p *Peer) {
	w.advance(p)
	if p.tls != nil && !p.stalled {
		w.readTLS(p)
	}
}

// hold counts the memory of what is not decoded, and when an incomplete message began.
func (w *Worker) hold(p *Peer) {
	held := p.decoder.Held()
	w.held += held - p.held
	p.held = held
	switch {
	case held == 0 || p.stalled:
		p.incomplete = Never
	case w.held > w.server.cfg.MaxHeld:
		w.stats.Overloaded++
		p.end()
	case p.incomplete == Never:
		p.incomplete = w.now
		w.due.Set(p.slot, p.due())
	}
}

// receive handles one message.
func (w *Worker) receive(p *Peer) {
	event, out := p.session.Receive(&w.message, w.frame[:0])
	w.frame = out
	if event == stream.Plain {
		w.stats.Messages++
		if !p.member {
			p.member = true
			w.guests.Remove(p.slot)
		}
		limit := min(cap(w.answer), p.session.Peer.MaxMessageSize)
		if answer := w.handler.Serve(p, &w.message, w.answer[:0:limit], w.now); len(answer) > 0 {
			w.frame, _ = stream.Append(w.frame[:0], answer) // it is a message: Builder wrote it
			p.queue(w.frame)
		}
		return
	}
	p.queue(out)
	switch event {
	case stream.Pinged:
		w.stats.Pings++
	case stream.Released:
		p.leave()
	case stream.Aborted:
		p.end()
	case stream.Failed:
		w.stats.Aborted++
		p.leave()
	}
}

// abort notifies the peer why the connection ends.
func (w *Worker) abort(p *Peer, reason string) {
	w.stats.Aborted++
	w.frame = stream.AppendAbort(w.frame[:0], reason)
	p.queue(w.frame)
	p.leave()
}
