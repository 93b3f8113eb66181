package turncat

import (
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/weir-lb/weir/internal/udpio"
)

// holdTime is how long the allocation of the check is held for a client.
const holdTime = int64(10 * time.Second)

var errServerClosed = errors.New("the TURN server closed the connection")

// link is one 5-tuple to the TURN server with its session.
type link struct {
	client  *client // nil: the client is gone and the allocation is being released
	token   uint64
	server  netip.AddrPort
	conn    *udpio.Conn // UDP
	stream  *stream     // TCP, TLS, DTLS; nil until dialed
	session session
	gone    bool
	counted bool // in counters.sessions
}

// connect starts a link for a client: its first one, a new one, or a spare in parallel with one whose credentials
// have expired.
func (w *worker) connect(c *client, now int64) {
	if w.stopAt != 0 {
		return
	}
	if l := w.heldLink; l != nil && !c.renewing {
		w.heldLink = nil
		l.client, c.link = c, l
		w.opened(l, now)
		return
	}
	server := w.t.serverAddr()
	if c.to.IsValid() {
		server = c.to
	}
	l := &link{client: c, server: server}
	l.session = session{
		peer: w.t.peer, tcp: w.t.config.Server.Transport.reliable(), credentials: w.t.config.Credentials,
		lifetime: w.t.config.Lifetime, checkEvery: w.t.config.CheckEvery,
	}
	if c.renewing {
		c.spare = l
	} else {
		c.link = l
	}
	w.enlist(l)
	if w.t.config.Server.Transport != UDP {
		w.t.tasks.Go(func() { w.dial(l, server) })
		return
	}
	if err := w.open(l, server); err != nil {
		w.act(l, l.session.fail(err), now)
		return
	}
	l.session.send = func(message []byte) {
		// If no program listens, the socket reports an error later; a lost request is retransmitted.
		_ = l.conn.WriteAll([]udpio.Message{{Buf: message, N: len(message)}})
	}
	w.act(l, l.session.start(now), now)
	w.soon(l.session.due())
}

func (w *worker) enlist(l *link) {
	w.live++
	l.token = w.links.Add(l)
}

func (w *worker) open(l *link, server netip.AddrPort) error {
	local := netip.IPv4Unspecified()
	if server.Addr().Is6() {
		local = netip.IPv6Unspecified()
	}
	group, err := udpio.Listen(udpio.Config{
		Addr: netip.AddrPortFrom(local, 0), Peer: server, Batch: readBatch, Coalesce: true,
		ReadBuffer: w.t.config.Buffer, WriteBuffer: w.t.config.Buffer,
	})
	if err != nil {
		return err
	}
	l.conn = group.Conn(0)
	return w.poller.AddConn(l.conn, l.token)
}

// dial connects to the server. It runs in a goroutine of its own.
func (w *worker) dial(l *link, server netip.AddrPort) {
	config := &w.t.config
	conn, err := config.dialServer(w.t.ctx, server)
	if err != nil {
		w.inbox.Put(entry{notice: dialed, link: l, err: err})
		return
	}
	s := streamOf(conn)
	s.messages, s.link = config.Server.Transport == DTLS, l
	w.inbox.Put(entry{notice: dialed, link: l, stream: s})
}

func streamOf(conn net.Conn) *stream {
	return newStream(conn, conn, func() { _ = conn.Close() })
}

func (w *worker) dialedLink(l *link, s *stream, err error, now int64) {
	if err != nil {
		if !l.gone {
			w.act(l, l.session.fail(err), now)
		}
		return
	}
	if l.gone {
		s.end()
		return
	}
	l.stream = s
	l.session.send = func(message []byte) { s.put(message, nil, 0) }
	w.t.tasks.Go(s.write)
	if s.messages {
		w.t.tasks.Go(func() { s.readWhole(w.inbox, readBuffer) })
	} else {
		w.t.tasks.Go(func() { s.readFrames(w.inbox) })
	}
	w.act(l, l.session.start(now), now)
	w.soon(l.session.due())
}

// retire releases the allocation of a link that its client no longer uses.
func (w *worker) retire(l *link, now int64) {
	l.client = nil
	w.countSession(l, false)
	w.act(l, l.session.close(now), now)
	if !l.gone {
		w.soon(l.session.due())
	}
}

// drop closes a link's socket and removes the link.
func (w *worker) drop(l *link) {
	if l.gone {
		return
	}
	l.gone = true
	w.countSession(l, false)
	if l.conn != nil {
		_ = l.conn.Close()
	}
	if l.stream != nil {
		l.stream.close()
	}
	w.links.Remove(l.token)
	w.live--
	if w.live == 0 && w.stopAt != 0 {
		w.nextTick = 0
	}
}

func (w *worker) countSession(l *link, on bool) {
	if l.counted == on {
		return
	}
	l.counted = on
	if on {
		w.counters.sessions.Add(1)
	} else {
		w.counters.sessions.Add(-1)
	}
}

// act does what a session's verdict requires.
func (w *worker) act(l *link, v verdict, now int64) {
	switch v {
	case opened:
		w.opened(l, now)
	case lost:
		w.lost(l, now)
	case expired:
		if c := l.client; c != nil && c.spare == nil && c.retryAt == 0 {
			c.renewing = true
			w.connect(c, now)
		}
	case closed:
		w.drop(l)
	case proceed:
		if !l.gone {
			w.soon(l.session.due())
		}
	}
}

// opened starts to use a link.
func (w *worker) opened(l *link, now int64) {
	w.soon(l.session.due())
	c := l.client
	if c == nil {
		w.retire(l, now)
		return
	}
	if c.probe != nil {
		w.holdForFirstClient(c, l, now)
		return
	}
	w.counters.allocations.Add(1)
	w.countSession(l, true)
	w.t.config.Log.Debug("allocation", "client", c.name(), "relay", l.session.relay, "user", l.session.current.User)
	if c.spare == l {
		old := c.link
		c.link, c.spare = l, nil
		c.renewing = false
		w.counters.moved.Add(1)
		if old != nil {
			w.retire(old, now)
		}
	}
	if c.attempts > 0 {
		w.t.serverBack(l.session.relay)
	}
	c.attempts, c.retryAt = 0, 0
	for _, data := range c.held {
		w.sendCopy(c, data)
	}
	c.release(w)
	w.flushUp(now)
	if c.stream != nil && !c.reading {
		c.reading = true
		s := c.stream
		w.t.tasks.Go(s.write)
		read := func() { s.readWhole(w.inbox, w.t.config.MTU) }
		if w.t.config.Listen.Kind == KindStdio {
			go read() // a blocked read of a terminal cannot be interrupted
		} else {
			w.t.tasks.Go(read)
		}
	}
}

// holdForFirstClient ends a successful check. Its allocation is held for the first client for some time, because a user with a
// quota of one could not get a second one.
func (w *worker) holdForFirstClient(c *client, l *link, now int64) {
	c.link, l.client = nil, nil
	w.heldLink, w.heldUntil = l, now+holdTime
	w.soon(w.heldUntil)
	c.probe <- nil
	w.remove(c, now)
}

// releaseHeld releases the check's allocation.
func (w *worker) releaseHeld(now int64) {
	if l := w.heldLink; l != nil {
		w.heldLink = nil
		w.retire(l, now)
	}
}

// lost ends a link; its client tries again later.
func (w *worker) lost(l *link, now int64) {
	had, c, err := l.counted, l.client, l.session.err
	w.drop(l)
	if w.heldLink == l {
		w.heldLink = nil
		return
	}
	if had {
		w.counters.lost.Add(1)
	} else {
		w.counters.failures.Add(1)
	}
	if c == nil {
		return
	}
	if c.probe != nil {
		if alternate := l.session.alternate; alternate.IsValid() && !c.to.IsValid() {
			c.to = alternate
			w.connect(c, now)
			return
		}
		c.probe <- err
		c.probe = make(chan error, 1)
		w.remove(c, now)
		return
	}
	w.t.warn("no session with the TURN server", "server", l.server, "error", err, "client", c.name())
	if c.spare == l {
		c.spare = nil
	} else {
		c.link = nil
		c.renewing = false
		if c.spare != nil { // the spare replaces the link
			c.link, c.spare = c.spare, nil
			return
		}
	}
	w.counters.gap.Add(uint64(len(c.held)))
	c.release(w)
	if alternate := l.session.alternate; alternate.IsValid() && !c.to.IsValid() {
		c.to = alternate
		w.connect(c, now)
		return
	}
	c.to = netip.AddrPort{}
	w.again(c, now)
	w.t.lookAgain()
}
