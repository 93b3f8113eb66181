package gateway

import (
	"bytes"
	"net"
	"os"
	"time"

	"github.com/weir-lb/weir/internal/turn/allocation"
)

// bindsTo reports whether a ConnectionBind request may make this connection the data connection of a TCP relay (RFC
// 6062 §5.4). A connection that has an allocation carries messages until its end.
func (c *polledConn) bindsTo(request []byte) bool {
	id, ok := allocation.ConnectionID(request)
	return ok && c.server.shared.data.find(id) != nil && c.worker.table.Find(c.path) == nil
}

// refuseBind answers a ConnectionBind request that names no connection, or that arrives on a connection with an
// allocation.
func (w *worker) refuseBind(c *polledConn, request []byte) {
	w.reserve()
	_, answer, reason := w.table.ConnectionBind(c.path, request, w.slab[w.slabUsed:w.slabUsed], w.now)
	c.server.listener.counts[w.index].add(reason, 1)
	if reason == allocation.OK { // the connection to the peer has just ended
		c.end(connectionShut)
		return
	}
	if len(answer) > 0 {
		c.deliver(answer, nil)
		c.flush()
	}
}

// handOver moves the connection to goroutines, which may block without blocking others: they ask the worker of the
// relay, which may be another worker, and then copy bytes (streamConn.bind). They also handle frames, which were read
// already.
func (c *polledConn) handOver(frames [][]byte) {
	s, w, end := c.server, c.worker, c.guestEnd.at
	ahead := append(bytes.Join(frames, nil), c.frames.take()...)
	rest := bytes.Clone(c.out.rest())
	c.unwatch(w)
	conn, err := c.detach()
	if err != nil {
		c.end(connectionBroken)
		return
	}
	next := s.newConn(c.path.Client, c.path.Server)
	next.connEntry, next.phaseEntry = c.connEntry, c.guestEntry
	next.raw, next.conn = conn, &aheadConn{conn, ahead}
	if c.tls != nil {
		c.wire.Conn, c.wire.polled, c.wire.in = conn, nil, bytes.Clone(c.wire.in)
		next.conn = &aheadConn{c.tls, ahead}
	}
	if !s.shared.guests.reassign(c.guestEntry, func() { next.end(guestEvicted) }) {
		c.end(guestEvicted) // nothing was posted to the worker yet
		_ = conn.Close()
		return
	}
	if !s.swap(c, next) { // closeStream ends c
		_ = conn.Close()
		return
	}
	c.ended = true
	c.out.drop()
	_ = conn.SetReadDeadline(time.Now().Add(time.Duration(end - w.now)))
	go func() {
		defer s.remove(next, next.connEntry)
		_ = conn.SetWriteDeadline(time.Now().Add(writeTimeout))
		if _, err := conn.Write(rest); err != nil {
			next.end(writeReason(err))
		}
		next.serveGuest()
	}()
}

// detach converts the socket to a net.Conn.
func (c *polledConn) detach() (*net.TCPConn, error) {
	file := os.NewFile(uintptr(c.socket.FD()), "")
	conn, err := net.FileConn(file)
	_ = file.Close() // conn has a duplicate
	c.socket.Forget()
	if err != nil {
		return nil, err
	}
	tcp := conn.(*net.TCPConn)
	_ = tcp.SetKeepAliveConfig(keepalive()) // FileConn has set its own
	return tcp, nil
}

// swap replaces one connection by another in the set for closeStream. It returns false if closeStream has begun.
func (s *streamServer) swap(c, next any) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	delete(s.conns, c)
	s.conns[next] = struct{}{}
	return true
}

// aheadConn is a connection of which some bytes were read before.
type aheadConn struct {
	net.Conn
	ahead []byte
}

// Read implements net.Conn.
func (c *aheadConn) Read(b []byte) (int, error) {
	if len(c.ahead) > 0 {
		n := copy(b, c.ahead)
		if c.ahead = c.ahead[n:]; len(c.ahead) == 0 {
			c.ahead = nil
		}
		return n, nil
	}
	return c.Conn.Read(b)
}

// CloseWrite closes the write side of the TCP or TLS connection.
func (c *aheadConn) CloseWrite() error { return closeWrite(c.Conn) }
