package oscore

import (
	"errors"
	"fmt"

	"github.com/weir-lb/weir/internal/coap/message"
)

// Client protects the requests of one connection (client.Protector). One goroutine at a time may use it and what it returns.
type Client struct {
	context *Context
	codec   *Codec
	out     []byte
}

// NewClient returns a Client with messages of up to size bytes.
func NewClient(context *Context, size int) *Client {
	return &Client{context: context, codec: NewCodec(size), out: make([]byte, 0, size+Overhead+maxOption)}
}

// Protect returns the protected form of a request, valid until the next call, and what opens its responses.
func (c *Client) Protect(request []byte) (sealed []byte, open func(response []byte) ([]byte, error), err error) {
	binding := new(Binding)
	if sealed, err = c.codec.SealRequest(c.out[:0], c.context, request, binding); err != nil {
		return nil, nil, err
	}
	return sealed, func(response []byte) ([]byte, error) { return c.open(response, binding) }, nil
}

// open opens a response; nil without an error: an old notification.
func (c *Client) open(response []byte, b *Binding) ([]byte, error) {
	var m message.Message
	if err := message.Parse(response, &m); err != nil {
		return nil, err
	}
	plain, err := c.codec.OpenResponse(make([]byte, 0, len(response)+Overhead), &m, b)
	switch {
	case errors.Is(err, ErrOld):
		return nil, nil
	case errors.Is(err, ErrUnprotected):
		return nil, fmt.Errorf("%w, so anybody may have sent it: %s %s %.80q", err, m.Code, m.Code.Name(), m.Payload)
	}
	return plain, err
}
