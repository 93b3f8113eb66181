package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/weir-lb/weir/internal/coap/exchange"
	"github.com/weir-lb/weir/internal/coap/message"
	dtls "github.com/weir-lb/weir/internal/dtls/client"
	"github.com/weir-lb/weir/internal/dtls/handshake"
)

// DialConfig describes a connection. The zero value of a field means its default.
type DialConfig struct {
	Security   Security
	AckTimeout time.Duration // RFC 7252 ACK_TIMEOUT; default 2 s
	Timeout    time.Duration // for the handshake, and again for each exchange; default 30 s
	Protector  Protector     // nil: requests are not protected above the message layer
	// Handler answers the requests of the server, on the connection's goroutine; nil: they are rejected with RST.
	Handler exchange.Handler
	// Unpaced sends every request at once: one that measures says itself when. Otherwise one request is outstanding at a time, and a server
	// that does not respond gets non-confirmable ones at one byte per second (NSTART and PROBING_RATE of RFC 7252 section 4.8).
	Unpaced bool
	// Under replaces the UDP socket, below DTLS, by what it returns: for tests of loss. nil: nothing does.
	Under func(RawLink) RawLink
}

func (c *DialConfig) defaults() {
	if c.AckTimeout <= 0 {
		c.AckTimeout = 2 * time.Second
	}
	if c.Timeout <= 0 {
		c.Timeout = 30 * time.Second
	}
}

// Session describes the DTLS session of a connection; the zero value is plain CoAP.
type Session struct {
	Authority string // host:port
	ID        uint32 // names the session in what is printed; drawn at random
	Suite     string // IANA name; empty: no DTLS
	Auth      handshake.Auth
	Identity  string // our PSK identity, or the subject or key hash of the server's certificate
	HasCID    bool
	ReadCID   string // the connection id we receive with, in hex; empty: none, or one of length 0
	WriteCID  string // the one we send, likewise
	Resumed   bool
	TLS       bool // over TCP
	// Resumption is for Security.Resume of a later connection; nil: the server gave none. It holds a secret.
	Resumption *handshake.Session
}

// Errors of exchanges.
var (
	// ErrNoResponse ends an exchange after the last retransmission, or at its limit.
	ErrNoResponse = errors.New("no response")
	errReset      = errors.New("the server answered with reset (RST)")
	errOption     = errors.New("the response has a critical option that this client must refuse (RFC 7252 section 5.4.1)")
	errRepeated   = errors.New("the response is older than one that came before it")
	errConnClosed = errors.New("the connection is closed")
	errUncertain  = errors.New("the server has lost the DTLS session, so whether it has executed the request is not known; there is another session now")
)

// Conn is a connection to one server, over UDP or DTLS: a message layer of its own (RFC 7252 section 4) with any number of requests
// and observations at a time. Safe for concurrent use. Close it.
type Conn struct {
	target Target
	cfg    DialConfig
	link   link
	start  time.Time
	done   chan struct{}

	mu           sync.Mutex
	session      Session
	renewal      *renewal // nil without DTLS over UDP
	endpoint     *exchange.Endpoint
	peer         exchange.Session
	calls        map[exchange.ID]*call
	observations map[string]*observation // by token
	current      []byte                  // the message being received
	reading      error                   // why the reader has ended
	sending      error                   // the first one of the link since it was looked at
}

// acknowledged ends the call of a request that wants no response (RFC 7967); with c.mu held.
func (c *Conn) acknowledged(_ *exchange.Session, id exchange.ID) {
	if waiting := c.calls[id]; waiting != nil && waiting.unwanted {
		c.endpoint.Cancel(id)
		c.end(id, waiting, reply{rtt: c.now() - waiting.first})
	}
}

// call is a request, or a ping, whose end is awaited.
type call struct {
	unwanted bool // no response is wanted: its acknowledgement ends it
	mid      uint16
	first    time.Duration
	repeats  int
	ended    chan reply // holds one
	repeated []byte     // the message as sent again; nil: it was not
	once     bool       // executing it twice is not the same as once
	open     opener     // nil: the request was not protected
	opened   []byte     // the response, if answers has opened it
}

// reply is the end of a call.
type reply struct {
	datagram []byte // nil: of a ping
	rtt      time.Duration
	repeats  int
	err      error
}

// Dial connects to the server that uri names. Its path and query are those of requests that do not name others.
func Dial(ctx context.Context, uri string, cfg DialConfig) (*Conn, error) {
	cfg.defaults()
	target, err := ParseTarget(uri)
	if err != nil {
		return nil, err
	}
	cfg.Security.complete(target.Host) // an identity that is drawn is that of later sessions too
	l, session, err := open(ctx, target, &cfg)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", target.Authority(), err)
	}
	return newConn(target, session, l, cfg), nil
}

// newConn makes a Conn of a link.
func newConn(target Target, session Session, l link, cfg DialConfig) *Conn {
	c := &Conn{
		target: target, session: session, cfg: cfg, link: l, start: time.Now(), done: make(chan struct{}),
		calls: make(map[exchange.ID]*call), observations: make(map[string]*observation),
	}
	if own, ok := l.(secureLink); ok {
		c.renewal = &renewal{link: &replaceable{current: own}, silence: newSilence(cfg.AckTimeout)}
		c.link = c.renewal.link
	}
	paced := 0 // as of RFC 7252 section 4.7
	if target.Stream || cfg.Unpaced {
		paced = -1 // TCP has its own congestion control
	}
	c.endpoint = exchange.New(exchange.Config{
		NStart: paced, ProbingRate: paced,
		AckTimeout: cfg.AckTimeout, ResponseTimeout: cfg.Timeout, Seed: rand.Uint64(), MaxPending: maxCalls, MaxMessage: 2 * maxRoom, LogBytes: 1 << 16,
		Supported: func(id message.OptionID) bool { return supported(id) || id == message.OSCORE && cfg.Protector != nil },
		Unmatched: c.unmatched, Answers: c.answers, Acknowledged: c.acknowledged,
	}, (*connEvents)(c), cfg.Handler, (*connEvents)(c))
	go c.read()
	return c
}

// maxCalls bounds the requests of a Conn at a time.
const maxCalls = 4096

// Session describes the connection's DTLS session: another one after the server has lost the first.
func (c *Conn) Session() Session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session
}

// Target is what the connection was dialled for.
func (c *Conn) Target() Target { return c.target }

// Close ends the connection and all its requests.
func (c *Conn) Close() error {
	err := c.link.Close()
	<-c.done
	if r := c.renewal; r != nil {
		c.mu.Lock()
		c.stopRenewal()
		c.mu.Unlock()
		r.running.Wait()
	}
	return err
}

func (c *Conn) now() time.Duration { return time.Since(c.start) }

// arm makes the reader wake when the endpoint is due; with c.mu held.
func (c *Conn) arm() {
	var at time.Time
	if due, ok := c.endpoint.Next(); ok {
		at = c.start.Add(due)
	}
	c.link.SetReadDeadline(at) //nolint:errcheck // Read reports it
}

// read is the connection's goroutine.
func (c *Conn) read() {
	defer close(c.done)
	in, out := make([]byte, 65536), make([]byte, 0, 2048)
	for {
		c.mu.Lock()
		c.endpoint.Tick(c.now())
		if err := c.unsent(); err != nil {
			c.fail(err)
		}
		c.arm()
		c.mu.Unlock()
		n, err := c.link.Read(in)
		c.mu.Lock()
		switch {
		case err == nil:
			c.heard()
			c.current = in[:n]
			if answer := c.endpoint.Receive(&c.peer, in[:n], out, c.now()); len(answer) > 0 {
				c.link.Write(answer) //nolint:errcheck // the peer repeats what is not answered
			}
			c.current = nil
		case errors.Is(err, os.ErrDeadlineExceeded):
		case isRefused(err):
			c.fail(dtls.Unreachable(err))
		default:
			c.reading = err
			c.fail(err)
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
	}
}

// isRefused reports an ICMP error, which does not end a socket.
func isRefused(err error) bool {
	for _, e := range []error{syscall.ECONNREFUSED, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EHOSTDOWN, syscall.EPROTO} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// fail ends all calls; with c.mu held.
func (c *Conn) fail(err error) {
	for id, waiting := range c.calls {
		c.endpoint.Cancel(id)
		c.end(id, waiting, reply{err: err})
	}
	for _, o := range c.observations {
		o.stop(err)
	}
}

func (c *Conn) end(id exchange.ID, waiting *call, r reply) {
	r.repeats = waiting.repeats
	waiting.ended <- r
	delete(c.calls, id)
}

// roundTrip sends a request, or a ping, and waits for its end. It gives the datagram its message id.
func (c *Conn) roundTrip(ctx context.Context, datagram []byte) (reply, error) {
	limited, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	id, waiting, err := c.begin(ctx, datagram)
	if err != nil {
		return reply{}, err
	}
	select {
	case r := <-waiting.ended:
		if errors.Is(r.err, ErrNoResponse) {
			r.err = fmt.Errorf("%w within %v, %d retransmissions", r.err, r.rtt.Round(time.Millisecond), r.repeats)
		}
		return r, r.err
	case <-limited.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.calls, id)
	defer c.arm() // a request that waited for this one may leave
	if ctx.Err() != nil {
		c.endpoint.Cancel(id)
		return reply{}, ctx.Err()
	}
	if c.endpoint.Waiting(id) {
		c.endpoint.Cancel(id)
		return reply{}, fmt.Errorf("%w: the request was not sent within %v, because the server has not answered those before it (RFC 7252 section 4.7); wait, or send confirmable requests", ErrNoResponse, c.cfg.Timeout)
	}
	c.endpoint.GiveUp(id)
	return reply{repeats: waiting.repeats}, fmt.Errorf("%w within %v, %d retransmissions", ErrNoResponse, c.cfg.Timeout, waiting.repeats)
}

// begin sends a request and registers it.
func (c *Conn) begin(ctx context.Context, datagram []byte) (exchange.ID, *call, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return 0, nil, ctx.Err()
	case c.reading != nil:
		return 0, nil, fmt.Errorf("%w: %w", errConnClosed, c.reading)
	}
	mid := c.endpoint.NextID(&c.peer)
	datagram[2], datagram[3] = byte(mid>>8), byte(mid)
	if c.target.Stream && datagram[1] != 0 { // TCP repeats and acknowledges
		datagram[0] = datagram[0]&^0x30 | byte(message.Non)<<4
	}
	sealed, open, err := c.protect(datagram)
	if err != nil {
		return 0, nil, err
	}
	id, err := c.endpoint.Send(&c.peer, sealed, c.now())
	if err != nil {
		return 0, nil, err
	}
	if err := c.unsent(); err != nil {
		c.endpoint.Cancel(id)
		return 0, nil, err
	}
	waiting := &call{mid: mid, first: c.now(), ended: make(chan reply, 1), unwanted: unwanted(datagram), open: open, once: open == nil && !idempotent(message.Code(datagram[1]))}
	c.calls[id] = waiting
	if waiting.unwanted && message.Type(datagram[0]>>4&3) == message.Non {
		c.endpoint.Cancel(id)
		c.end(id, waiting, reply{})
	} else {
		c.asked()
	}
	c.arm()
	return id, waiting, nil
}

// idempotent reports whether a request may be executed twice (RFC 7252 section 5.1, RFC 8132 section 2); also of an empty message.
func idempotent(method message.Code) bool {
	return method != message.POST && method != message.PATCH
}

// unwanted reports whether a request wants no response of any class (RFC 7967 section 2.1).
func unwanted(datagram []byte) bool {
	var m message.Message
	if message.Parse(datagram, &m) != nil {
		return false
	}
	mask, ok := m.Uint(message.NoResponse)
	return ok && mask&26 == 26
}

// unsent returns what kept the link from sending, once; with c.mu held.
func (c *Conn) unsent() error {
	err := c.sending
	c.sending = nil
	return dtls.Unreachable(err)
}

// connEvents are the calls that a Conn gets from its endpoint, with c.mu held.
type connEvents Conn

// SendTo implements exchange.Sender.
func (e *connEvents) SendTo(_ *exchange.Session, datagram []byte, _ time.Duration) {
	c := (*Conn)(e)
	mid := uint16(datagram[2])<<8 | uint16(datagram[3])
	for _, waiting := range c.calls {
		if waiting.mid == mid {
			if waiting.repeats++; waiting.repeated == nil {
				waiting.repeated = bytes.Clone(datagram)
			}
			c.asked()
		}
	}
	if _, err := c.link.Write(datagram); err != nil && c.sending == nil {
		c.sending = err
	}
}

// Response implements exchange.Events.
func (e *connEvents) Response(_ *exchange.Session, id exchange.ID, _ *message.Message, rtt time.Duration, _ int) {
	c := (*Conn)(e)
	if waiting := c.calls[id]; waiting != nil {
		datagram, err := waiting.opened, error(nil)
		if datagram == nil {
			datagram, err = c.opened(waiting.open, c.current)
		}
		if datagram == nil && err == nil {
			err = errRepeated
		}
		c.end(id, waiting, reply{datagram: datagram, rtt: rtt, err: err})
	}
}

// Failed implements exchange.Events.
func (e *connEvents) Failed(_ *exchange.Session, id exchange.ID, reason exchange.Failure) {
	c := (*Conn)(e)
	waiting := c.calls[id]
	if waiting == nil {
		return
	}
	r := reply{err: ErrNoResponse, rtt: c.now() - waiting.first}
	if reason == exchange.Rejected {
		r.err = errOption
		if len(c.current) == 4 && message.Type(c.current[0]>>4&3) == message.Rst {
			r.err = errReset
		}
	}
	c.end(id, waiting, r)
}

// Ping sends an empty confirmable message, which every server resets (RFC 7252 section 4.3), and returns the round-trip time.
func (c *Conn) Ping(ctx context.Context) (time.Duration, error) {
	sent := time.Now()
	r, err := c.roundTrip(ctx, message.AppendEmpty(nil, message.Con, 0))
	if errors.Is(r.err, errReset) {
		return time.Since(sent), nil
	}
	return 0, err
}
