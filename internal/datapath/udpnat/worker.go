package udpnat

import (
	"errors"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/steer"
	"github.com/weir-lb/weir/internal/udpio"
	"github.com/weir-lb/weir/internal/workers"
)

const (
	batchSize = 64
	// eventsSize is how many ready sockets one iteration of the loop serves.
	eventsSize = 256
	// slabSize is the memory for replies that wait for their batch. Each reply needs room for the longest datagram.
	slabSize = 512 << 10
	// longest has room for one datagram of either family and one more byte, which shows that a datagram was longer.
	longest = 1 << 16
	// idleInterval is how often a worker without traffic checks its entries.
	idleInterval = time.Second
)

// listener is one worker's socket of a VIP, with the replies that wait to be sent through it.
type listener struct {
	addr  netip.AddrPort // as bound; the address may be unspecified
	conn  *udpio.Conn
	out   []udpio.Message
	dirty bool
}

// worker owns its sockets, entries and Engine. It shares nothing with other workers except what dp points to.
type worker struct {
	dp     *Datapath
	id     int
	poller *udpio.Poller
	engine *steer.Engine
	table  entries

	listeners    []*listener // by number in the token; nil: closed
	waiting      []*listener // those with replies to send
	in           []udpio.Message
	slab         []byte
	used         int // of slab
	tokens       [eventsSize]uint64
	counters     Counters
	faults       faultState
	reverse      bool
	connected    bool // outgoing sockets are connected
	filter       bool
	shortestIdle time.Duration
	nextExpiry   time.Duration
	nextRoom     time.Duration
	beyond       bool // this worker exceeds the bound by one entry, see admit

	inKernel []*entry // those in Config.Offload, in no order
	noted    int      // noteUse was called for so many of them in this pass

	// This cache saves a look-up in the watch when consecutive datagrams have the same backend.
	lastBackend *lb.Backend
	lastDest    *destination

	inbox *workers.Inbox[*worker]
}

// run serves until it receives the stop request. It returns the error that ended it.
func (w *worker) run() error {
	w.nextExpiry = w.dp.config.Now() + idleInterval
	for {
		n, woken, err := w.poller.Wait(w.tokens[:], w.pollTimeout())
		if err != nil {
			return err
		}
		now := w.dp.config.Now()
		if woken && !w.inbox.Serve(w) {
			return nil
		}
		for _, token := range w.tokens[:n] {
			if token >= workers.OwnTokens { // a VIP socket
				w.readListener(int(uint32(token)), now)
			} else if e := w.table.tokens.At(token); e != nil {
				w.readEntry(e, now)
			}
		}
		w.flush()
		w.runDue(now)
	}
}

// pollTimeout is how long the loop may sleep.
func (w *worker) pollTimeout() time.Duration {
	if w.noted < len(w.inKernel) {
		return 0
	}
	if len(w.faults.held) == 0 {
		return idleInterval
	}
	return min(idleInterval, max(0, w.faults.held[0].due-w.dp.config.Now()))
}

// runDue does what is due at now: delayed datagrams and timeouts.
func (w *worker) runDue(now time.Duration) {
	for {
		d, ok := w.faults.release(now)
		if !ok {
			break
		}
		w.steer(d.listener, d.client, d.local, d.payload, now)
	}
	w.relieve()
	w.noteUses(now)
	if now < w.nextExpiry {
		return
	}
	w.nextExpiry = now + max(10*time.Millisecond, min(idleInterval, w.shortestIdle/4))
	w.noted = 0
	w.expire(now)
	w.engine.Expire(now, batchSize)
}

// relieve evicts an entry for another worker that had nothing to evict, or because the limit was lowered.
func (w *worker) relieve() {
	spared := 0
	if w.beyond {
		spared = 1 // the entry with which this worker exceeds the bound
	}
	for w.dp.entries.Load() > w.dp.limit.Load() {
		if w.table.order.Len() <= spared || !w.evict() {
			return
		}
	}
	w.beyond = false
}

func (w *worker) readListener(number int, now time.Duration) {
	l := w.listeners[number]
	if l == nil {
		return
	}
	n, err := l.conn.ReadBatch(w.in, 0)
	if err != nil {
		w.counters.ReceiveErrors++
		return
	}
	for i := range w.in[:n] {
		m := &w.in[i]
		local := m.Local
		if !local.IsValid() {
			local = l.addr.Addr()
		}
		w.fromClient(l, m.Addr, local, m.Buf[:m.N], now)
	}
}

// fromClient applies the faults to one datagram and steers it if it remains.
func (w *worker) fromClient(l *listener, client netip.AddrPort, local netip.Addr, payload []byte, now time.Duration) {
	w.counters.Received++
	if w.filter && !isDTLS(payload) {
		w.counters.Filtered++
		w.engine.Count(lb.ReasonNotDTLS, nil)
		return
	}
	if w.faults.on {
		switch w.faults.onForward(len(payload)) {
		case lost:
			w.counters.LostForward++
			w.engine.Count(lb.ReasonFault, nil)
			return
		case tooLong:
			w.counters.TooLong++
			w.engine.Count(lb.ReasonFault, nil)
			return
		case late:
			if w.faults.hold(heldDatagram{listener: l, client: client, local: local}, payload, now) {
				w.counters.Reordered++
				return
			}
			w.counters.HeldFull++
		case cut:
			w.counters.Truncated++
			payload = payload[:w.faults.TruncateLimit]
		}
	}
	w.steer(l, client, local, payload, now)
}

// steer finds or makes the entry of a datagram, and sends the datagram.
func (w *worker) steer(l *listener, client netip.AddrPort, local netip.Addr, payload []byte, now time.Duration) {
	key := flow.NewKey(client, netip.AddrPortFrom(local, l.addr.Port()), flow.ProtoUDP)
	e := w.table.byKey[key]
	if e != nil && e.pinned && w.keepsPin(e, now) {
		w.transmit(e, payload, now)
		return
	}
	if e != nil && !e.answered {
		w.moveUnanswered(e, now)
	}
	if e == nil && !w.mayAdmit(now) && !w.engine.NamesOwner(key, payload) {
		w.counters.EntriesFull++
		w.engine.Count(lb.ReasonFlowTableFull, nil)
		return
	}
	decisions := w.dp.offload.decisions.Load() // first: others may come while steering decides
	d := w.engine.Datagram(key, payload, now)
	if d.Action != lb.Forward {
		w.counters.Undecided++
		return
	}
	dest := w.destination(d)
	rolled := e == nil || e.dest != dest
	if rolled && d.Reason != lb.ReasonCID {
		if probe := w.dp.watch.claimProbe(w.dp.view.Load(), d.Service.Name, now); probe != nil {
			w.tryProbe(e, probe, l, client, local, key, d.Service, payload, now)
			return
		}
	}
	switch {
	case e == nil:
		if e = w.open(l, client, local, key, d.Service, dest, d.Reason == lb.ReasonCID, now); e == nil {
			return
		}
	case rolled:
		if err := w.retarget(e, dest); err != nil {
			w.counters.SendErrors++
			dest.unreachable(err)
			w.close(e)
			return
		}
		e.service, e.idle = d.Service.Name, d.Service.Timeouts.UDP // the VIP may belong to another service now
	}
	e.steered = decisions
	w.transmit(e, payload, now)
}

// tryProbe sends the datagram of a new or moving flow to a destination that may answer again. The flow stays there until the
// result is known.
func (w *worker) tryProbe(e *entry, probe *destination, l *listener, client netip.AddrPort, local netip.Addr, key flow.Key, service *lb.Service, payload []byte, now time.Duration) {
	if e == nil {
		if e = w.open(l, client, local, key, service, probe, false, now); e == nil {
			probe.set(Stale, now) // not Probing, because the next new flow would be lost as well
			return
		}
	} else if err := w.retarget(e, probe); err != nil {
		probe.set(Stale, now)
		return
	}
	e.pinned = true
	w.transmit(e, payload, now)
}

// keepsPin reports whether an entry still waits for a probed destination. A destination that answers becomes the flow's
// backend when a snapshot has it up. If it does not answer, the flow goes where steering decides.
func (w *worker) keepsPin(e *entry, now time.Duration) bool {
	switch BackendState(e.dest.state.Load()) {
	case Pending:
		return true
	case Active:
		b := w.backendOf(e.dest.target)
		if b == nil {
			break
		}
		if b.State == lb.Down {
			return true // a snapshot that has it up will follow
		}
		w.engine.Reassign(e.key, b, now)
	}
	e.pinned = false
	return false
}

func (w *worker) backendOf(t lb.Target) *lb.Backend {
	service := w.engine.Snapshot().Service(t.Service)
	if service == nil {
		return nil
	}
	return service.Backend(t.Backend)
}

// destination returns the shared record of a decision's destination.
func (w *worker) destination(d steer.Decision) *destination {
	if d.Backend == w.lastBackend && w.lastDest.addr == d.Destination {
		return w.lastDest
	}
	w.lastBackend = d.Backend
	w.lastDest = w.dp.watch.get(lb.Target{Service: d.Service.Name, Backend: d.Backend.Name}, d.Destination)
	return w.lastDest
}

// transmit sends one datagram to the entry's backend.
func (w *worker) transmit(e *entry, payload []byte, now time.Duration) {
	w.table.touch(e, now)
	err := w.send(e, payload)
	if errors.Is(err, unix.ECONNREFUSED) { // the result of an earlier datagram; this one was not sent yet
		w.counters.Refused++
		e.dest.refused.Add(1)
		err = w.send(e, payload)
	}
	if err != nil {
		w.counters.SendErrors++
		e.dest.unreachable(err)
		w.engine.Count(lb.ReasonSendFailed, nil)
		return
	}
	e.dest.forwarded(now, e.answered)
	if !e.answered {
		if e.missed++; e.missed == 1 {
			e.missedFrom = now
		}
	}
	w.counters.Forwarded++
	w.counters.ForwardedBytes += uint64(len(payload))
}

func (w *worker) send(e *entry, payload []byte) error {
	if e.socket.Connected() {
		return e.socket.Send(payload)
	}
	return e.socket.SendTo(payload, e.dest.addr)
}
