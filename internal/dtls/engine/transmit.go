package engine

import (
	"net/netip"
	"slices"

	"github.com/weir-lb/weir/internal/dtls/record"
	"github.com/weir-lb/weir/internal/udpio"
)

const (
	// sendSize holds a frame's header, a record's head room, the largest payload and the tail.
	sendSize = LinkHeadRoom + record.MaxHeadRoom + MaxPayload + record.MaxTailRoom + 128
	// receiveSize is the largest datagram taken; with its frame's header it fits a send buffer.
	receiveSize = sendSize - LinkHeadRoom
	// inHand is the maximum number of send buffers that are neither queued nor free: one that holds an answer in progress,
	// one of a Send meanwhile, one of LinkBuffer, and the same number for a request that came in a frame.
	inHand = 6
)

// transmit collects what a worker sends until it is flushed. Public and link
// messages share one pool of buffers.
type transmit struct {
	free       [][]byte
	used       [][]byte // buffers of queued messages
	toPublic   []udpio.Message
	toLink     []linked
	sorted     []udpio.Message
	linkBuffer []byte
	inFlight   *inFlight // nil: what is queued ends with the process

	// publicOut and linkOut write messages to the sockets, or to a test.
	publicOut, linkOut func([]udpio.Message)
}

func newTransmit(batch int) transmit {
	t := transmit{
		free: make([][]byte, 0, batch+inHand), used: make([][]byte, 0, batch+inHand),
		toPublic: make([]udpio.Message, 0, batch+inHand), toLink: make([]linked, 0, batch+inHand),
		sorted:    make([]udpio.Message, 0, batch+inHand),
		publicOut: func([]udpio.Message) {}, linkOut: func([]udpio.Message) {},
	}
	t.buffers(make([]byte, (batch+inHand)*sendSize))
	return t
}

// buffers makes send buffers of a block.
func (t *transmit) buffers(block []byte) {
	t.free = t.free[:0]
	for i := range cap(t.free) {
		t.free = append(t.free, block[i*sendSize:(i+1)*sendSize:(i+1)*sendSize])
	}
}

// outlive has what is queued for the public socket outlive the process. Nothing must be queued yet.
func (t *transmit) outlive(f *inFlight) {
	t.inFlight = f
	t.buffers(f.out)
}

// acquire returns a buffer of sendSize bytes, which then is queued or released.
func (t *transmit) acquire() []byte {
	if len(t.free) < inHand {
		t.flush()
	}
	if len(t.free) == 0 {
		panic("engine: more send buffers in hand than there can be")
	}
	b := t.free[len(t.free)-1]
	t.free = t.free[:len(t.free)-1]
	return b
}

func (t *transmit) release(b []byte) { t.free = append(t.free, b) }

// public queues datagram, a part of buffer b.
func (t *transmit) public(b, datagram []byte, to netip.AddrPort, local netip.Addr) {
	t.used = append(t.used, b)
	t.toPublic = append(t.toPublic, udpio.Message{Buf: datagram, N: len(datagram), Addr: to, Local: local})
	if t.inFlight != nil {
		t.inFlight.sends(datagram, to, local, len(t.toPublic))
	}
}

// linked is a message of the link. Messages with the same queueHint are for one worker of the other node, because a
// segmented send arrives at one socket as a whole.
type linked struct {
	frame     []byte
	to        netip.AddrPort
	queueHint int
	inOrder   bool // behind those that were queued before it
}

// rank is by which messages of one node and hint are sorted.
func (m *linked) rank() int {
	if m.inOrder {
		return 1 << 20 // longer than any
	}
	return len(m.frame)
}

// link queues frame, a part of buffer b.
func (t *transmit) link(b, frame []byte, to netip.AddrPort, queueHint int, inOrder bool) {
	t.used = append(t.used, b)
	t.toLink = append(t.toLink, linked{frame: frame, to: to, queueHint: queueHint, inOrder: inOrder})
}

// flush writes everything queued and frees its buffers.
func (t *transmit) flush() {
	if len(t.used) == 0 {
		return
	}
	if len(t.toPublic) > 0 {
		t.publicOut(t.toPublic)
		if t.inFlight != nil {
			t.inFlight.sent()
		}
		t.toPublic = t.toPublic[:0]
	}
	if len(t.toLink) > 0 {
		t.linkOut(t.gather())
		t.toLink = t.toLink[:0]
	}
	t.free = append(t.free, t.used...)
	t.used = t.used[:0]
}

// gather puts link messages with the same node and queue hint next to each other, the longest first, so that those of one length
// leave in one segmented send, which the first shorter one ends.
func (t *transmit) gather() []udpio.Message {
	slices.SortStableFunc(t.toLink, func(a, b linked) int {
		if a.queueHint != b.queueHint {
			return a.queueHint - b.queueHint
		}
		if a.to != b.to {
			return a.to.Compare(b.to)
		}
		return b.rank() - a.rank()
	})
	t.sorted = t.sorted[:0]
	for _, m := range t.toLink {
		t.sorted = append(t.sorted, udpio.Message{Buf: m.frame, N: len(m.frame), Addr: m.to})
	}
	return t.sorted
}

// Send seals payload for p and queues it; the worker writes the batch at the end of its current round. It returns false if p
// is closed, if payload exceeds MaxPayload, or if the amplification limit of an unproven address forbids it. It copies
// payload.
func (w *Worker) Send(p *Peer, payload []byte) bool { return w.SendParts(p, payload) }

// SendParts is Send for a payload that consists of parts, one after the other.
func (w *Worker) SendParts(p *Peer, parts ...[]byte) bool {
	n := 0
	for _, part := range parts {
		n += len(part)
	}
	if p.closed || n > MaxPayload {
		return false
	}
	b := w.out.acquire()
	start := headRoom(p)
	at := start
	for _, part := range parts {
		at += copy(b[at:], part)
	}
	return w.transmit(p, record.ApplicationData, b, start, n)
}

// headRoom is where a payload starts in a send buffer.
func headRoom(p *Peer) int {
	if p.association == nil {
		return 0
	}
	return LinkHeadRoom + p.association.HeadRoom()
}

// transmit seals b[start:start+n] and queues it on the path of p's replies.
func (w *Worker) transmit(p *Peer, typ record.ContentType, b []byte, start, n int) bool {
	if p.association != nil && (w.copying.silenced || p.association.Sent() >= p.watermark) && !w.maySeal(p) {
		w.out.release(b)
		return false
	}
	if !w.charge(p, n+p.Overhead()) {
		w.out.release(b)
		return false
	}
	if p.association == nil {
		w.stats.BytesOut += uint64(n)
		w.out.public(b, b[:n], p.addr, p.local)
		return true
	}
	p.keepSent()
	sealed, err := p.association.Seal(&w.scratch, typ, b, start, n)
	if err != nil {
		w.stats.SendErrors++
		w.out.release(b)
		return false
	}
	w.stats.RecordsOut++
	w.stats.BytesOut += uint64(len(sealed))
	w.dispatch(p, b, start-p.association.HeadRoom(), sealed)
	return true
}

// dispatch queues datagram, which starts at b[at:], on the path on which p's newest record came.
func (w *Worker) dispatch(p *Peer, b []byte, at int, datagram []byte) {
	if p.router.IsValid() && w.cfg.Cluster != nil {
		if from, ok := w.cfg.Cluster.Return(w, b, at, datagram, p.addr, p.router); ok && from >= 0 && from <= at {
			w.stats.Returned++
			w.out.link(b, b[from:at+len(datagram)], p.router, 0, false)
			return
		}
	}
	w.out.public(b, datagram, p.addr, p.local)
}

// Alerts (RFC 5246 section 7.2).
const (
	alertWarning         = 1
	alertFatal           = 2
	alertCloseNotify     = 0
	alertBadRecordMAC    = 20
	alertNoRenegotiation = 100
)

// closeNotify queues the alert that ends a session (RFC 5246 section 7.2.1).
func (w *Worker) closeNotify(p *Peer) { w.sendAlert(p, alertWarning, alertCloseNotify) }

// sendAlert queues an alert that p's keys protect.
func (w *Worker) sendAlert(p *Peer, level, description byte) {
	if p.association == nil {
		return
	}
	b := w.out.acquire()
	start := headRoom(p)
	b[start], b[start+1] = level, description
	w.transmit(p, record.Alert, b, start, 2)
}
