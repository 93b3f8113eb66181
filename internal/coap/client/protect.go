package client

import (
	"bytes"

	"github.com/weir-lb/weir/internal/coap/exchange"
	"github.com/weir-lb/weir/internal/coap/message"
)

// Protector protects the requests of a connection above its message layer, and opens their responses: OSCORE (RFC 8613). A Conn calls
// it, and what it returns, one at a time.
type Protector interface {
	// Protect returns the protected form of a request, and what opens its responses: open returns a message of its own, or nil without
	// an error for an old notification.
	Protect(request []byte) (sealed []byte, open func(response []byte) ([]byte, error), err error)
}

// opener opens the responses to one request.
type opener = func(response []byte) ([]byte, error)

// protect returns the form in which a request is sent; with c.mu held. An observation opens its notifications as its newest request
// says, or, until the answer to that has come, the one before.
func (c *Conn) protect(datagram []byte) ([]byte, opener, error) {
	if c.cfg.Protector == nil || datagram[1] == byte(message.Empty) {
		return datagram, nil, nil
	}
	sealed, open, err := c.cfg.Protector.Protect(datagram)
	if err != nil {
		return nil, nil, err
	}
	var m message.Message
	if err := message.Parse(datagram, &m); err != nil {
		return nil, nil, err
	}
	if o := c.observations[string(m.Token)]; o != nil {
		o.open, o.before = open, o.open
	}
	return sealed, open, nil
}

// opened returns a response as a message of its own.
func (c *Conn) opened(open opener, response []byte) ([]byte, error) {
	if open == nil {
		return bytes.Clone(response), nil
	}
	plain, err := open(response)
	if err != nil || plain == nil {
		return nil, err
	}
	var m message.Message
	if err := message.Parse(plain, &m); err != nil {
		return nil, err
	}
	if _, bad := m.BadOption(supported); bad {
		return nil, errOption
	}
	return plain, nil
}

// answers reports whether a response with the token of a pending request answers it, for the endpoint: one that its opener does not
// take may be a notification of the registration before it.
func (c *Conn) answers(_ *exchange.Session, id exchange.ID, m *message.Message) bool {
	waiting, o := c.calls[id], c.observations[string(m.Token)]
	if waiting == nil || waiting.open == nil || o == nil || o.before == nil {
		return true
	}
	var err error
	waiting.opened, err = c.opened(waiting.open, c.current)
	return err == nil && waiting.opened != nil
}

// registered drops what opens the notifications of the registration before, whose order with those of the new one is not known.
func (c *Conn) registered(o *observation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o.before = nil
}

// notification returns a notification as a message of its own; nil: it is to be dropped.
func (c *Conn) notification(o *observation) []byte {
	plain, err := c.opened(o.open, c.current)
	if err != nil && o.before != nil {
		plain, err = c.opened(o.before, c.current)
	}
	if err != nil {
		return nil
	}
	return plain
}

// supported names the critical options of responses.
func supported(id message.OptionID) bool { return id == message.Block1 || id == message.Block2 }
