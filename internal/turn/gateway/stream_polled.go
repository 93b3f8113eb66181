package gateway

import (
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/turn/allocation"
	"github.com/weir-lb/weir/internal/udpio"
)

// polledConn is one client connection of a TCP listener, or of a TLS listener after its handshake (see streamConn). The poller of its worker reports when it can be read or written, so
// it needs no goroutine. It holds memory for messages only while one is incomplete or queued for writing.
//
//	accept ─► begin ─► guest: no allocation yet, for guestTime ◄─► owner of an allocation ─► end
//	                     └─ ConnectionBind of a known connection ─► handOver: goroutines continue, see streamConn
//
// All fields belong to the worker once begin was posted.
type polledConn struct {
	server *streamServer
	path   allocation.Path
	worker *worker
	socket udpio.Stream
	token  uint64 // valid while the poller watches the socket
	frames frameReader
	out    polledQueue
	tls    *tls.Conn // nil over TCP
	wire   *tlsWire  // the transport of tls

	connEntry, guestEntry *limitEntry // in the limit of all connections; in the limit of guests
	guestEnd              deadline    // end of the time without an allocation
	writeEnd              deadline    // time by which the client must have accepted the queued bytes

	watched bool
	owner   bool // the client has an allocation
	ended   bool // nothing is read or written from here on
}

// listenPolled accepts the connections of a TCP listener without registering them with the Go runtime's poller,
// because a worker's poller watches them.
func (s *streamServer) listenPolled(listener *net.TCPListener) error {
	file, err := listener.File()
	_ = listener.Close() // file is a duplicate
	if err != nil {
		return err
	}
	raw, err := file.SyscallConn()
	if err == nil {
		err = inheritOptions(raw)
	}
	if err != nil {
		_ = file.Close()
		return err
	}
	s.tcp = file
	s.wait.Add(1)
	go s.acceptPolled(raw)
	return nil
}

// acceptPolled takes connections until the listener is closed.
func (s *streamServer) acceptPolled(raw syscall.RawConn) {
	defer s.wait.Done()
	for {
		var socket udpio.Stream
		var client netip.AddrPort
		var err error
		closed := raw.Read(func(fd uintptr) (done bool) {
			socket, client, err = udpio.Accept(fd)
			return !errors.Is(err, unix.EAGAIN)
		})
		switch {
		case closed != nil:
			return
		case err == nil:
			s.beginPolled(socket, client)
		default:
			s.pauseAccept(err)
		}
	}
}

// beginPolled enters an accepted connection into the limit of connections and passes it to its worker.
func (s *streamServer) beginPolled(socket udpio.Stream, client netip.AddrPort) {
	s.counts.add(connectionAccepted)
	server, err := socket.LocalAddr()
	if err != nil {
		s.counts.add(connectionBroken)
		socket.Close()
		return
	}
	c := s.newPolled(socket, client, server)
	c.connEntry, c.guestEntry = new(limitEntry), new(limitEntry)
	if !s.shared.connections.enter(c.connEntry, client.Addr(), nil) {
		s.counts.add(connectionRefused)
		socket.Abort()
		return
	}
	if !s.add(c) {
		s.shared.connections.leave(c.connEntry)
		socket.Abort()
		return
	}
	c.worker.post(func(w *worker) { c.begin(w) })
}

// newPolled prepares the state of a connection that is not in s.conns yet.
func (s *streamServer) newPolled(socket udpio.Stream, client, server netip.AddrPort) *polledConn {
	c := &polledConn{
		server: s, socket: socket, worker: s.gateway.workerFor(client),
		path: allocation.Path{Client: client, Server: server, Transport: s.listener.transport, Listener: s.listener.id},
	}
	c.frames.pool = &s.shared.chunks
	c.frames.limit.Store(maxYoungFrame)
	c.out.blocks = &s.shared.blocks
	c.guestEnd.conn, c.writeEnd.conn = c, c
	return c
}

// begin makes the worker's poller watch the connection.
func (c *polledConn) begin(w *worker) {
	if c.ended || !c.enterAsGuest() {
		return
	}
	c.token = w.watched.Add(watched{stream: c})
	if err := w.poller.AddStream(&c.socket, c.token); err != nil {
		w.watched.Remove(c.token)
		c.end(connectionBroken)
		return
	}
	c.watched = true
	if c.tls != nil {
		w.takeTLS(c) // the data that arrived with the end of the handshake
	}
}

// enterAsGuest starts the time in which the client must create an allocation.
func (c *polledConn) enterAsGuest() bool {
	evict := func() { c.worker.post(func(*worker) { c.end(guestEvicted) }) }
	if !c.server.shared.guests.enter(c.guestEntry, c.path.Client.Addr(), evict) {
		c.end(guestRefused)
		return false
	}
	c.worker.guestEnds.put(&c.guestEnd, c.worker.now+int64(guestTime))
	return true
}

// readStream serves a connection that the poller reported: it writes what is queued, then reads once. If data is
// left, the poller reports the connection again after all other sockets were served.
func (w *worker) readStream(c *polledConn) {
	if c.out.waiting {
		c.write()
	}
	if c.ended {
		return
	}
	if c.tls != nil {
		w.readTLS(c)
		return
	}
	chunk, err := c.frames.read(&c.socket)
	if chunk != nil {
		w.fromPolled(c, chunk.frames)
		c.frames.pool.put(chunk)
	}
	if err != nil && !errors.Is(err, unix.EAGAIN) {
		c.end(readReason(err))
	}
}

// fromPolled handles whole messages. A ConnectionBind may move the connection to goroutines.
func (w *worker) fromPolled(c *polledConn, frames [][]byte) {
	for {
		i := bindAt(frames)
		if i < 0 {
			w.fromStream(c, c.server.listener, c.path, frames)
			return
		}
		w.fromStream(c, c.server.listener, c.path, frames[:i])
		if c.ended {
			return
		}
		if c.bindsTo(frames[i]) {
			c.handOver(frames[i:])
			return
		}
		w.refuseBind(c, frames[i])
		frames = frames[i+1:]
	}
}

// end schedules the connection to be closed at the end of this poll. Only the first reason is counted.
func (c *polledConn) end(reason streamReason) {
	if c.ended {
		return
	}
	c.ended = true
	c.server.counts.add(reason)
	c.worker.endedStreams = append(c.worker.endedStreams, c)
}

// closeEnded closes the connections that ended, and deletes their allocations.
func (w *worker) closeEnded() {
	if len(w.endedStreams)+len(w.endedSessions) == 0 {
		return
	}
	for len(w.endedStreams)+len(w.endedSessions) > 0 {
		ended, sessions := w.endedStreams, w.endedSessions
		w.endedStreams, w.endedSessions = nil, nil
		for _, s := range sessions {
			s.front.engine.Worker().Close(s.peer)
		}
		for _, c := range ended {
			c.unwatch(w)
			c.socket.Close()
			c.out.drop()
			c.server.shared.guests.leave(c.guestEntry)
			w.streamGone(c.path)
			c.server.remove(c, c.connEntry)
		}
		w.next = w.table.Expire(w.now)
	}
	w.flush()
}

// unwatch removes the connection from the worker's tables.
func (c *polledConn) unwatch(w *worker) {
	if c.watched {
		c.watched = false
		_ = w.poller.Remove(&c.socket) // the socket is closed or moved next, even after an error
		w.watched.Remove(c.token)
	}
	w.guestEnds.drop(&c.guestEnd)
	w.writeEnds.drop(&c.writeEnd)
}

// expireStreams ends the connections whose deadline has passed.
func (w *worker) expireStreams() {
	for c := w.guestEnds.due(w.now); c != nil; c = w.guestEnds.due(w.now) {
		c.end(guestTimeout)
	}
	for c := w.writeEnds.due(w.now); c != nil; c = w.writeEnds.due(w.now) {
		c.end(clientSlow)
	}
}

// shut implements stream.shut.
func (c *polledConn) shut() { c.end(connectionShut) }

// allocated implements stream.allocated, like that of streamConn.
func (c *polledConn) allocated(yes bool) {
	if c.owner == yes || c.ended {
		return
	}
	c.owner = yes
	if !yes {
		c.frames.limit.Store(maxYoungFrame)
		c.enterAsGuest()
		return
	}
	c.frames.limit.Store(maxFrame)
	c.server.shared.guests.leave(c.guestEntry)
	c.worker.guestEnds.drop(&c.guestEnd)
}

// inheritOptions sets the options that accepted sockets inherit (tcp(7)): keepalive and user timeout, which detect a
// client that disappeared, and no delay of small messages.
func inheritOptions(raw syscall.RawConn) error {
	var failed error
	set := func(fd uintptr, level, option, value int) {
		if err := unix.SetsockoptInt(int(fd), level, option, value); err != nil && failed == nil {
			failed = err
		}
	}
	err := raw.Control(func(fd uintptr) {
		set(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
		set(fd, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, int(keepaliveIdle/time.Second))
		set(fd, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, int(keepaliveEvery/time.Second))
		set(fd, unix.IPPROTO_TCP, unix.TCP_KEEPCNT, keepaliveProbes)
		set(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
		set(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(unackedTime.Milliseconds()))
	})
	return errors.Join(err, failed)
}
