package gateway

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/turn/allocation"
)

// chunksAhead is how many reads of one connection may be queued for the worker. Beyond that the connection is not
// read, and TCP flow control stops the client.
const chunksAhead = 4

// streamConn is one client connection of a TLS listener until its handshake is done, or of TCP and TLS
// listeners after its request to become a data connection (all others are polledConn). It has two goroutines: one reads and posts whole messages to the
// worker of the client's address, the other writes what the worker queues.
//
//	handshake (TLS) ─► guest: no allocation yet, for guestTime ◄─► owner of an allocation ─► end
//	                              └─ ConnectionBind ─► data connection of a TCP relay, see tcprelay.go
type streamConn struct {
	server *streamServer
	path   allocation.Path
	worker *worker
	raw    io.Closer // the TCP socket
	conn   net.Conn  // raw, or the TLS connection over it
	out    *outQueue
	frames frameReader
	slots  chan struct{}

	connEntry  *limitEntry // in the limit of all connections
	phaseEntry *limitEntry // in the limit of handshakes, then of guests

	owner  bool // the client has an allocation; used by the worker only
	once   sync.Once
	ending chan struct{} // closed when the connection begins to end
}

// serveTLS does the handshake of a TLS connection and then passes the connection to its worker.
func (c *streamConn) serveTLS() {
	wire := &tlsWire{Conn: c.conn}
	if secure := c.handshakeTLS(wire); secure == nil || !c.becomePolled(secure, wire) {
		c.server.remove(c, c.connEntry)
	}
}

// handshakeTLS does the TLS handshake. If it fails, it ends the connection and returns nil.
func (c *streamConn) handshakeTLS(wire *tlsWire) *tls.Conn {
	s := c.server
	if !s.shared.handshakes.enter(c.phaseEntry, c.path.Client.Addr(), func() { c.end(handshakeEvicted) }) {
		c.end(handshakeRefused)
		return nil
	}
	defer s.shared.handshakes.leave(c.phaseEntry)
	conn := tls.Server(wire, s.tls)
	_ = conn.SetDeadline(time.Now().Add(handshakeTime))
	err := conn.HandshakeContext(context.Background())
	if err != nil {
		c.end(handshakeReason(err))
		return nil
	}
	_ = conn.SetDeadline(time.Time{})
	return conn
}

func handshakeReason(err error) streamReason {
	if isTimeout(err) {
		return handshakeTimeout
	}
	return handshakeFailed
}

// serveGuest relays messages both ways until the connection ends. c.conn must be ready, and the connection in the limit of guests.
func (c *streamConn) serveGuest() {
	defer c.server.shared.guests.leave(c.phaseEntry)
	written := make(chan struct{})
	go func() {
		defer close(written)
		if err := c.out.run(c.conn, c.path.Transport != allocation.TCP); err != nil {
			c.end(writeReason(err))
		}
	}()
	reason, bound := c.read()
	if bound != nil {
		bound.join(c, written)
		return
	}
	c.end(reason)
	c.out.stop(true)
	<-written
	c.worker.post(func(w *worker) { w.streamGone(c.path) })
}

// enterAsGuest starts the time in which the client must create an allocation. It is called again after an allocation
// has ended.
func (c *streamConn) enterAsGuest() bool {
	guests := c.server.shared.guests
	if !guests.enter(c.phaseEntry, c.path.Client.Addr(), func() { c.end(guestEvicted) }) {
		c.end(guestRefused)
		return false
	}
	if c.isEnding() { // serve may have left the limit for the last time already
		guests.leave(c.phaseEntry)
		return false
	}
	_ = c.conn.SetReadDeadline(time.Now().Add(guestTime))
	return true
}

// read passes messages to the worker until the stream ends or becomes a data connection.
func (c *streamConn) read() (streamReason, *dataConn) {
	for {
		chunk, err := c.frames.read(c.conn)
		if chunk != nil {
			if i := bindAt(chunk.frames); i >= 0 {
				if data := c.bind(chunk, i); data != nil {
					return connectionBound, data
				}
			} else {
				c.dispatch(chunk)
			}
		}
		if err != nil {
			return readReason(err), nil
		}
	}
}

// dispatch passes a chunk to the worker in one post. If the worker is behind, dispatch waits, and TCP flow control
// stops the client.
func (c *streamConn) dispatch(chunk *chunk) {
	select {
	case c.slots <- struct{}{}:
	case <-c.ending:
		c.server.shared.chunks.put(chunk)
		return
	}
	c.worker.post(func(w *worker) {
		w.fromStream(c, c.server.listener, c.path, chunk.frames)
		c.server.shared.chunks.put(chunk)
		<-c.slots
	})
}

// end closes the connection; only the first reason is counted. Any goroutine may call it, including a worker, because
// it does not block.
func (c *streamConn) end(reason streamReason) {
	c.once.Do(func() {
		c.server.counts.add(reason)
		close(c.ending)
		c.out.stop(true)
		_ = c.raw.Close()
	})
}

// isEnding reports whether end was called.
func (c *streamConn) isEnding() bool {
	select {
	case <-c.ending:
		return true
	default:
		return false
	}
}

// isTimeout recognizes the timeout errors of net, crypto/tls and context: a deadline of this server has passed.
// ETIMEDOUT is another thing, although its error says Timeout too: the client acknowledges nothing any more.
func isTimeout(err error) bool {
	var timeout net.Error
	if errors.Is(err, unix.ETIMEDOUT) {
		return false
	}
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}

func readReason(err error) streamReason {
	switch {
	case errors.Is(err, errNotTurn):
		return streamNotTurn
	case errors.Is(err, errLongFrame):
		return streamLongFrame
	case isTimeout(err):
		return guestTimeout // no other read deadline is set
	case errors.Is(err, io.EOF):
		return connectionClosed
	}
	return connectionBroken
}

func writeReason(err error) streamReason {
	if isTimeout(err) {
		return clientSlow
	}
	return connectionBroken
}

// deliver implements stream.deliver. User data beyond queueBytes is dropped. Answers have some additional space; a
// client that does not read them is disconnected.
func (c *streamConn) deliver(head, body []byte) bool {
	size := len(head) + len(body) + 3
	if c.out.room(size, queueBytes) {
		c.out.add(head, body)
		return true
	}
	if isUserData(head) {
		return false
	}
	if !c.out.room(size, queueBytes+queueAnswerBytes) {
		c.end(clientSlow)
		return false
	}
	c.out.add(head, body)
	return true
}

// isUserData distinguishes ChannelData and Data indications (RFC 8656 §18.1) from answers and other indications.
func isUserData(head []byte) bool {
	const dataIndication = 0x0017
	return !isStun(head) || len(head) >= 2 && binary.BigEndian.Uint16(head) == dataIndication
}

// flush implements stream.flush.
func (c *streamConn) flush() { c.out.flush() }

// shut implements stream.shut.
func (c *streamConn) shut() { c.end(connectionShut) }

// allocated implements stream.allocated. A client with an allocation may send long messages and stays as long as the
// allocation. A client whose allocation has ended is a guest again.
func (c *streamConn) allocated(yes bool) {
	if c.owner == yes || c.isEnding() {
		return
	}
	c.owner = yes
	if !yes {
		c.frames.limit.Store(maxYoungFrame)
		c.enterAsGuest()
		return
	}
	c.frames.limit.Store(maxFrame)
	c.server.shared.guests.leave(c.phaseEntry)
	_ = c.conn.SetReadDeadline(time.Time{})
}
