package handshaketest

import (
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/record"
)

// Conn is a client's session over UDP. Not safe for concurrent use.
type Conn struct {
	handshake.Result
	socket  *net.UDPConn
	scratch *record.Scratch
	cid     int
}

// Dial makes a session. limit is how long that may take.
func Dial(to netip.AddrPort, cfg handshake.ClientConfig, limit time.Duration) (*Conn, error) {
	socket, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		return nil, err
	}
	c := &Conn{socket: socket, scratch: new(record.Scratch), cid: len(cfg.CID)}
	if !cfg.OfferCID {
		c.cid = -1
	}
	if err := c.handshake(cfg, limit); err != nil {
		socket.Close()
		return nil, err
	}
	return c, nil
}

func (c *Conn) handshake(cfg handshake.ClientConfig, limit time.Duration) error {
	client, err := handshake.NewClient(cfg)
	if err != nil {
		return err
	}
	start := time.Now()
	send := func(d []byte) { _, _ = c.socket.Write(d) }
	client.Start(0, send)
	b := make([]byte, 1<<16)
	for {
		if done, err := client.Done(); done {
			c.Result = client.Result()
			return err
		}
		if time.Since(start) > limit {
			return errors.New("the handshake takes too long")
		}
		_ = c.socket.SetReadDeadline(start.Add(client.Deadline()))
		n, err := c.socket.Read(b)
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			client.Timeout(c.scratch, max(time.Since(start), client.Deadline()), send)
			continue
		}
		if err != nil { // refused: the server may not listen yet, and the flight is repeated in time
			time.Sleep(time.Millisecond)
			continue
		}
		client.Receive(c.scratch, b[:n], time.Since(start), send)
	}
}

// Write sends one record of application data.
func (c *Conn) Write(payload []byte) error { return c.write(record.ApplicationData, payload) }

func (c *Conn) write(typ record.ContentType, payload []byte) error {
	buf := make([]byte, record.MaxHeadRoom+len(payload)+record.MaxTailRoom)
	copy(buf[record.MaxHeadRoom:], payload)
	sealed, err := c.Association.Seal(c.scratch, typ, buf, record.MaxHeadRoom, len(payload))
	if err != nil {
		return err
	}
	_, err = c.socket.Write(sealed)
	return err
}

// Read returns the next record's payload and type. It repeats the last flight of the handshake where the server requests it.
func (c *Conn) Read(limit time.Duration) ([]byte, record.ContentType, error) {
	b := make([]byte, 1<<16)
	_ = c.socket.SetReadDeadline(time.Now().Add(limit))
	for {
		n, err := c.socket.Read(b)
		if err != nil {
			return nil, 0, err
		}
		var r record.Record
		for d := b[:n]; len(d) > 0; {
			if d, err = record.Next(d, c.cid, &r); err != nil {
				break
			}
			typ, payload, _, verdict := c.Association.Open(c.scratch, &r)
			if verdict != record.Opened {
				continue
			}
			if typ != record.Handshake {
				return payload, typ, nil
			}
			if c.Final.Present() {
				if out, err := c.Final.Append(c.Association, c.scratch, nil); err == nil {
					_, _ = c.socket.Write(out)
				}
			}
		}
	}
}

// Handshake sends a handshake message in epoch 1.
func (c *Conn) Handshake(message []byte) error { return c.write(record.Handshake, message) }

// Close sends close_notify and closes the socket.
func (c *Conn) Close() {
	_ = c.write(record.Alert, []byte{1, 0})
	c.socket.Close()
}
