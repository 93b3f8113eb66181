package turncat

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pion/stun/v4"

	"github.com/weir-lb/weir/internal/turn/requests"
	"github.com/weir-lb/weir/internal/udpio"
	"github.com/weir-lb/weir/internal/workers"
)

const (
	readBatch  = 32
	readBuffer = 65536 // a coalesced read (UDP_GRO) fills it
	outSlots   = 256
	stageBytes = 256 << 10
	nearToken  = workers.OwnTokens // the others are those of links
	tickGrain  = 10 * int64(time.Millisecond)
	stopTime   = 3 * int64(time.Second)
)

// worker owns a share of the clients. Everything in it belongs to the goroutine of run.
type worker struct {
	t      *Tunnel
	near   *udpio.Conn // the listener's socket; nil: the clients are streams
	poller *udpio.Poller
	inbox  *workers.Mailbox[entry]

	clients   map[netip.AddrPort]*client // of near
	all       map[*client]struct{}
	last      *client // of the last datagram
	links     workers.Tokens[*link]
	live      int // links
	heldSize  int // bytes held for first sessions
	nextTick  int64
	stopAt    int64 // 0: not stopping
	heldLink  *link // the link of the check, reused for the first client
	heldUntil int64
	broken    error

	fromNear  []udpio.Message // buffers inside frames, behind the head room
	frames    [][]byte
	linkBatch []udpio.Message
	up        batch
	down      []udpio.Message
	counters  counters
}

func newWorker(t *Tunnel, near *udpio.Conn) (*worker, error) {
	w := &worker{t: t, near: near, clients: map[netip.AddrPort]*client{}, all: map[*client]struct{}{}}
	var err error
	if w.poller, err = udpio.NewPoller(64); err != nil {
		return nil, err
	}
	w.inbox = newInbox(w.poller.Wake)
	if near != nil {
		block := make([]byte, readBatch*(headerBytes+readBuffer))
		w.fromNear = make([]udpio.Message, readBatch)
		w.frames = make([][]byte, readBatch)
		for i := range w.frames {
			w.frames[i] = block[:headerBytes+readBuffer]
			w.fromNear[i].Buf = w.frames[i][headerBytes:]
			block = block[headerBytes+readBuffer:]
		}
	}
	if t.config.Server.Transport == UDP {
		w.linkBatch = udpio.NewMessages(readBatch, readBuffer)
	}
	w.down = make([]udpio.Message, 0, outSlots)
	w.up.init()
	return w, nil
}

func (w *worker) run() error {
	defer w.inbox.End()
	defer w.poller.Close()
	tokens := make([]uint64, 64)
	n := 0
	for {
		now := w.t.now()
		if now >= w.nextTick {
			w.tick(now)
			if w.stopAt != 0 && (w.live == 0 || now >= w.stopAt) {
				return nil
			}
		}
		var woken bool
		var err error
		if n > 0 { // it has just been busy
			n, woken, err = w.poller.WaitBusy(tokens, time.Millisecond)
		} else {
			n, woken, err = w.poller.Wait(tokens, time.Duration(max(w.nextTick-now, 0)))
		}
		if err != nil {
			return err
		}
		if n > 0 && w.t.config.Gather > 0 {
			w.t.gather()
		}
		now = w.t.now()
		if woken {
			if w.takeInbox(now); w.broken != nil {
				return w.broken
			}
		}
		for _, token := range tokens[:n] {
			if token == nearToken {
				if err := w.readNear(now); err != nil {
					return err
				}
			} else if l := w.links.At(token); l != nil {
				w.readServer(l, now)
			}
		}
	}
}

// readNear relays a batch of the clients' datagrams to the server.
func (w *worker) readNear(now int64) error {
	if w.near == nil {
		return nil
	}
	n, err := w.near.ReadBatch(w.fromNear, 0)
	if err != nil {
		if errors.Is(err, unix.ECONNREFUSED) {
			return nil
		}
		return fmt.Errorf("read from clients: %w", err)
	}
	for i := range n {
		m := &w.fromNear[i]
		c := w.last
		if c == nil || c.addr != m.Addr || c.removed {
			if c = w.clientAt(m, now); c == nil {
				continue
			}
			w.last = c
		}
		c.local, c.lastSeen = m.Local, now
		switch {
		case m.Truncated:
			w.counters.long.Add(1)
		case m.Segment == 0:
			w.send(c, w.frames[i][:headerBytes+m.N])
		default:
			for at := 0; at < m.N; at += m.Segment {
				w.sendCopy(c, m.Buf[at:min(at+m.Segment, m.N)])
			}
		}
	}
	w.flushUp(now)
	return nil
}

// send queues the data behind frame's head room for a client's link.
func (w *worker) send(c *client, frame []byte) {
	n := len(frame) - headerBytes
	l := c.link
	switch {
	case n > maxData:
		w.counters.long.Add(1)
	case l == nil || l.session.stage != ready:
		c.hold(w, frame[headerBytes:])
	case l.conn != nil:
		requests.PutChannelHeader(frame, n)
		w.queue(c, frame)
	default:
		requests.PutChannelHeader(frame, n)
		w.put(c, frame, nil)
	}
}

// sendCopy is send for data without head room.
func (w *worker) sendCopy(c *client, data []byte) {
	l := c.link
	if len(data) <= maxData && l != nil && l.session.stage == ready && l.conn == nil {
		var head [headerBytes]byte
		requests.PutChannelHeader(head[:], len(data))
		w.put(c, head[:], data)
		return
	}
	w.send(c, w.stage(data))
}

// stage copies data behind head room into memory that is valid until the next flushUp.
func (w *worker) stage(data []byte) []byte {
	b := &w.up
	if b.staged+headerBytes+len(data) > len(b.memory) {
		w.flushUp(w.t.now())
	}
	frame := b.memory[b.staged : b.staged+headerBytes+len(data)]
	b.staged += len(frame)
	copy(frame[headerBytes:], data)
	return frame
}

// put passes ChannelData to a link over TCP, TLS or DTLS, padded to a multiple of four bytes. RFC 8656 section 12.5
// requires the padding over TCP and TLS and allows it over DTLS, where some servers (STUNner's) parse frames as on a
// stream and require it too.
func (w *worker) put(c *client, head, data []byte) {
	l := c.link
	pad := -(len(head) + len(data)) & 3
	if !l.stream.put(head, data, pad) {
		w.counters.queue.Add(1)
		return
	}
	l.session.used = true
	w.counters.upPackets.Add(1)
	w.counters.upBytes.Add(uint64(len(head) + len(data) - headerBytes))
}

// readServer relays a batch of a link's datagrams to its client.
func (w *worker) readServer(l *link, now int64) {
	n, err := l.conn.ReadBatch(w.linkBatch, 0)
	if err != nil {
		if errors.Is(err, unix.ECONNREFUSED) {
			w.act(l, l.session.unreachable(now), now)
		} else {
			w.act(l, l.session.fail(err), now)
		}
		return
	}
	for i := range n {
		m := &w.linkBatch[i]
		size := m.N
		if m.Segment > 0 {
			size = m.Segment
		}
		for at := 0; at < m.N && !l.gone; at += size {
			w.fromServer(l, m.Buf[at:min(at+size, m.N)], now)
		}
	}
	w.flushDown()
}

// fromServer handles one message of the TURN server.
func (w *worker) fromServer(l *link, b []byte, now int64) {
	if data, ok := requests.ChannelData(b); ok && l.client != nil {
		w.deliver(l.client, data, now)
		return
	}
	if !stun.IsMessage(b) {
		w.counters.strays.Add(1)
		return
	}
	if b[0] == 0 && b[1] == 0x17 { // Data indication
		if data, ok := dataIndication(b, w.t.peer); ok && l.client != nil {
			w.deliver(l.client, data, now)
		} else {
			w.counters.strays.Add(1)
		}
		return
	}
	w.act(l, l.session.receive(b, now), now)
}

// deliver relays data of the peer to a client. The data must stay valid until flushDown.
func (w *worker) deliver(c *client, data []byte, now int64) {
	c.lastSeen = now
	if c.stream != nil {
		if !c.stream.put(data, nil, 0) {
			w.counters.queue.Add(1)
			return
		}
		w.counters.downPackets.Add(1)
		w.counters.downBytes.Add(uint64(len(data)))
		return
	}
	if len(w.down) == cap(w.down) {
		w.flushDown()
	}
	w.down = append(w.down, udpio.Message{Buf: data, N: len(data), Addr: c.addr, Local: c.local})
}

func (w *worker) flushDown() {
	if len(w.down) == 0 {
		return
	}
	if w.near != nil {
		sent, bytes := w.near.WriteAll(w.down), 0
		for i := range w.down {
			bytes += w.down[i].N
		}
		w.counters.downPackets.Add(uint64(sent))
		w.counters.downBytes.Add(uint64(bytes))
		w.counters.errors.Add(uint64(len(w.down) - sent))
	}
	w.down = w.down[:0]
}
