package engine

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/weir-lb/weir/internal/udpio"
)

const (
	linkBatch = 32
	// linkSize holds a coalesced run of frames (UDP_GRO).
	linkSize = 65535

	tokenPublic = 0
	tokenLink   = 1
)

// loop reads and writes a worker's datagrams. It holds what this needs in addition to the worker's state.
type loop struct {
	worker   *Worker
	public   *udpio.Conn
	link     *udpio.Conn // nil without a cluster
	poller   *udpio.Poller
	messages []udpio.Message
	frames   []udpio.Message
	tokens   [2]uint64
	start    time.Time
	engine   *Engine
	noMore   sync.Once // it reads no more
	// ready: the socket may have more to read.
	publicReady, linkReady bool
	sincePoll              int // rounds since the last epoll_wait

	inFlight *inFlight // nil: what is under way ends with the process
	left     leftOver  // of the process before
}

func newLoop(e *Engine, w *Worker, public, link *udpio.Conn, start time.Time) (*loop, error) {
	l := &loop{engine: e, worker: w, public: public, link: link, start: start}
	if l.inFlight = openInFlight(w.cfg.InFlight, w.id, w.cfg.Batch); l.inFlight != nil {
		l.left = l.inFlight.take(w.cfg.Batch)
		l.messages = l.inFlight.read.Messages()
		public.ReadBy(l.inFlight.read)
		w.out.outlive(l.inFlight)
	} else {
		l.messages = udpio.NewMessages(w.cfg.Batch, receiveSize)
	}
	w.out.publicOut = func(m []udpio.Message) { public.WriteAll(m) }
	var err error
	if l.poller, err = udpio.NewPoller(2); err != nil {
		return nil, err
	}
	w.inbox, w.requests = newInbox(l.poller.Wake), e.group.Add(l, l.poller.Wake)
	err = l.poller.AddConn(public, tokenPublic)
	if link != nil && err == nil {
		l.frames = udpio.NewMessages(linkBatch, linkSize)
		w.out.linkOut = func(m []udpio.Message) { link.WriteAll(m) }
		err = l.poller.AddConn(link, tokenLink)
	}
	if err != nil {
		l.poller.Close()
		return nil, err
	}
	return l, nil
}

// run serves until the group ends it or a socket fails.
func (l *loop) run() error {
	w := l.worker
	w.wakeAt = 0 // the first tick calls the handler and the cluster, which then set the time
	if w.cfg.Cluster != nil {
		w.clusterAt = 0
	}
	l.goOn()
	for {
		requests := w.stats.Requests
		if err := l.read(); err != nil {
			return err
		}
		w.stats.Rounds++
		if !l.serveOthers() {
			l.lastArrivals()
			l.closeSessions()
			return nil
		}
		w.tick()
		w.out.flush()
		if w.cfg.Arena != nil {
			w.cfg.Arena.Seen(w.now)
		}
		if served := w.stats.Requests - requests; served > 0 {
			w.stats.RequestTime.ObserveN(time.Since(l.start)-w.now, served)
		}
		l.publish()
	}
}

// goOn sends and handles what the process before has left.
func (l *loop) goOn() {
	left := l.left
	l.left = leftOver{}
	if len(left.leaving)+len(left.arrived) == 0 {
		return
	}
	w := l.worker
	w.now = time.Since(l.start)
	w.beginRound()
	w.tick()
	l.public.WriteAll(left.leaving)
	for i := range left.arrived {
		m := &left.arrived[i]
		w.datagram(m.Buf, source{addr: m.Addr, local: m.Local}, false)
	}
	w.stats.LeftSent += uint64(len(left.leaving))
	w.stats.LeftHandled += uint64(len(left.arrived))
	w.out.flush()
}

// read waits for something to do and reads one batch from each socket that may have one.
func (l *loop) read() error {
	busy := l.publicReady || l.linkReady
	if l.sincePoll++; !busy || l.sincePoll > maxRoundsUnpolled {
		wait := time.Duration(0)
		if !busy {
			wait = l.pollTimeout()
		}
		n, _, err := l.poller.Wait(l.tokens[:], wait)
		if err != nil {
			return err
		}
		l.sincePoll = 0
		for _, token := range l.tokens[:n] {
			l.publicReady = l.publicReady || token == tokenPublic
			l.linkReady = l.linkReady || token == tokenLink
		}
	}
	l.worker.now = time.Since(l.start)
	l.worker.beginRound()
	if l.publicReady {
		n, err := l.public.ReadBatch(l.messages, 0)
		if err != nil && !errors.Is(err, udpio.ErrWoken) {
			return err
		}
		l.publicReady = n >= worthwhile
		l.datagrams(n)
	}
	if l.linkReady {
		n, err := l.link.ReadBatch(l.frames, 0)
		if err != nil && !errors.Is(err, udpio.ErrWoken) {
			return err
		}
		l.linkReady = n >= worthwhile
		for i := range l.frames[:n] {
			l.frame(&l.frames[i])
		}
	}
	return nil
}

// maxRoundsUnpolled is for how many rounds one busy socket may keep the other one waiting. It prevents that a flood of
// clients blocks the cluster's socket, or the other way round.
const maxRoundsUnpolled = 4

// worthwhile is the minimum number of messages of a read after which another read is tried at once. After fewer messages
// another read rarely returns any, and epoll_wait costs less.
const worthwhile = 4

// pollTimeout is how long the worker may wait. It counts from the last reading of the clock, so timers may be late by the
// time that one batch took.
func (l *loop) pollTimeout() time.Duration {
	next := l.worker.next()
	if next == Never {
		return udpio.Forever
	}
	return max(next-l.worker.now, 0)
}

func (l *loop) datagrams(n int) {
	w := l.worker
	for i := range l.messages[:n] {
		if l.inFlight != nil {
			l.inFlight.read.Handling(i+1, n)
		}
		m := &l.messages[i]
		if m.Truncated {
			w.stats.Truncated++
			continue
		}
		w.datagram(m.Buf[:m.N], source{addr: m.Addr, local: m.Local}, false)
	}
}

// frame hands a message of the link, which may be a run of frames, to the cluster.
func (l *loop) frame(m *udpio.Message) {
	w := l.worker
	if m.Truncated {
		w.stats.Truncated++
		return
	}
	b := m.Buf[:m.N]
	for size := m.Segment; size > 0 && len(b) > size; b = b[size:] {
		w.cfg.Cluster.Frame(w, b[:size:size], m.Addr, w.now)
	}
	w.cfg.Cluster.Frame(w, b, m.Addr, w.now)
}

// serveOthers does what other goroutines have left for the worker. It returns false if the worker must end.
func (l *loop) serveOthers() bool {
	l.worker.takeOver()
	return l.worker.requests.Serve(l)
}

// takeOver handles the datagrams that other workers have left.
func (w *Worker) takeOver() {
	datagrams, data := w.inbox.Take()
	for _, d := range datagrams {
		w.datagram(data[:d.bytes:d.bytes], d.from, true)
		data = data[d.bytes:]
	}
}

// othersRead is how long a worker that ends waits for the others, of which each handles one batch more at most.
const othersRead = time.Second

// lastArrivals handles what the other workers have read for this one until they read no more: the clients of a process that leaves its sessions
// to another one would have to repeat it.
func (l *loop) lastArrivals() {
	l.readNoMore()
	timer := time.NewTimer(othersRead)
	defer timer.Stop()
	select {
	case <-l.engine.allRead:
	case <-timer.C:
	}
	l.worker.takeOver()
}

// readNoMore says that this worker reads no more.
func (l *loop) readNoMore() {
	l.noMore.Do(func() {
		if l.engine.reading.Add(-1) == 0 {
			close(l.engine.allRead)
		}
	})
}

// closeSessions sends close_notify to every session, unless another process goes on with them.
func (l *loop) closeSessions() {
	w := l.worker
	l.endMailboxes()
	for p := w.peers.oldest; p != nil && !l.engine.leaving.Load(); p = w.peers.oldest {
		w.Close(p)
	}
	w.out.flush()
	l.publish()
}

func (l *loop) endMailboxes() {
	l.worker.requests.End()
	l.worker.inbox.End()
}

func (l *loop) publish() {
	w := l.worker
	w.stats.KernelDrops = l.public.Stats().Dropped
	if l.link != nil {
		link := l.link.Stats()
		w.stats.KernelDrops += link.Dropped
		w.stats.LinkSegmented, w.stats.LinkUnsegmented = link.Segmented, link.Unsegmented
	}
	w.publish()
}

func (l *loop) close() {
	l.endMailboxes()
	if l.poller != nil {
		l.poller.Close()
	}
}

// socketError returns nil for an error that our own closing of the socket has caused.
func socketError(id int, err error) error {
	if err == nil || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return fmt.Errorf("worker %d: %w", id, err)
}
