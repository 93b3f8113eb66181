package client

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/record"
)

// maxDatagram is the largest UDP payload in bytes.
const maxDatagram = 65535

// Conn is a session over a connected UDP socket. Each Read returns one message, each Write sends one. One goroutine may read while
// others write and close.
type Conn struct {
	*net.UDPConn
	session *Session

	in      []byte
	waiting [][]byte // messages of the last datagram, in in
	ended   error

	writing sync.Mutex // of out
	out     []byte
	closing sync.Once
}

// Dial makes a session over socket, which must be connected. After an error the socket is closed.
func Dial(ctx context.Context, socket *net.UDPConn, cfg handshake.ClientConfig) (*Conn, error) {
	c := &Conn{UDPConn: socket, in: make([]byte, maxDatagram)}
	var err error
	if c.session, err = Shake(ctx, cfg, (*connWire)(c)); err != nil {
		_ = socket.Close()
		return nil, err
	}
	return c, socket.SetReadDeadline(time.Time{})
}

// connWire carries the handshake of a Conn.
type connWire Conn

// Send implements Wire. What the kernel refuses is repeated.
func (w *connWire) Send(datagram []byte) { _, _ = w.UDPConn.Write(datagram) }

// Receive implements Wire.
func (w *connWire) Receive(deadline time.Time, handle func(datagram []byte)) error {
	_ = w.SetReadDeadline(deadline)
	n, err := w.UDPConn.Read(w.in)
	if err != nil {
		return err
	}
	handle(w.in[:n])
	return nil
}

// Result is what the handshake has negotiated.
func (c *Conn) Result() handshake.Result { return c.session.Result() }

// Read copies the next message into b; what does not fit is lost. After the server's close_notify it returns io.EOF.
func (c *Conn) Read(b []byte) (int, error) {
	for len(c.waiting) == 0 {
		if c.ended != nil {
			return 0, c.ended
		}
		n, err := c.UDPConn.Read(c.in)
		if err != nil {
			return 0, err
		}
		c.waiting = c.waiting[:0]
		c.ended = c.session.Open(c.in[:n],
			func(message []byte) { c.waiting = append(c.waiting, message) },
			func(datagram []byte) { _, _ = c.UDPConn.Write(datagram) })
	}
	n := copy(b, c.waiting[0])
	c.waiting = c.waiting[1:]
	return n, nil
}

// Write sends one message of at most 16,384 bytes.
func (c *Conn) Write(message []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	if len(message) > record.MaxPlaintext {
		return 0, record.ErrSize
	}
	if need := HeadRoom + len(message) + TailRoom; len(c.out) < need {
		c.out = make([]byte, need)
	}
	copy(c.out[HeadRoom:], message)
	sealed, err := c.session.Seal(c.out, len(message))
	if err != nil {
		return 0, err
	}
	if _, err := c.UDPConn.Write(sealed); err != nil {
		return 0, err
	}
	return len(message), nil
}

// Close sends close_notify and closes the socket; it ends a Read.
func (c *Conn) Close() error {
	c.closing.Do(func() {
		if b, err := c.session.CloseNotify(); err == nil {
			_, _ = c.UDPConn.Write(b)
		}
	})
	return c.UDPConn.Close()
}
