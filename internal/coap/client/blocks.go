package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/weir-lb/weir/internal/coap/message"
)

const (
	maxBody     = 16 << 20 // bytes of a payload, in blocks or not
	maxRestarts = 2        // of a transfer in blocks
)

// transfer is one request with its payload and response, each in as many messages as they need (RFC 7959).
type transfer struct {
	conn     *Conn
	request  *Request
	x        *Exchange
	exponent uint32 // of the blocks of the payload, see blockSize
	echo     []byte // value of the Echo option, when the server has requested it (RFC 9175 section 2.3)
	tag      []byte // value of Request-Tag; nil: the payload goes in one message
}

// maxEchoes is how often a message is repeated with an Echo that the server requests: the session may have moved to another node of a
// cluster, which does not know the value of the one before.
const maxEchoes = 3

// once sends one message with extra options and returns its response. It repeats it where the server requests an Echo.
func (t *transfer) once(ctx context.Context, payload []byte, extra ...Option) (*message.Message, error) {
	for echoes := 0; ; echoes++ {
		options := t.request.options(t.conn.target)
		if len(payload) == 0 && len(t.request.Payload) > 0 { // a later block of the response
			options = without(options, message.ContentFormat)
		}
		options = append(options, extra...)
		if t.echo != nil {
			options = append(options, Option{message.Echo, t.echo})
		}
		if t.tag != nil {
			options = append(options, Option{message.RequestTag, t.tag})
		}
		datagram, err := t.request.build(options, payload)
		if err != nil {
			return nil, err
		}
		r, err := t.conn.roundTrip(ctx, datagram)
		if t.x.Messages++; t.x.Messages == 1 {
			t.x.Request = datagram
		}
		t.x.Retransmissions += r.repeats
		if err != nil {
			return nil, err
		}
		m := new(message.Message)
		if t.x.Response = r.datagram; r.datagram == nil {
			t.x.Unwanted = true
			return m, nil
		}
		if err := message.Parse(r.datagram, m); err != nil {
			return nil, err
		}
		value, echoed := m.Option(message.Echo)
		if echoed {
			t.echo = bytes.Clone(value)
		}
		if !echoed || m.Code != message.Unauthorized || echoes == maxEchoes {
			return m, nil
		}
	}
}

func without(options []Option, id message.OptionID) []Option {
	kept := options[:0]
	for _, o := range options {
		if o.ID != id {
			kept = append(kept, o)
		}
	}
	return kept
}

// early requests blocks of a size in the response, if the request names one.
func (t *transfer) early() []Option {
	if t.request.BlockSize == 0 {
		return nil
	}
	return []Option{UintOption(message.Block2, t.exponent)}
}

// bert is the exponent that stands for several blocks of 1024 bytes in one message, over TCP (RFC 8323 section 6).
const bert = 7

// shift is by how many bits the number of a block is shifted to be an offset.
func shift(exponent uint32) uint32 { return 4 + min(exponent, bert-1) }

// maxBERT is the maximum length of the blocks in one message, in bytes.
const maxBERT = (2*maxRoom - headers) &^ 1023

// payload is how many bytes of the body a message carries.
func (t *transfer) payload() int {
	switch {
	case t.exponent < bert:
		return 16 << t.exponent
	case t.request.BlockSize > 0:
		return min(t.conn.bert(), t.request.BlockSize)
	}
	return t.conn.bert()
}

// bert is how many bytes of blocks one message to the server may carry: 0 over UDP, and where the server does not know BERT.
func (c *Conn) bert() int {
	if l, ok := c.link.(*streamLink); ok {
		return min(l.conn.Peer().BERT(headers), maxBERT)
	}
	return 0
}

// fits reports whether a message with this value of a Block option may have a payload of n bytes.
func fits(block uint32, n int, stream bool) bool {
	switch more := block&8 != 0; {
	case block&7 == bert && more:
		return stream && n > 0 && n%1024 == 0
	case block&7 == bert:
		return stream
	case more:
		return n == 16<<(block&7)
	}
	return n <= 16<<(block&7)
}

// introduced waits until the server's settings are known, if a request calls for that: they come before its first answer.
func (c *Conn) introduced(ctx context.Context, r *Request) {
	l, ok := c.link.(*streamLink)
	if ok && (r.BlockSize > 1024 || len(r.Payload)+headers > l.room()) && !l.conn.Begun() {
		ctx, cancel := context.WithTimeout(ctx, csmWait)
		defer cancel()
		_, _ = c.Ping(ctx) // without an answer the base values hold
	}
}

// upload sends the request with its payload and returns the response to the last message.
func (t *transfer) upload(ctx context.Context) (*message.Message, error) {
	body := t.request.Payload
	if len(body) <= t.single() {
		m, err := t.once(ctx, body, t.early()...)
		if err != nil || m.Code != message.RequestEntityTooLarge {
			return m, err
		}
		block, ok := m.Uint(message.Block1)
		if !ok || block&7 > t.exponent {
			return m, nil
		}
		t.exponent = block & 7
		if t.payload() >= len(body) {
			return m, nil
		}
	}
	t.tag = make([]byte, 4)
	rand.Read(t.tag) //nolint:errcheck // never fails, by its contract
	for restarts := 0; ; restarts++ {
		m, again, err := t.blocks(ctx, body)
		if err != nil || !again || restarts == maxRestarts {
			t.showWhole(body)
			return m, err
		}
	}
}

// blocks sends body in blocks. again: the server wants it from the beginning, in smaller blocks perhaps.
func (t *transfer) blocks(ctx context.Context, body []byte) (m *message.Message, again bool, err error) {
	for offset := 0; ; {
		end := min(offset+t.payload(), len(body))
		more := uint32(0)
		if end < len(body) {
			more = 8
		}
		extra := append(t.early(), UintOption(message.Block1, uint32(offset)>>shift(t.exponent)<<4|more|t.exponent))
		if offset == 0 {
			extra = append(extra, UintOption(message.Size1, uint32(len(body))))
		}
		if m, err = t.once(ctx, body[offset:end], extra...); err != nil {
			return nil, false, err
		}
		block, answered := m.Uint(message.Block1)
		smaller := answered && block&7 < t.exponent
		switch {
		case m.Code == message.RequestEntityTooLarge && smaller && offset == 0:
			t.exponent = block & 7
			return m, true, nil
		case m.Code == message.RequestEntityIncomplete:
			return m, true, nil
		case m.Code.Class() != 2 && m.Code != message.Empty:
			return m, false, nil
		case more == 0 && m.Code == message.Continue:
			return nil, false, errors.New("the server answered 2.31 CONTINUE to the last block")
		case more == 0:
			return m, false, nil
		case m.Code != message.Continue && m.Code != message.Empty && !answered:
			return nil, false, fmt.Errorf("the server answered %s to the first of several blocks: it does not know Block1 (RFC 7959)", m.Code)
		}
		offset = end
		if smaller {
			t.exponent = block & 7
		}
	}
}

// showWhole puts the whole payload into the request that is shown.
func (t *transfer) showWhole(body []byte) {
	if whole, err := joined(t.x.Request, body); err == nil {
		t.x.Request = whole
	}
}

// download completes a response that comes in blocks.
func (t *transfer) download(ctx context.Context, first *message.Message) error {
	for restarts := 0; ; restarts++ {
		again, err := t.rest(ctx, first)
		if !again || err != nil {
			return err
		}
		if restarts == maxRestarts || !t.request.method().IsSafe() {
			return errors.New("the resource has changed between two blocks of it; repeat the request")
		}
		if first, err = t.once(ctx, t.request.Payload, t.early()...); err != nil {
			return err
		}
	}
}

func (r *Request) method() message.Code {
	if r.Method == message.Empty {
		return message.GET
	}
	return r.Method
}

// rest fetches the blocks behind the first (RFC 7959 section 2.4). again: the resource has changed meanwhile.
func (t *transfer) rest(ctx context.Context, first *message.Message) (again bool, err error) {
	block, ok := first.Uint(message.Block2)
	if !ok || block&8 == 0 || first.Code.Class() != 2 {
		return false, nil
	}
	if block>>4 != 0 || !fits(block, len(first.Payload), t.conn.target.Stream) {
		return false, errors.New("the first block of the response makes no sense (RFC 7959 section 2.4)")
	}
	whole, body := t.x.Response, bytes.Clone(first.Payload)
	tag, _ := first.Option(message.ETag)
	var payload []byte
	if t.request.method() == message.FETCH && t.tag == nil {
		payload = t.request.Payload
	}
	for block&8 != 0 {
		if size, ok := first.Uint(message.Size2); len(body) > maxBody || ok && size > maxBody {
			return false, fmt.Errorf("the response is too long: more than %d bytes", maxBody)
		}
		// A server may make blocks smaller as it goes, but each begins where the one before has ended.
		number := uint32(len(body)) >> shift(block&7)
		if number >= 1<<20 {
			return false, fmt.Errorf("the response has more than %d blocks", 1<<20)
		}
		next, err := t.once(ctx, payload, UintOption(message.Block2, number<<4|block&7))
		if err != nil {
			return false, err
		}
		if next.Code != first.Code {
			return next.Code == message.RequestEntityIncomplete, nil // other errors are shown
		}
		nextTag, _ := next.Option(message.ETag)
		value, ok := next.Uint(message.Block2)
		if !ok || int(value>>4)<<shift(value&7) != len(body) || !bytes.Equal(tag, nextTag) {
			return true, nil
		}
		if !fits(value, len(next.Payload), t.conn.target.Stream) {
			return false, errors.New("a block of the response does not have its size (RFC 7959 section 2.2)")
		}
		block = value
		body = append(body, next.Payload...)
	}
	t.x.Response, err = joined(whole, body)
	return false, err
}

// joined is the first block's message with the whole body.
func joined(first, body []byte) ([]byte, error) {
	var m message.Message
	if err := message.Parse(first, &m); err != nil {
		return nil, err
	}
	var b message.Builder
	b.Reset(make([]byte, 0, len(first)+len(body)+1), m.Type, m.Code, m.ID, m.Token)
	for options := m.Options(); options.Next(); {
		switch options.ID() {
		case message.Block2, message.Size2, message.Echo:
		default:
			b.Option(options.ID(), options.Value())
		}
	}
	b.Payload(body)
	return b.Bytes()
}
