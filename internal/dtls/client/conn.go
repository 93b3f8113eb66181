package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/record"
)

// maxDatagram is the largest UDP payload in bytes.
const maxDatagram = 65535

// Socket carries datagrams to and from one server: a connected UDP socket, or what stands in front of one. Each Read returns a
// datagram, each Write sends one and does not keep it. A read deadline that has passed ends a Read with an error that is
// os.ErrDeadlineExceeded; another goroutine may set it meanwhile. Close ends a Read.
type Socket interface {
	Read(b []byte) (int, error)
	Write(b []byte) (int, error)
	SetReadDeadline(t time.Time) error
	Close() error
}

// Conn is a session over a Socket. Each Read returns one message, each Write sends one. One goroutine may read while others write and
// close.
type Conn struct {
	*Session
	socket Socket

	in      []byte
	waiting [][]byte // messages of the last datagram, in in
	ended   error

	writing sync.Mutex // of out
	out     []byte
	closing sync.Once
}

// Dial makes a session over socket. Its errors are those of Shake; after one the socket is closed.
func Dial(ctx context.Context, socket Socket, cfg handshake.ClientConfig) (*Conn, error) {
	c := &Conn{socket: socket, in: make([]byte, maxDatagram)}
	stop := context.AfterFunc(ctx, func() { _ = socket.SetReadDeadline(time.Unix(1, 0)) }) // wakes Receive
	defer stop()
	var err error
	if c.Session, err = Shake(ctx, cfg, &connWire{Conn: c, ctx: ctx}); err != nil {
		_ = socket.Close()
		return nil, err
	}
	stop()
	return c, socket.SetReadDeadline(time.Time{})
}

// connWire carries the handshake of a Conn.
type connWire struct {
	*Conn
	ctx     context.Context
	refused error // of the last Send
}

// Send implements Wire. What a full buffer has dropped is repeated; another error ends the next Receive.
func (w *connWire) Send(datagram []byte) {
	if _, err := w.socket.Write(datagram); err != nil && !errors.Is(err, syscall.ENOBUFS) {
		w.refused = err
	}
}

// Receive implements Wire.
func (w *connWire) Receive(deadline time.Time, handle func(datagram []byte)) error {
	if w.refused != nil {
		return w.refused
	}
	_ = w.socket.SetReadDeadline(deadline)
	if w.ctx.Err() != nil { // its end may have come before our deadline replaced its own
		return nil
	}
	n, err := w.socket.Read(w.in)
	if err != nil {
		return err
	}
	handle(w.in[:n])
	return nil
}

// SetReadDeadline ends a Read at t with os.ErrDeadlineExceeded; the zero time never does.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.socket.SetReadDeadline(t) }

// Read copies the next message into b; what does not fit is lost. After the server's close_notify it returns io.EOF, after another
// alert an *Error.
func (c *Conn) Read(b []byte) (int, error) {
	for len(c.waiting) == 0 {
		if c.ended != nil {
			return 0, c.ended
		}
		n, err := c.socket.Read(c.in)
		if err != nil {
			return 0, err
		}
		c.waiting = c.waiting[:0]
		c.ended = c.Open(c.in[:n],
			func(message []byte) { c.waiting = append(c.waiting, message) },
			func(datagram []byte) { _, _ = c.socket.Write(datagram) })
	}
	n := copy(b, c.waiting[0])
	c.waiting = c.waiting[1:]
	return n, nil
}

// Write sends one message of at most MaxPayload bytes.
func (c *Conn) Write(message []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	if limit := c.MaxPayload(); len(message) > limit {
		return 0, fmt.Errorf("a message of %d bytes: the server takes at most %d in one record: %w", len(message), limit, record.ErrSize)
	}
	if need := HeadRoom + len(message) + TailRoom; len(c.out) < need {
		c.out = make([]byte, need)
	}
	copy(c.out[HeadRoom:], message)
	sealed, err := c.Seal(c.out, len(message))
	if err != nil {
		return 0, err
	}
	if _, err := c.socket.Write(sealed); err != nil {
		return 0, err
	}
	return len(message), nil
}

// Close sends close_notify and closes the socket; it ends a Read.
func (c *Conn) Close() error {
	c.closing.Do(func() {
		if b, err := c.CloseNotify(); err == nil {
			_, _ = c.socket.Write(b)
		}
	})
	return c.socket.Close()
}
