package engine

import (
	"net/netip"
	"time"

	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/record"
)

// Worker is one core's share of an Engine.
type Worker struct {
	id      int
	workers []*Worker // all of the engine, for hand-over
	cfg     *Config
	handler Handler
	server  *handshake.Server // nil in plain mode

	now       time.Duration
	wakeAt    time.Duration // of Handler.Tick
	clusterAt time.Duration // of Cluster.Tick
	peers     peers
	halfOpens halfOpens
	// plainPeers is the order of eviction in plain mode.
	plainPeers plainPeers
	// sessions is the order of eviction with DTLS.
	sessions  sessions
	forgers   forgers
	liar      *Peer // the session of this datagram of which a record has failed to open; see forged.go
	scratch   record.Scratch
	record    record.Record
	cidLength int      // -1: none
	lane      int      // worker of the other node that a frame of Foreign is for
	returns   *returns // of the engine; nil without a cluster or a wildcard

	out   transmit
	inbox inbox
	stats Stats
	said  published
}

func newWorker(id int, cfg *Config, server *handshake.Server) *Worker {
	w := &Worker{id: id, cfg: cfg, server: server, cidLength: -1, wakeAt: Never, clusterAt: Never}
	w.inbox.wake = func() {}
	w.peers = newPeers()
	w.plainPeers = newPlainPeers(cfg.MaxSessions)
	withCID := 0
	if cfg.CIDs != nil {
		withCID = cfg.MaxSessions
	}
	w.sessions = newSessions(withCID)
	w.halfOpens = newHalfOpens(cfg.MaxHalfOpen)
	if cfg.CIDs != nil {
		w.cidLength = cfg.CIDs.Layout.Length
	}
	w.out = newTransmit(cfg.Batch)
	return w
}

// ID is 0 for the first worker. Safe from any goroutine.
func (w *Worker) ID() int { return w.id }

// Now is the time of the current batch, since the engine was opened.
func (w *Worker) Now() time.Duration { return w.now }

// WakeAt asks for Handler.Tick no later than at.
func (w *Worker) WakeAt(at time.Duration) { w.wakeAt = min(w.wakeAt, at) }

// Post runs f on the worker's goroutine, soon. Safe from any goroutine; false
// when the worker has ended or its queue is full.
func (w *Worker) Post(f func()) bool {
	return w.inbox.post(f)
}

// Close ends p's session with close_notify.
func (w *Worker) Close(p *Peer) {
	if p.closed {
		return
	}
	w.closeNotify(p)
	w.drop(p)
}

// Inject handles datagram as if it had come from client, by way of router; it
// changes the bytes. Replies take the same way until a newer record comes
// another one.
func (w *Worker) Inject(datagram []byte, client, router netip.AddrPort) {
	w.stats.Injected++
	w.datagram(datagram, source{addr: client, router: router}, false)
}

// SendRaw sends datagram, a copy of it, from the public socket: from the address
// to which the client has sent its latest foreign datagram, if it is known.
func (w *Worker) SendRaw(datagram []byte, to netip.AddrPort) {
	b := w.out.acquire()
	if len(datagram) > len(b) {
		w.out.release(b)
		w.stats.SendErrors++
		return
	}
	w.out.public(b, b[:copy(b, datagram)], to, w.returns.local(to))
}

// LinkBuffer returns the next send buffer of the link socket, to be filled and
// given to LinkSend at once; it is overwritten otherwise.
func (w *Worker) LinkBuffer() []byte {
	if w.out.linkBuffer == nil {
		w.out.linkBuffer = w.out.acquire()
	}
	return w.out.linkBuffer
}

// LinkSend queues the first n bytes of LinkBuffer to a node; equal lengths to
// one node leave together (UDP_SEGMENT).
func (w *Worker) LinkSend(n int, to netip.AddrPort) {
	b := w.LinkBuffer()
	w.out.linkBuffer = nil
	w.out.link(b, b[:n], to, w.lane)
}

// tick runs what is due.
func (w *Worker) tick() {
	for h := w.halfOpens.dueBy(w.now); h != nil; h = w.halfOpens.dueBy(w.now) {
		w.halfOpenDue(h)
	}
	w.expire()
	if w.wakeAt <= w.now {
		w.wakeAt = Never
		next := w.handler.Tick(w.now) // which may call WakeAt
		w.wakeAt = min(w.wakeAt, next)
	}
	if w.cfg.Cluster != nil && w.clusterAt <= w.now {
		w.clusterAt = w.cfg.Cluster.Tick(w, w.now)
	}
}

// next is when tick is due again.
func (w *Worker) next() time.Duration {
	return min(w.halfOpens.next(), w.idleDue(), w.wakeAt, w.clusterAt)
}
