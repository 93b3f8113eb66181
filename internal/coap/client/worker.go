package client

import (
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/weir-lb/weir/internal/coap/exchange"
	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/dtls/record"
	"github.com/weir-lb/weir/internal/steering/heap"
	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/udpio"
)

const (
	batch         = 256                   // sockets served between two looks at the timers
	perSocket     = 16                    // clients that share a socket with SocketsShared
	perSocketRead = 32                    // datagrams read from one socket before the next socket
	publishEvery  = 50 * time.Millisecond // how often a worker publishes its counters
	errorPause    = time.Second           // after an error, with NoStop; plus up to half of it
	tokenLength   = 8                     // client number and count
	spreadFirst   = time.Second           // default of BenchConfig.Spread for clients with a longer pause
)

// worker runs a share of the clients on one goroutine. Other goroutines use only the fields under mu.
type worker struct {
	b        *bench
	poller   *udpio.Poller
	endpoint *exchange.Endpoint
	random   *rand.Rand
	scratch  *record.Scratch

	clients []*simulated
	sockets []*socket
	first   int // number of clients[0] among all clients

	queue    []*simulated             // want a handshake
	inFlight int                      // handshakes
	timers   heap.Heap[time.Duration] // of the clients, by their index in clients
	now      time.Duration
	rebindAt time.Duration

	zero    [tokenLength]byte
	request []byte // template: header, token, options, payload
	sending []byte // a request being completed
	in      []byte // a datagram read
	out     []byte // an acknowledgement
	sealing []byte // head room, payload, tail room
	tokens  []uint64

	phase phase
	ended int // clients that are done
	met   int // clients that became ready before the load

	clear    []byte          // what TLS has opened
	frame    []byte          // a message to send over TCP
	received message.Message // over TCP
	dialling dialling

	stats      BenchStats
	rtt        *measure.Latency // since the reporter's latest visit, about
	handshakes *measure.Latency
	published  time.Duration
	answeredAt time.Duration // the newest response to any client; 0: none yet
	delays     Delays        // since the reporter's latest visit

	mu     sync.Mutex
	shared report
	closed bool // the poller is gone
}

// report is what a worker has published.
type report struct {
	stats    BenchStats
	rtt      *measure.Latency // for the reporter to take; nil: taken
	wanted   bool             // the reporter is about to take rtt
	spare    *measure.Latency // given back by the reporter, empty; nil: in use
	delays   Delays           // of the same time as rtt
	phase    phase            // the worker has reached
	ready    int              // clients with a session, or that gave up
	ended    int
	idle     int           // clients without a request in flight
	answered time.Duration // time of the newest response
	err      error
}

// phase of a load, the same for all workers.
type phase int32

const (
	phaseProbe   phase = iota // the first client makes one request
	phaseConnect              // all others make their sessions
	phaseLoad                 // requests
	phaseDrain                // no new requests, answers are awaited
	phaseEnd
)

func newWorker(b *bench, first, count int) (*worker, error) {
	poller, err := udpio.NewPoller(batch)
	if err != nil {
		return nil, err
	}
	w := &worker{
		b: b, first: first, poller: poller,
		random:  rand.New(rand.NewPCG(b.cfg.Seed, uint64(first))),
		scratch: new(record.Scratch),
		in:      make([]byte, udpio.MaxDatagram), out: make([]byte, 0, maxRequest),
		sealing: make([]byte, record.MaxHeadRoom+maxRequest+echoRoom+record.MaxTailRoom),
		tokens:  make([]uint64, batch),
		rtt:     measure.NewLatency(), handshakes: measure.NewLatency(),
		shared: report{spare: measure.NewLatency()},
	}
	w.endpoint = exchange.New(exchange.Config{
		NStart: -1, ProbingRate: -1, // a load is what its user says
		AckTimeout: b.cfg.AckTimeout, Seed: w.random.Uint64(), MaxPending: b.pendingOf(count), LogBytes: -1,
		Supported: func(id message.OptionID) bool {
			return id == message.Block1 || id == message.Block2 || id == message.URIPath || id == message.URIQuery || id == message.URIHost
		},
		Unmatched: w.unmatched, Notified: w.notified,
	}, w, w.handler(), w)
	if w.request, err = b.template(); err != nil {
		w.close()
		return nil, err
	}
	w.sending = make([]byte, maxRequest+echoRoom)
	share := 1
	if b.cfg.Sockets == SocketsShared {
		share = perSocket
	}
	for i := range count {
		if i%share == 0 {
			s := &socket{index: uint64(len(w.sockets))}
			w.sockets = append(w.sockets, s)
			if err := w.open(s); err != nil {
				w.close()
				return nil, fmt.Errorf("socket %d of %d clients: %w; raise the limit of open files (ulimit -n) or use shared sockets", len(w.sockets), b.cfg.Clients, err)
			}
		}
		s := w.sockets[len(w.sockets)-1]
		c := &simulated{w: w, socket: s, number: uint32(first + i), socketIndex: len(s.clients)}
		if b.tls != nil && b.cfg.Resume {
			c.tickets = tls.NewLRUClientSessionCache(1)
		}
		c.exchange.Peer, s.exchange.Peer = c, s
		s.clients = append(s.clients, c)
		w.clients = append(w.clients, c)
	}
	return w, nil
}

// pendingOf is how many messages of so many clients may wait for an answer at a time: a request each, and in the reverse modes
// notifications.
func (b *bench) pendingOf(clients int) int {
	if b.cfg.Mode.reverse() {
		return 4*clients + 16
	}
	return clients + 1
}

// handler answers the requests of the server in the reverse modes; without them it is nil, and they are rejected.
func (w *worker) handler() exchange.Handler {
	if w.b.cfg.Mode.reverse() {
		return w
	}
	return nil
}

func (w *worker) close() {
	w.dialling.end()
	for _, s := range w.sockets {
		s.Socket.Close()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.poller.Close()
}

// wake makes the worker look at the phase.
func (w *worker) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.poller.Wake()
	}
}

// run serves the clients until the load's end.
func (w *worker) run() {
	w.now = w.b.clock()
	if w.first == 0 {
		w.clients[0].connect()
	}
	for {
		w.now = w.b.clock()
		if target := phase(w.b.phase.Load()); target != w.phase {
			w.enter(target)
		}
		if w.phase == phaseEnd {
			break
		}
		w.runTimers()
		w.endpoint.Tick(w.now)
		w.rebind()
		w.pump()
		if w.now-w.published >= publishEvery {
			w.publish()
		}
		wake := w.now + w.wait()
		n, _, err := w.poller.Wait(w.tokens, w.wait())
		if err != nil {
			w.fail(err)
			break
		}
		w.now = w.b.clock()
		w.delays.Late = max(w.delays.Late, w.now-wake)
		for _, d := range w.dialling.take() {
			w.dialled(d)
		}
		for _, token := range w.tokens[:n] {
			w.read(w.sockets[token])
		}
	}
	for _, c := range w.clients {
		c.goodbye()
	}
	w.publish()
	w.close()
}

// runTimers calls due for every client whose time has come.
func (w *worker) runTimers() {
	for i, at, ok := w.timers.First(); ok && at <= w.now; i, at, ok = w.timers.First() {
		w.delays.Late = max(w.delays.Late, w.now-at)
		w.timers.Remove(i)
		w.clients[i].due(at)
	}
}

// wait returns the time until a timer is due.
func (w *worker) wait() time.Duration {
	until := w.now + publishEvery
	if _, at, ok := w.timers.First(); ok {
		until = min(until, at)
	}
	if at, ok := w.endpoint.Next(); ok {
		until = min(until, at)
	}
	return max(0, until-w.now)
}

// enter begins a phase.
func (w *worker) enter(p phase) {
	w.phase = p
	switch p {
	case phaseConnect:
		for _, c := range w.clients {
			switch c.state {
			case stateNew:
				c.connect()
			case stateReady:
				w.met++
			}
		}
	case phaseLoad:
		w.rebindAt = w.now + w.b.cfg.RebindEvery
		for i, c := range w.clients {
			if c.state != stateReady || c.progress.open || c.progress.feed.token != nil { // the server is at it since the first request
				continue
			}
			if spread := w.b.cfg.Spread; spread > 0 { // else all clients would send together, pause together, and so on
				c.setTimer(w.now + spread*time.Duration(i)/time.Duration(len(w.clients)))
				continue
			}
			c.send(w.now)
		}
	}
	w.publish()
}

// pump starts handshakes up to the allowed number.
func (w *worker) pump() {
	for skipped := 0; w.inFlight < w.b.cfg.Burst && skipped < len(w.queue); {
		c := w.queue[0]
		w.queue = w.queue[1:]
		if c.socket.handshaker != nil { // its socket carries one handshake at a time
			w.queue = append(w.queue, c)
			skipped++
			continue
		}
		skipped = 0
		c.begin()
	}
}

// SendTo implements exchange.Sender.
func (w *worker) SendTo(session *exchange.Session, datagram []byte, _ time.Duration) {
	if c, ok := session.Peer.(*simulated); ok {
		c.deliver(datagram)
		return
	}
	w.transmit(session.Peer.(*socket), datagram)
}

// Response implements exchange.Events.
func (w *worker) Response(session *exchange.Session, id exchange.ID, response *message.Message, _ time.Duration, _ int) {
	if c := w.holder(session, id); c != nil {
		if block, ok := response.Uint(message.Block2); ok && block&8 != 0 && w.b.cfg.BlockSize == 0 {
			w.stats.FirstBlocks++
		}
		c.answered(response)
	}
}

// Failed implements exchange.Events.
func (w *worker) Failed(session *exchange.Session, id exchange.ID, reason exchange.Failure) {
	if c := w.holder(session, id); c != nil {
		c.failed(reason)
	}
}

// holder returns the client that sent the request id.
func (w *worker) holder(session *exchange.Session, id exchange.ID) *simulated {
	if c, ok := session.Peer.(*simulated); ok {
		if c.pending == id {
			return c
		}
		return nil
	}
	for _, c := range session.Peer.(*socket).clients {
		if c.pending == id {
			return c
		}
	}
	return nil
}

// publish copies the counters for the reporter.
func (w *worker) publish() {
	w.published = w.now
	counters := w.endpoint.Counters()
	w.stats.Retransmissions = counters.Retransmissions
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shared.stats = w.stats
	w.shared.stats.Stray += counters.Stray + counters.Malformed
	if w.shared.wanted && w.shared.rtt == nil && w.shared.spare != nil {
		w.shared.rtt, w.rtt, w.shared.spare = w.rtt, w.shared.spare, nil
		w.shared.delays, w.delays = w.delays, Delays{}
		w.shared.wanted = false
		for _, c := range w.clients {
			if c.pending != 0 {
				w.shared.delays.Waiting = max(w.shared.delays.Waiting, w.now-c.progress.begun)
			}
		}
	}
	w.shared.phase, w.shared.ended = w.phase, w.ended
	w.shared.ready, w.shared.idle = 0, 0
	for _, c := range w.clients {
		if c.state == stateReady || c.state == stateEnded {
			w.shared.ready++
		}
		if c.pending == 0 {
			w.shared.idle++
		}
		w.shared.answered = max(w.shared.answered, c.answeredAt)
	}
}

func (w *worker) fail(err error) {
	w.mu.Lock()
	if w.shared.err == nil {
		w.shared.err = err
	}
	w.mu.Unlock()
	w.b.wake()
}
