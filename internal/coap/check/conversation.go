package check

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/weir-lb/weir/internal/coap/client"
	"github.com/weir-lb/weir/internal/coap/message"
)

// Bounds of a case.
const (
	maxTrace    = 256
	maxDatagram = 65536
	tokenLength = 4
)

// conversation is the connection of a case, and what was said over it.
type conversation struct {
	ctx    context.Context
	cfg    *Config
	target client.Target
	listed map[string]bool // paths in the server's discovery document
	link   client.RawLink
	stop   func() bool

	mid      uint16
	received int // messages
	trace    []string
	observed []*observation
	buffer   []byte
}

// answer is a message that came.
type answer struct {
	message.Message
	at time.Time
}

// converse connects.
func converse(ctx context.Context, cfg *Config, target client.Target, listed map[string]bool) (*conversation, error) {
	c := &conversation{ctx: ctx, cfg: cfg, target: target, listed: listed, mid: uint16(rand.Uint32()), buffer: make([]byte, maxDatagram)}
	return c, c.connect(client.DialConfig{Security: cfg.Security, Timeout: cfg.Timeout})
}

// connect opens the link, again after close.
func (c *conversation) connect(dial client.DialConfig) error {
	link, _, err := client.OpenRaw(c.ctx, c.cfg.URI, dial)
	if err != nil {
		return err
	}
	c.link = link
	c.stop = context.AfterFunc(c.ctx, func() { link.Close() }) //nolint:errcheck // to wake the reader
	return nil
}

func (c *conversation) close() {
	if c.link != nil {
		c.stop()
		c.link.Close() //nolint:errcheck // nothing is pending
		c.link = nil
	}
}

// note adds a line to the trace.
func (c *conversation) note(format string, args ...any) {
	if len(c.trace) < maxTrace {
		c.trace = append(c.trace, fmt.Sprintf(format, args...))
	}
}

// nextID draws the next message id.
func (c *conversation) nextID() uint16 {
	c.mid++
	return c.mid
}

// write sends a datagram as it is.
func (c *conversation) write(datagram []byte) error {
	var m message.Message
	if err := message.Parse(datagram, &m); err == nil {
		c.note("→ %s", describe(&m))
	}
	_, err := c.link.Write(datagram)
	return err
}

// acknowledge sends an empty ACK, or a reset.
func (c *conversation) acknowledge(t message.Type, id uint16) error {
	if c.target.Stream {
		return nil
	}
	return c.write(message.AppendEmpty(nil, t, id))
}

// receive returns the next message, or nil when none comes until a time. It answers pings of the server and refuses its requests.
func (c *conversation) receive(until time.Time) (*answer, error) {
	for {
		if c.ctx.Err() != nil {
			return nil, c.ctx.Err()
		}
		c.link.SetReadDeadline(until) //nolint:errcheck // Read reports it
		n, err := c.link.Read(c.buffer)
		var timeout net.Error
		switch {
		case c.ctx.Err() != nil:
			return nil, c.ctx.Err()
		case errors.As(err, &timeout) && timeout.Timeout():
			return nil, nil
		case err != nil:
			return nil, &failure{"the messages of the trace", "an answer", err.Error(), "RFC 7252 section 4"}
		}
		c.received++
		a := &answer{at: time.Now()}
		if err := message.Parse(slices.Clone(c.buffer[:n]), &a.Message); err != nil {
			c.note("← %X: %v", c.buffer[:min(n, 64)], err)
			return nil, &failure{"the messages of the trace", "a well-formed message", fmt.Sprintf("%d bytes %X: %v", n, c.buffer[:min(n, 64)], err), "RFC 7252 section 3"}
		}
		c.note("← %s", describe(&a.Message))
		switch {
		case a.Code == message.Empty && a.Type == message.Con, a.Code.IsRequest() && a.Type == message.Con:
			if err := c.acknowledge(message.Rst, a.ID); err != nil {
				return nil, err
			}
		case a.Code.IsRequest():
		default:
			return a, nil
		}
	}
}

// describe shows a message on one line.
func describe(m *message.Message) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s MID %d", m.Type, m.Code, m.Code.Name(), m.ID)
	if len(m.Token) > 0 {
		fmt.Fprintf(&b, " token %x", m.Token)
	}
	for options := m.Options(); options.Next(); {
		fmt.Fprintf(&b, ", %s %s", options.ID(), optionText(options.ID(), options.Value()))
	}
	if n := len(m.Payload); n > 0 {
		fmt.Fprintf(&b, ", %d bytes %.40q", n, m.Payload)
	}
	return b.String()
}

// optionText shows the value of an option.
func optionText(id message.OptionID, value []byte) string {
	switch id {
	case message.URIHost, message.URIPath, message.URIQuery, message.LocationPath, message.LocationQuery:
		return fmt.Sprintf("%q", value)
	case message.Block1, message.Block2:
		b := blockOf(value)
		return fmt.Sprintf("%d/%d/%d", b.number, b.m(), b.size())
	case message.Observe, message.ContentFormat, message.Accept, message.MaxAge, message.Size1, message.Size2, message.URIPort:
		if n, ok := message.Uint(value); ok {
			return fmt.Sprint(n)
		}
	}
	return "0x" + hex.EncodeToString(value)
}
