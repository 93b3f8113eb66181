package gateway

import (
	"crypto/rand"
	"net/netip"
	"sync"
	"time"

	"github.com/weir-lb/weir/internal/turn/allocation"
	"github.com/weir-lb/weir/internal/udpio"
)

const (
	// readBatch is how many datagrams (or runs of them) one read takes.
	readBatch = 64
	// longest is room for the longest datagram or run of them.
	longest = 1 << 16
	// eventsSize is how many ready sockets one turn serves.
	eventsSize = 256
	// writerRoom is how many datagrams may wait in a turn.
	writerRoom = 4096
	// slabSize is room for what the worker writes itself in a turn: answers and Data indications.
	slabSize = 512 << 10
	// answerRoom is room for one of them with the longest payload.
	answerRoom = longest + 256
	// targetsRoom is how many one-off targets a turn has, for answers and Send indications.
	targetsRoom = 512
	// maxPollWait is the longest sleep of a worker.
	maxPollWait = 30 * time.Second
)

// worker owns a table of allocations with their relay sockets, and one socket of every UDP listener. All but post
// belongs to its goroutine.
type worker struct {
	gateway *Gateway
	index   int
	table   *allocation.Table
	now     int64 // by Options.Now, at the begin of the turn
	next    int64 // when the table must be looked at
	stop    bool
	busy    bool // the last turn had something to read

	poller        *udpio.Poller
	reader        *udpio.Reader
	writer        *udpio.Writer
	tokens        [eventsSize]uint64
	slots         []slot
	free          []uint32
	fuzzListeners []*listenerSocket // by listener id

	// What a turn uses up, until flush.
	in           []udpio.Message
	inUsed       int
	slab         []byte
	slabUsed     int
	targets      []udpio.Target
	targetsUsed  int
	dirtyRelays  []*relay // with something in their queues
	dirtySockets []*listenerSocket
	dirtyClients []*client // of streams
	tally        tally

	// Of TCP listeners.
	guestEnds, writeEnds deadlines
	endedStreams         []*polledConn        // to be closed at the turn's end
	records, plain       []byte               // of the TLS connection at hand: what was read, a message to write
	head                 [udpio.HeadSize]byte // of the ChannelData at hand

	transaction   uint64 // of the last Data indication
	seed          [12]byte
	opening       stream // whose message is being handled; nil over UDP
	openingFrom   *listener
	changed       []*allocation.Allocation
	boundChannels []boundChannel
	clusters      []*counts // by id
	clusterM      sync.RWMutex

	postMu sync.Mutex
	posted []func(*worker)
	spare  []func(*worker)
}

// slot is what a poller's token stands for; gen tells a late token of a closed socket.
type slot struct {
	gen    uint32
	socket *listenerSocket
	relay  *relay
	stream *polledConn
}

// listenerSocket is a worker's socket of a UDP listener.
type listenerSocket struct {
	l      *listener
	token  uint64
	conn   *udpio.Conn
	queue  udpio.Queue
	dirty  bool
	counts *counts
	recent [recentSize]*client // by client port: spares the table's look-up
}

// recentSize is a power of two.
const recentSize = 256

func newWorker(g *Gateway, index int) (*worker, error) {
	poller, err := udpio.NewPoller(eventsSize)
	if err != nil {
		return nil, err
	}
	w := &worker{
		gateway: g, index: index, poller: poller, reader: udpio.NewReader(readBatch), writer: udpio.NewWriter(writerRoom),
		in: udpio.NewMessages(readBatch, longest), slab: make([]byte, slabSize), targets: make([]udpio.Target, targetsRoom),
		now: g.options.Now(),
	}
	_, _ = rand.Read(w.seed[:]) // never fails
	w.table = allocation.NewTable(g.shared, (*relays)(w), (*events)(w))
	return w, nil
}

// post runs f in the worker's goroutine, soon. Any goroutine may call it; it never blocks. After the gateway's end f
// may not run.
func (w *worker) post(f func(*worker)) {
	w.postMu.Lock()
	w.posted = append(w.posted, f)
	w.postMu.Unlock()
	w.poller.Wake()
}

// workerFor returns the worker that owns the clients of an address: the one whose socket the kernel gives their
// datagrams to.
func (g *Gateway) workerFor(client netip.AddrPort) *worker {
	return g.workers[udpio.PeerSocket(client, len(g.workers))]
}

// run serves until stop. It returns what ended it.
func (w *worker) run() error {
	for !w.stop {
		if err := w.poll(w.pollTimeout()); err != nil {
			return err
		}
	}
	return nil
}

// poll serves what is ready, and waits for it at most so long.
func (w *worker) poll(wait time.Duration) error {
	n, woken, err := 0, false, error(nil)
	if w.busy && w.gateway.spare {
		n, woken, err = w.poller.WaitBusy(w.tokens[:])
	} else {
		n, woken, err = w.poller.Wait(w.tokens[:], wait)
	}
	if err != nil {
		return err
	}
	w.busy = n > 0
	w.now = w.gateway.options.Now()
	if woken {
		w.runPosted()
	}
	for _, token := range w.tokens[:n] {
		w.serve(token)
	}
	w.endPoll()
	return nil
}

// pollTimeout is how long the worker may sleep.
func (w *worker) pollTimeout() time.Duration {
	now, wait := w.gateway.options.Now(), maxPollWait
	for _, at := range [...]int64{w.next, w.guestEnds.at(), w.writeEnds.at()} {
		if at != 0 {
			wait = min(wait, max(0, time.Duration(at-now)))
		}
	}
	return wait
}

// serve reads one ready socket once: what is left comes again, after everybody else.
func (w *worker) serve(token uint64) {
	s := &w.slots[uint32(token)]
	switch {
	case s.gen != uint32(token>>32):
	case s.socket != nil:
		w.readListener(s.socket)
	case s.relay != nil:
		w.readRelay(s.relay)
	case s.stream != nil:
		w.readStream(s.stream)
	}
}

// endPoll ends a turn: what is over ends, what changed is written down, what waits leaves.
func (w *worker) endPoll() {
	w.expireStreams()
	if w.next == 0 || w.now >= w.next {
		w.next = w.table.Expire(w.now)
	}
	w.flush()
	w.closeEnded()
}

func (w *worker) runPosted() {
	w.postMu.Lock()
	posted := w.posted
	w.posted = w.spare[:0]
	w.postMu.Unlock()
	for i, f := range posted {
		f(w)
		posted[i] = nil
	}
	w.spare = posted
	w.next = 0 // what was posted may have changed what expires
}

// newSlot gives out a token.
func (w *worker) newSlot(s slot) uint64 {
	var i uint32
	if n := len(w.free); n > 0 {
		i, w.free = w.free[n-1], w.free[:n-1]
	} else {
		i = uint32(len(w.slots))
		w.slots = append(w.slots, slot{})
	}
	s.gen = w.slots[i].gen
	w.slots[i] = s
	return uint64(s.gen)<<32 | uint64(i)
}

func (w *worker) freeSlot(token uint64) {
	i := uint32(token)
	// 2^31 generations: one socket closed each millisecond wraps in three weeks, and tokens live for one turn.
	w.slots[i] = slot{gen: (w.slots[i].gen + 1) & 0x7fffffff}
	w.free = append(w.free, i)
}

// enter has the worker read its socket of a UDP listener.
func (w *worker) enter(l *listener) error {
	ls := &listenerSocket{l: l, conn: l.group.Conn(w.index), counts: &l.counts[w.index]}
	ls.token = w.newSlot(slot{socket: ls})
	if err := w.poller.AddConn(ls.conn, ls.token); err != nil {
		w.freeSlot(ls.token)
		return err
	}
	for len(w.fuzzListeners) <= int(l.id) {
		w.fuzzListeners = append(w.fuzzListeners, nil)
	}
	w.fuzzListeners[l.id] = ls
	return nil
}

// leave ends the allocations of a listener and forgets its socket; the caller closes it. It returns how many ended.
func (w *worker) leave(l *listener, why allocation.Reason) (ended int) {
	w.flush()
	for a := range w.table.All {
		if c := a.Data.(*client); c.listener == l {
			if c.stream != nil {
				c.stream.shut()
			}
			w.table.Delete(a, why)
			ended++
		}
	}
	w.flush()
	if int(l.id) < len(w.fuzzListeners) && w.fuzzListeners[l.id] != nil {
		w.freeSlot(w.fuzzListeners[l.id].token)
		w.fuzzListeners[l.id] = nil
	}
	return ended
}

// close frees what the worker holds; the goroutine has ended. Nothing is told to the Store: the allocations live on.
func (w *worker) close() {
	for a := range w.table.All {
		if c, _ := a.Data.(*client); c != nil && c.tcp != nil {
			w.closeTCP(c)
		}
	}
	for i := range w.slots {
		if r := w.slots[i].relay; r != nil {
			r.socket.Close()
		}
	}
	w.poller.Close()
}
