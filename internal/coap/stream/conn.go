package stream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
)

// ErrReleased: the peer asked to end the connection (RFC 8323 section 5.5).
var ErrReleased = errors.New("coap stream: the peer released the connection")

// AbortError ends a connection: the peer aborted it, or broke the protocol (RFC 8323 section 5.6).
type AbortError struct {
	Own    bool   // we aborted it
	Reason string // printable; may be empty
}

// Error implements error.
func (e *AbortError) Error() string {
	if e.Own {
		return "coap stream: the peer broke the protocol: " + e.Reason
	}
	if e.Reason == "" {
		return "coap stream: the peer aborted the connection and gave no reason"
	}
	return "coap stream: the peer aborted the connection: " + e.Reason
}

// Conn is the connection of a client, over TCP or TLS. One goroutine at a time calls Receive; the other methods are safe from any
// goroutine.
type Conn struct {
	conn    net.Conn
	own     Settings
	decoder Decoder
	session Session // guarded by mu
	in      []byte

	mu  sync.Mutex // guards out, session.Peer and writes
	out []byte
}

// Dial connects to HOST:PORT, over TLS if secure is not nil, and sends the CSM. secure gets the protocol name "coap" (RFC 8323
// section 8.2) unless it names others. Zero Settings announce Announced.
func Dial(ctx context.Context, address string, secure *tls.Config, own Settings) (*Conn, error) {
	var dialer net.Dialer
	raw, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if secure == nil {
		return NewConn(raw, own)
	}
	if len(secure.NextProtos) == 0 {
		secure = secure.Clone()
		secure.NextProtos = []string{"coap"}
	}
	if secure.ServerName == "" && !secure.InsecureSkipVerify {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			_ = raw.Close()
			return nil, err
		}
		secure = secure.Clone()
		secure.ServerName = host
	}
	client := tls.Client(raw, secure)
	if err := client.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, fmt.Errorf("TLS handshake: %w", err)
	}
	return NewConn(client, own)
}

// NewConn sends the CSM over a connection. It closes the connection if that fails. It does not wait for the CSM of the peer, nor need
// the caller: messages up to 1152 bytes may be sent before.
func NewConn(conn net.Conn, own Settings) (*Conn, error) {
	if own == (Settings{}) {
		own = Announced()
	}
	c := &Conn{conn: conn, own: own, in: make([]byte, 16<<10)}
	c.decoder.Max = own.withBase().MaxMessageSize
	if _, err := conn.Write(AppendCSM(nil, own)); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return c, nil
}

// NetConn returns the TCP or TLS connection, for its addresses and its TLS state.
func (c *Conn) NetConn() net.Conn { return c.conn }

// Peer returns the settings of the peer; the base values until its CSM has come.
func (c *Conn) Peer() Settings {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session.Peer.withBase()
}

// Begun reports whether the peer's CSM has come, so that Peer is what the peer says of itself.
func (c *Conn) Begun() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session.Begun()
}

// SetDeadline ends Receive and Send at a time, with an error that is a time-out. The zero time never does.
func (c *Conn) SetDeadline(t time.Time) error { return c.conn.SetDeadline(t) }

// Send sends a message that message.Builder wrote.
func (c *Conn) Send(datagram []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	out, err := Append(c.out[:0], datagram)
	if err != nil {
		return err
	}
	if limit := c.session.Peer.withBase().MaxMessageSize; len(out) > limit {
		return fmt.Errorf("%w: %d bytes, and the peer accepts %d", ErrLength, len(out), limit)
	}
	c.out = out
	_, err = c.conn.Write(out)
	return err
}

// Ping sends a Ping; Receive delivers the Pong with the same token.
func (c *Conn) Ping(token []byte, withCustody bool) error {
	return c.write(AppendPing(nil, token, withCustody))
}

// ReceiveCSM waits for the CSM of the peer, so that Peer is what the peer accepts and Send may take longer messages. It is called where
// Receive may be called, and not after it.
func (c *Conn) ReceiveCSM() error {
	var m message.Message
	for {
		ok, err := c.next(&m)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		_, err = c.handle(&m) // a message that is no CSM is an error
		return err
	}
}

// Receive waits for the next request, response or Pong. m is valid until the next call. It handles the other signalling
// messages. Its errors: *AbortError, ErrReleased, those of the connection; io.EOF when the peer has closed it.
func (c *Conn) Receive(m *message.Message) error {
	for {
		ok, err := c.next(m)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		deliver, err := c.handle(m)
		if err != nil || deliver {
			return err
		}
	}
}

// next decodes the next message, or reads once if there is none.
func (c *Conn) next(m *message.Message) (bool, error) {
	ok, err := c.decoder.Next(m)
	if err != nil {
		return false, c.fail(err.Error())
	}
	if ok {
		return true, nil
	}
	n, err := c.conn.Read(c.in)
	if n == 0 && err != nil {
		return false, err
	}
	c.decoder.Feed(c.in[:n])
	return false, nil
}

func (c *Conn) handle(m *message.Message) (deliver bool, err error) {
	c.mu.Lock()
	event, out := c.session.Receive(m, nil)
	reason := c.session.Reason
	c.mu.Unlock()
	if len(out) > 0 {
		if err := c.write(out); err != nil {
			return false, err
		}
	}
	switch event {
	case Plain, Ponged:
		return true, nil
	case Released:
		return false, ErrReleased
	case Aborted, Failed:
		_ = c.conn.Close() // the error below says why
		return false, &AbortError{Own: event == Failed, Reason: reason}
	}
	return false, nil
}

func (c *Conn) fail(reason string) error {
	_ = c.write(AppendAbort(nil, reason)) // the peer may be gone; the error below says why
	_ = c.conn.Close()
	return &AbortError{Own: true, Reason: reason}
}

func (c *Conn) write(frame []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := c.conn.Write(frame)
	return err
}

// Close sends a Release and closes the connection.
func (c *Conn) Close() error {
	_ = c.conn.SetWriteDeadline(time.Now().Add(time.Second)) // a peer that does not read cannot delay the end
	_ = c.write(AppendRelease(nil))                          // the peer may be gone
	return c.conn.Close()
}
