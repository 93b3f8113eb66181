package engine

import (
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/record"
	"github.com/weir-lb/weir/internal/workers"
)

// Bounds of what other goroutines have put there for a worker. What does not fit is refused and counted.
const (
	maxHandedOver = 256  // datagrams on their way from other workers
	maxRequests   = 1024 // functions of Post
)

// arrival is a datagram that another worker has read.
type arrival struct {
	from  source
	bytes int
}

func newInbox(wake func()) *workers.Mailbox[arrival] {
	return workers.NewMailbox[arrival](workers.Limits{Messages: maxHandedOver}, wake)
}

// Worker owns one core's share of the sessions of an Engine.
type Worker struct {
	id      int
	workers []*Worker // all of the engine, for hand-over
	cfg     *Config
	handler Handler
	// admission is the handler, if it has these methods; admitted is what it has returned for the current hello.
	admission Admission
	admitted  any
	resting   Resting           // the handler, if it has this method
	draining  Draining          // likewise
	moving    Moving            // likewise
	mover     Mover             // the cluster, if it has these methods
	server    *handshake.Server // nil in plain mode

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
	queueHint int      // worker of the other node for which a frame of Foreign is meant
	returns   *returns // of the engine; nil without a cluster or a wildcard
	// restoredAt is which worker has a restored session without connection ids. All workers share it, and nothing changes it.
	restoredAt map[netip.AddrPort]int

	replySource source                // of replyTo
	sendReply   func(datagram []byte) // reply, as a value

	copying copying

	drain       drain
	drainWithin atomic.Int64 // of Engine.Drain; 0: no drain

	out       transmit
	requests  *workers.Inbox[*loop]     // nil without sockets
	inbox     *workers.Mailbox[arrival] // datagrams that other workers have read, with their bytes
	stats     Stats
	published published
}

func newWorker(id int, cfg *Config, server *handshake.Server) *Worker {
	w := &Worker{id: id, cfg: cfg, server: server, cidLength: -1, wakeAt: Never, clusterAt: Never}
	w.mover, _ = cfg.Cluster.(Mover)
	w.replicateTo(cfg.Cluster)
	w.inbox = newInbox(func() {})
	w.sendReply = w.reply
	w.peers = newPeers()
	w.plainPeers = newPlainPeers(cfg.MaxSessions)
	withCID := 0
	if cfg.CIDs != nil {
		withCID = cfg.MaxSessions
	}
	w.sessions = newSessions(withCID)
	w.halfOpens = newHalfOpens(cfg.MaxHalfOpen, cfg.HandshakeLife)
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

// WakeAt requests a call of Handler.Tick no later than at.
func (w *Worker) WakeAt(at time.Duration) { w.wakeAt = min(w.wakeAt, at) }

// Post runs f on the worker's goroutine, soon. Safe from any goroutine; false
// when the worker has ended or its queue is full.
func (w *Worker) Post(f func()) bool {
	return w.requests != nil && w.requests.Put(func(*loop) { f() })
}

// Close ends p's session with close_notify.
func (w *Worker) Close(p *Peer) {
	if p.closed {
		return
	}
	w.closeNotify(p)
	w.drop(p)
}

// Inject handles datagram as if client had sent it, forwarded by router; it changes the bytes. Replies take the same path
// until a newer record arrives on another one.
func (w *Worker) Inject(datagram []byte, client, router netip.AddrPort) {
	w.stats.Injected++
	w.datagram(datagram, source{addr: client, router: router}, false)
}

// SendRaw sends a copy of datagram from the public socket. The source address is the one to which the client has sent its
// latest foreign datagram, if that is known.
func (w *Worker) SendRaw(datagram []byte, to netip.AddrPort) {
	b := w.out.acquire()
	if len(datagram) > len(b) {
		w.out.release(b)
		w.stats.SendErrors++
		return
	}
	w.out.public(b, b[:copy(b, datagram)], to, w.returns.local(to))
}

// LinkBuffer returns the next send buffer of the link socket. Fill it and pass it to LinkSend at once; another call would
// overwrite it.
func (w *Worker) LinkBuffer() []byte {
	if w.out.linkBuffer == nil {
		w.out.linkBuffer = w.out.acquire()
	}
	return w.out.linkBuffer
}

// LinkSend queues the first n bytes of LinkBuffer for a node. Messages of equal length for one node leave together
// (UDP_SEGMENT).
func (w *Worker) LinkSend(n int, to netip.AddrPort) {
	b := w.LinkBuffer()
	w.out.linkBuffer = nil
	w.out.link(b, b[:n], to, w.queueHint, false)
}

// LinkSendInOrder is LinkSend of a message that must not overtake an earlier one that was sent with it.
func (w *Worker) LinkSendInOrder(n int, to netip.AddrPort) {
	b := w.LinkBuffer()
	w.out.linkBuffer = nil
	w.out.link(b, b[:n], to, w.queueHint, true)
}

// tick runs the timers that are due.
func (w *Worker) tick() {
	for h := w.halfOpens.dueBy(w.now); h != nil; h = w.halfOpens.dueBy(w.now) {
		w.halfOpenDue(h)
	}
	w.expire()
	w.rest()
	w.drainTick()
	w.reportChanges()
	if w.wakeAt <= w.now {
		w.wakeAt = Never
		next := w.handler.Tick(w.now) // which may call WakeAt
		w.wakeAt = min(w.wakeAt, next)
	}
	if w.cfg.Cluster != nil && w.clusterAt <= w.now {
		w.clusterAt = w.cfg.Cluster.Tick(w, w.now)
	}
}

// next returns when tick is due again.
func (w *Worker) next() time.Duration {
	return min(w.halfOpens.next(), w.idleDue(), w.restDue(), w.drainNext(), w.reportNext(), w.wakeAt, w.clusterAt)
}
