package gateway

import (
	"crypto/tls"
	"errors"
	"net"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/udpio"
)

const (
	// recordsBytes is how many bytes of a TLS connection one read takes.
	recordsBytes = 16 << 10
	// recordsRoom is more bytes than TLS adds to the longest message.
	recordsRoom = 256
)

// tlsWire is what a TLS connection reads from and writes to. The handshake blocks on the socket, in a goroutine. Then the
// worker owns both: TLS reads what the worker has read, and gets errWouldBlock instead of blocking; what TLS writes is queued.
type tlsWire struct {
	net.Conn             // used while it blocks
	polled   *polledConn // nil: reads and writes block
	in       []byte      // bytes read that TLS has not consumed
	err      error       // the socket's error after these bytes
}

// errWouldBlock is a net.Error that crypto/tls treats as temporary: the next Read continues where this one ended.
var errWouldBlock net.Error = wouldBlock{}

type wouldBlock struct{}

func (wouldBlock) Error() string   { return "nothing to read now" }
func (wouldBlock) Timeout() bool   { return true }
func (wouldBlock) Temporary() bool { return true }

// Read implements net.Conn.
func (t *tlsWire) Read(b []byte) (int, error) {
	switch {
	case len(t.in) > 0:
		n := copy(b, t.in)
		t.in = t.in[n:]
		return n, nil
	case t.polled == nil:
		return t.Conn.Read(b)
	case t.err != nil:
		return 0, t.err
	}
	return 0, errWouldBlock
}

// Write implements net.Conn.
func (t *tlsWire) Write(b []byte) (int, error) {
	if t.polled == nil {
		return t.Conn.Write(b)
	}
	t.polled.out.addRaw(b)
	return len(b), nil
}

// becomePolled passes a connection to its worker after its handshake. It returns false if the connection has ended.
func (c *streamConn) becomePolled(secure *tls.Conn, wire *tlsWire) bool {
	socket, err := duplicate(c.raw.(*net.TCPConn))
	if err != nil {
		c.end(connectionBroken)
		return false
	}
	p := c.server.newPolled(socket, c.path.Client, c.path.Server)
	p.connEntry, p.guestEntry = c.connEntry, c.phaseEntry
	p.tls, p.wire = secure, wire
	if c.isEnding() || !c.server.swap(c, p) {
		socket.Close()
		return false
	}
	wire.polled = p
	_ = c.raw.Close()
	p.worker.post(func(w *worker) { p.begin(w) })
	return true
}

// duplicate makes a Stream of a connection, and closes the connection.
func duplicate(conn *net.TCPConn) (s udpio.Stream, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return s, err
	}
	var fd int
	failed := raw.Control(func(old uintptr) { fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) })
	if err = errors.Join(failed, err); err != nil {
		return s, err
	}
	return udpio.AdoptStream(fd), nil
}

// readTLS reads a TLS connection once and handles every complete record.
func (w *worker) readTLS(c *polledConn) {
	if w.records == nil {
		w.records = make([]byte, recordsBytes)
	}
	n, err := c.socket.Read(w.records)
	if errors.Is(err, unix.EAGAIN) {
		return
	}
	c.wire.in, c.wire.err = w.records[:n], err
	w.takeTLS(c)
}

// takeTLS handles what TLS has received, including the contents of its own buffers.
func (w *worker) takeTLS(c *polledConn) {
	for !c.ended {
		chunk, err := c.frames.read((*tlsRecords)(c.tls))
		if chunk != nil {
			w.fromPolled(c, chunk.frames)
			c.frames.pool.put(chunk)
		}
		if errors.Is(err, errWouldBlock) {
			break
		}
		if err != nil {
			c.end(readReason(err))
		}
	}
	c.flush() // messages of TLS itself
}

// tlsRecords reads all records that are available at once.
type tlsRecords tls.Conn

// Read implements io.Reader.
func (r *tlsRecords) Read(b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var more int
		more, err = (*tls.Conn)(r).Read(b[n:])
		n += more
	}
	return n, err
}

// addTLS queues one message as a record of its own, because coturn's client treats a record as a message.
func (c *polledConn) addTLS(head, body []byte) {
	w := c.worker
	w.plain = appendPadded(w.plain[:0], head, body)
	if _, err := c.tls.Write(w.plain); err != nil {
		c.end(connectionBroken)
	}
}
