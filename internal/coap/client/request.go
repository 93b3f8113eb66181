package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
)

// Option is one option of a message.
type Option struct {
	ID    message.OptionID
	Value []byte
}

// UintOption is an option with a number in the fewest bytes (RFC 7252 section 3.2).
func UintOption(id message.OptionID, n uint32) Option {
	value := []byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}
	for len(value) > 0 && value[0] == 0 {
		value = value[1:]
	}
	return Option{id, value}
}

// Request is one request. The zero value of a field means its default.
type Request struct {
	Method  message.Code // default GET
	NON     bool
	Path    []string // nil: those of the URI that was dialled, as Query
	Query   []string
	Options []Option // but for Uri-Host, Uri-Path, Uri-Query, Block1, Block2, Size1, Request-Tag and Observe; in any order
	Payload []byte
	// BlockSize is the size of the blocks of the payload, and requests blocks of the response (early negotiation, RFC 7959
	// section 2.4): a power of two, 16 to 1024 bytes; over TCP also a multiple of 1024 up to 31744, for so many blocks of 1024 in a
	// message where the server knows that (BERT, RFC 8323 section 6). 0: for the payload 1024, or with BERT as much as a message to the
	// server may carry; the server chooses for the response.
	BlockSize int
}

// Exchange is a request and what came back.
type Exchange struct {
	Target          Target
	Request         []byte // the first message as sent; where the payload went in blocks, with the whole of it
	Response        []byte // as received; where it came in blocks, the first one's with the whole payload
	Session         Session
	RTT             time.Duration // first transmission to the whole response, without handshake
	Elapsed         time.Duration // with handshake
	Retransmissions int
	Unwanted        bool // there is no response because the request did not want one (RFC 7967)
	Messages        int  // requests sent, retransmissions not counted: more than one for blocks and for an Echo
}

// Validate refuses what no request can be.
func (r *Request) Validate() error {
	if n := r.BlockSize; n != 0 && (n < 16 || n <= 1024 && n&(n-1) != 0 || n > maxBERT || n > 1024 && n%1024 != 0) {
		return fmt.Errorf("block size: %d is not 16, 32, 64, 128, 256, 512 or 1024, nor, over TCP, a multiple of 1024 up to %d", n, maxBERT)
	}
	if len(r.Payload) > maxBody {
		return fmt.Errorf("payload: %d bytes, at most %d", len(r.Payload), maxBody)
	}
	return nil
}

// validateFor refuses what cannot be asked of target.
func (r *Request) validateFor(target Target) error {
	if r.BlockSize > 1024 && !target.Stream {
		return fmt.Errorf("block size: %d is more than 1024 bytes: several blocks in a message (BERT, RFC 8323 section 6) go over TCP alone; write coap+tcp:// or coaps+tcp://", r.BlockSize)
	}
	return r.Validate()
}

// options are those of the request, for the server of target.
func (r *Request) options(target Target) []Option {
	if r.Path != nil {
		target.Path = r.Path
	}
	if r.Query != nil {
		target.Query = r.Query
	}
	list := target.list()
	return append(list, r.Options...)
}

// build makes a message of a request with some more options and a payload. Its message id is filled in when it is sent.
func (r *Request) build(options []Option, payload []byte) ([]byte, error) {
	kind, method := message.Con, r.Method
	if r.NON {
		kind = message.Non
	}
	if method == message.Empty {
		method = message.GET
	}
	var token [8]byte
	rand.Read(token[:]) //nolint:errcheck // never fails, by its contract
	return build(kind, method, token[:], options, payload)
}

// build makes a message with options in any order.
func build(kind message.Type, code message.Code, token []byte, options []Option, payload []byte) ([]byte, error) {
	slices.SortStableFunc(options, func(a, b Option) int { return cmp.Compare(a.ID, b.ID) })
	size := 16 + len(token) + len(payload)
	for _, o := range options {
		size += 5 + len(o.Value)
	}
	var b message.Builder
	b.Reset(make([]byte, 0, size), kind, code, 0, token)
	for _, o := range options {
		b.Option(o.ID, o.Value)
	}
	b.Payload(payload)
	return b.Bytes()
}

// Do sends a request and waits for its response. It sends a payload in blocks and fetches a response in blocks (RFC 7959), and repeats
// the request with an Echo option that the server requests (RFC 9175). An error response (4.xx, 5.xx) is a response, not an error.
// The Exchange is of use after an error too: it holds what was sent, and what has come.
func (c *Conn) Do(ctx context.Context, r *Request) (*Exchange, error) {
	x := &Exchange{Target: c.target, Session: c.Session()}
	if err := r.validateFor(c.target); err != nil {
		return x, err
	}
	c.introduced(ctx, r)
	t := &transfer{conn: c, request: r, x: x, exponent: c.exponent(r.BlockSize)}
	begun := time.Now()
	response, err := t.upload(ctx)
	if err == nil {
		err = t.download(ctx, response)
	}
	x.RTT = time.Since(begun)
	x.Elapsed = x.RTT
	return x, err
}

// exponent is that of the blocks to send: bert, or their size is 16 << exponent.
func (c *Conn) exponent(size int) uint32 {
	if size == 0 || size > 1024 {
		if c.bert() > 0 {
			return bert
		}
		size = 1024
	}
	for size > 16 && size+headers > roomOf(c.link) {
		size /= 2
	}
	n := uint32(0)
	for 16<<n < size {
		n++
	}
	return n
}

// single is how long a payload may be that goes in one message, in bytes: a block, or over a stream what the peer takes.
func (t *transfer) single() int {
	if l, ok := t.conn.link.(*streamLink); ok && t.request.BlockSize == 0 {
		return max(t.payload(), min(l.room(), 2*maxRoom)-headers)
	}
	return t.payload()
}

// headers is room for what comes before the payload of a block, in bytes: the base value of a message over TCP (1152 bytes, RFC 8323
// section 5.3.1) leaves so many to a block of 1024.
const headers = 128

// RequestConfig describes one request on a connection of its own. The zero value of a field means its default.
type RequestConfig struct {
	URI       string
	Security  Security
	Protector Protector // as in DialConfig
	Request
	AckTimeout time.Duration // as in DialConfig
	Timeout    time.Duration // likewise
}

// Validate refuses what no request can be, and what cannot be asked of the URI's server.
func (c *RequestConfig) Validate() error {
	target, err := ParseTarget(c.URI)
	if err != nil {
		return err
	}
	return c.validateFor(target)
}

// Do connects, sends one request, waits for its response and closes the connection.
func Do(ctx context.Context, cfg RequestConfig) (*Exchange, error) {
	start := time.Now()
	target, err := ParseTarget(cfg.URI)
	if err != nil {
		return &Exchange{}, err
	}
	x := &Exchange{Target: target}
	if err := cfg.Validate(); err != nil {
		return x, err
	}
	if x.Request, err = cfg.build(cfg.options(target), cfg.Payload); err != nil {
		return x, fmt.Errorf("request to %s: %w", cfg.URI, err)
	}
	conn, err := Dial(ctx, cfg.URI, DialConfig{Security: cfg.Security, Protector: cfg.Protector, AckTimeout: cfg.AckTimeout, Timeout: cfg.Timeout})
	if err != nil {
		return x, err
	}
	defer conn.Close() //nolint:errcheck // the response is here
	if x, err = conn.Do(ctx, &cfg.Request); err != nil {
		return x, fmt.Errorf("%s: %w", cfg.URI, err)
	}
	x.Elapsed = time.Since(start)
	return x, nil
}
