package gateway

import (
	"crypto/rand"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/weir-lb/weir/internal/dtls/engine"
	"github.com/weir-lb/weir/internal/turn/allocation"
	"github.com/weir-lb/weir/internal/udpio"
	"github.com/weir-lb/weir/internal/workers"
)

const (
	// readBatch is how many datagrams (or runs of datagrams) one read takes.
	readBatch = 64
	// longest is the size in bytes of a read buffer: it holds the longest datagram or run of datagrams.
	longest = 1 << 16
	// eventsSize is how many ready sockets one poll serves.
	eventsSize = 256
	// writerRoom is how many datagrams may be queued in one poll.
	writerRoom = 4096
	// slabSize is the memory in bytes for what the worker itself writes in one poll: answers and Data indications.
	slabSize = 512 << 10
	// answerRoom is the space in bytes for one answer or indication with the longest payload.
	answerRoom = longest + 256
	// targetsRoom is how many one-off targets one poll has, for answers and Send indications.
	targetsRoom = 512
	// busyTime is how long a worker that has just had something to read waits for more before it gives its processor
	// to other goroutines. At 5,000 packets/s and two workers, a burst of 8 comes every 3 ms.
	busyTime = 20 * time.Millisecond
	// maxPollWait is the longest time that a worker waits for events.
	maxPollWait = 30 * time.Second
)

// worker owns a table of allocations with their relay sockets, and one socket of every UDP listener. All fields
// belong to its goroutine.
type worker struct {
	gateway *Gateway
	index   int
	table   *allocation.Table
	now     int64 // by Options.Now, at the start of the poll
	next    int64 // when Table.Expire must be called; 0: at the end of this poll
	stop    bool
	busy    bool // the last poll had something to read

	poller    *udpio.Poller
	reader    *udpio.Reader
	writer    *udpio.Writer
	tokens    [eventsSize]uint64
	watched   workers.Tokens[watched]
	listeners []*listenerSocket // by listener id

	// What one poll uses until flush.
	in           []udpio.Message
	inUsed       int
	slab         []byte
	slabUsed     int
	targets      []udpio.Target
	targetsUsed  int
	dirtyRelays  []*relay // relays with datagrams in their queues
	dirtySockets []*listenerSocket
	dirtyClients []*client // clients of streams with queued messages
	tally        tally

	// Of TCP listeners.
	guestEnds, writeEnds deadlines
	endedStreams         []*polledConn        // to be closed at the end of the poll
	endedSessions        []*dtlsSession       // likewise
	fronts               []*dtlsFront         // of the DTLS listeners
	records, plain       []byte               // of the current TLS connection: the bytes read, a message to write
	head                 [udpio.HeadSize]byte // header of the current ChannelData message

	transaction   uint64 // of the last Data indication
	seed          [12]byte
	opening       stream // whose message is being handled; nil over UDP
	openingFrom   *listener
	changed       []*allocation.Allocation
	boundChannels []boundChannel
	clusters      []*counts // by id
	clusterM      sync.RWMutex

	inbox *workers.Inbox[*worker]
}

// watched is what a token of the poller refers to.
type watched struct {
	socket *listenerSocket
	relay  *relay
	stream *polledConn
}

// listenerSocket is a worker's socket of a UDP or DTLS listener.
type listenerSocket struct {
	l      *listener
	token  uint64
	conn   *udpio.Conn
	queue  udpio.Queue
	dirty  bool
	counts *counts
	dtls   *dtlsFront          // nil: the datagrams are TURN messages
	recent [recentSize]*client // by client port: avoids the look-up in the table
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
	w.inbox = g.group.Add(w, poller.Wake)
	_, _ = rand.Read(w.seed[:]) // never fails
	w.table = allocation.NewTable(g.shared, (*relays)(w), (*events)(w))
	return w, nil
}

// post runs f soon in the worker's goroutine. Any goroutine may call it; it never blocks. After the end of the
// gateway, f may not run.
func (w *worker) post(f func(*worker)) {
	w.inbox.Put(f)
}

// workerFor returns the worker that owns the clients of an address: the worker whose socket receives their datagrams
// from the kernel.
func (g *Gateway) workerFor(client netip.AddrPort) *worker {
	return g.workers[udpio.PeerSocket(client, len(g.workers))]
}

// run serves until stop is set. It returns the error that ended it.
func (w *worker) run() error {
	for !w.stop {
		if err := w.poll(w.pollTimeout()); err != nil {
			return err
		}
	}
	return nil
}

// poll waits at most wait for ready sockets and serves them.
func (w *worker) poll(wait time.Duration) error {
	n, woken, err := 0, false, error(nil)
	if w.busy && w.gateway.spare {
		n, woken, err = w.poller.WaitBusy(w.tokens[:], min(wait, busyTime))
	} else {
		n, woken, err = w.poller.Wait(w.tokens[:], wait)
	}
	if err != nil {
		return err
	}
	w.busy = n > 0
	w.now = w.gateway.options.Now()
	if woken {
		w.stop = !w.inbox.Serve(w)
		w.next = 0 // a request may have changed the next expiry
	}
	for _, token := range w.tokens[:n] {
		w.serve(token)
	}
	w.endPoll()
	return nil
}

// pollTimeout returns how long the worker may wait for events: until the next expiry or deadline, at most
// maxPollWait. It counts from the last reading of the clock, so timers may be late by the time that one poll took.
func (w *worker) pollTimeout() time.Duration {
	now, wait := w.now, maxPollWait
	for _, at := range [...]int64{w.next, w.guestEnds.at(), w.writeEnds.at()} {
		if at != 0 {
			wait = min(wait, max(0, time.Duration(at-now)))
		}
	}
	for _, f := range w.fronts {
		if next := f.engine.Next(); next != engine.Never {
			wait = min(wait, max(0, next-time.Duration(now-f.start)))
		}
	}
	return wait
}

// serve reads one ready socket once. If data is left, the poller reports the socket again after all other sockets
// were served.
func (w *worker) serve(token uint64) {
	switch s := w.watched.At(token); {
	case s.socket != nil && s.socket.dtls != nil:
		w.readDTLS(s.socket)
	case s.socket != nil:
		w.readListener(s.socket)
	case s.relay != nil:
		w.readRelay(s.relay)
	case s.stream != nil:
		w.readStream(s.stream)
	}
}

// endPoll ends a poll: it expires connections and allocations, stores changed records, and sends what is queued.
func (w *worker) endPoll() {
	w.expireStreams()
	w.tickDTLS()
	if w.next == 0 || w.now >= w.next {
		w.next = w.table.Expire(w.now)
	}
	w.flush()
	w.closeEnded()
}

// enter makes the worker read its socket of a UDP or DTLS listener.
func (w *worker) enter(l *listener) error {
	ls := &listenerSocket{l: l, conn: l.group.Conn(w.index), counts: &l.counts[w.index]}
	ls.token = w.watched.Add(watched{socket: ls})
	if err := w.poller.AddConn(ls.conn, ls.token); err != nil {
		w.watched.Remove(ls.token)
		return err
	}
	for len(w.listeners) <= int(l.id) {
		w.listeners = append(w.listeners, nil)
	}
	w.listeners[l.id] = ls
	if l.dtls != nil {
		ls.dtls = l.dtls.fronts[w.index]
		ls.dtls.socket = ls
		w.fronts = append(w.fronts, ls.dtls)
	}
	return nil
}

// leave ends the allocations of a listener and forgets its socket, which the caller closes. It returns how many
// allocations ended.
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
	if int(l.id) < len(w.listeners) && w.listeners[l.id] != nil {
		if f := w.listeners[l.id].dtls; f != nil {
			f.close()
			w.fronts = slices.DeleteFunc(w.fronts, func(other *dtlsFront) bool { return other == f })
		}
		w.watched.Remove(w.listeners[l.id].token)
		w.listeners[l.id] = nil
	}
	return ended
}

// close frees what the worker holds, after its goroutine has ended. The Store is not changed, because the allocations
// continue in the next process.
func (w *worker) close() {
	for a := range w.table.All {
		if c, _ := a.Data.(*client); c != nil && c.tcp != nil {
			w.closeTCP(c)
		}
	}
	for s := range w.watched.All {
		if s.relay != nil {
			s.relay.socket.Close()
		}
	}
	w.poller.Close()
}
