package handshake

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"time"

	"github.com/weir-lb/weir/internal/dtls/record"
)

// ClientConfig is what a Client needs.
type ClientConfig struct {
	Identity []byte
	Key      []byte
	Suites   []record.Suite // default CCM_8, CCM, GCM
	// OfferCID offers connection ids; CID is ours, and may be empty: then the
	// server gets one from us in no record, and we send what it gives out.
	OfferCID bool
	CID      []byte
	// OfferRoutability offers the return routability check with the connection id; who sets it answers challenges.
	OfferRoutability bool
	// Timeout of the first flight, doubled with every repetition; default 1 s.
	Timeout time.Duration
	// Repetitions of a flight before the handshake fails; default 6.
	Repetitions int
	Rand        io.Reader // default crypto/rand
}

type clientState uint8

const (
	clientHelloSent clientState = iota
	clientKeyExchangeSent
	clientDone
	clientFailed
)

// Client makes one association. It has no goroutine, socket or clock: call Start,
// then Receive for every datagram and Timeout at every Deadline, and send what
// they hand to send, which must not keep it. Not safe for concurrent use.
type Client struct {
	cfg        ClientConfig
	state      clientState
	err        error
	transcript hash.Hash
	random     [randomLength]byte
	server     [randomLength]byte
	suite      record.Suite
	secrets    secrets
	cookie     []byte

	extendedMaster, renegotiation, hasCID bool
	routability                           bool
	writeCID                              []byte

	messages    uint16 // number of our next message
	nextRecord  uint64
	repetitions int
	deadline    time.Duration

	in          reassembly
	hello       []byte
	keyExchange []byte
	verify      [verifyLength]byte // of our Finished
	association *record.Association
	early       [][]byte // records of epoch 1 before their keys
}

// NewClient makes a Client.
func NewClient(cfg ClientConfig) (*Client, error) {
	if len(cfg.CID) > record.MaxCID {
		return nil, fmt.Errorf("handshake: connection id longer than %d bytes", record.MaxCID)
	}
	if len(cfg.Identity) > maxIdentity {
		return nil, fmt.Errorf("handshake: identity longer than %d bytes", maxIdentity)
	}
	if len(cfg.Suites) == 0 {
		cfg.Suites = DefaultSuites()
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = time.Second
	}
	if cfg.Repetitions == 0 {
		cfg.Repetitions = 6
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.Reader
	}
	c := &Client{cfg: cfg, transcript: sha256.New()}
	if _, err := io.ReadFull(cfg.Rand, c.random[:]); err != nil {
		return nil, err
	}
	return c, nil
}

// Start sends the first hello.
func (c *Client) Start(now time.Duration, send func(datagram []byte)) {
	c.hello = c.appendHello(nil)
	c.flight(nil, now, send)
}

// Deadline is when Timeout is due; it means nothing once Done.
func (c *Client) Deadline() time.Duration { return c.deadline }

// Done reports whether the handshake has ended, and how.
func (c *Client) Done() (bool, error) {
	return c.state == clientDone || c.state == clientFailed, c.err
}

// Result returns the association after Done without an error.
func (c *Client) Result() Result {
	return Result{
		Association: c.association, Identity: string(c.cfg.Identity), HasCID: c.hasCID,
		ExtendedMaster: c.extendedMaster, Renegotiation: c.renegotiation, Routability: c.routability,
	}
}

// Timeout repeats the flight, or fails the handshake.
func (c *Client) Timeout(s *record.Scratch, now time.Duration, send func(datagram []byte)) {
	if c.state >= clientDone {
		return
	}
	if c.repetitions++; c.repetitions > c.cfg.Repetitions {
		c.fail(errors.New("handshake: no answer"))
		return
	}
	c.flight(s, now, send)
}

// Receive handles one datagram of the server; it may change its bytes.
func (c *Client) Receive(s *record.Scratch, datagram []byte, now time.Duration, send func(datagram []byte)) {
	var r record.Record
	var err error
	cid := len(c.cfg.CID)
	if !c.cfg.OfferCID {
		cid = -1
	}
	for rest := datagram; len(rest) > 0 && c.state < clientDone; {
		if rest, err = record.Next(rest, cid, &r); err != nil {
			return
		}
		c.receive(s, &r, now, send)
	}
}

func (c *Client) receive(s *record.Scratch, r *record.Record, now time.Duration, send func([]byte)) {
	switch {
	case r.Epoch == 0 && r.Type == record.Alert:
		if len(r.Body) == 2 && r.Body[0] == 2 {
			c.fail(fmt.Errorf("handshake: the server's alert %d", r.Body[1]))
		}
	case r.Epoch == 0 && r.Type == record.Handshake:
		c.fragments(r.Body, 0)
		c.messagesDue(s, now, send)
	case r.Epoch == 1 && c.association == nil:
		if len(c.early) < ahead {
			c.early = append(c.early, r.Clone())
		}
	case r.Epoch == 1:
		typ, payload, _, verdict := c.association.Open(s, r)
		if verdict == record.Opened && typ == record.Handshake {
			c.fragments(payload, 1)
			c.messagesDue(s, now, send)
		}
	}
}

func (c *Client) fragments(body []byte, epoch uint16) {
	for len(body) > 0 {
		f, rest, ok := nextFragment(body)
		if !ok {
			return
		}
		c.in.add(&f, epoch)
		body = rest
	}
}

// messagesDue handles the messages that are whole and in order.
func (c *Client) messagesDue(s *record.Scratch, now time.Duration, send func([]byte)) {
	for c.state < clientDone {
		typ, epoch, body, ok := c.in.peek()
		if !ok {
			return
		}
		sequence := c.in.next
		c.in.pop()
		switch {
		case typ == typeHelloVerifyRequest && epoch == 0 && c.cookie == nil && c.server == [randomLength]byte{}:
			c.verifyRequest(body, now, send)
		case typ == typeServerHello && epoch == 0 && c.server == [randomLength]byte{}:
			c.transcript.Write(c.hello)
			c.serverHello(body)
		case typ == typeServerKeyExchange && epoch == 0 && c.state == clientHelloSent:
			// The identity hint: we have but one identity.
		case typ == typeServerHelloDone && epoch == 0 && c.state == clientHelloSent && c.suite != 0:
			c.transcript.Write(appendHeader(nil, typ, sequence, len(body)))
			c.finish(s, now, send)
			continue
		case typ == typeFinished && epoch == 1 && c.state == clientKeyExchangeSent:
			want := c.secrets.verify(serverFinished, c.transcript)
			if subtle.ConstantTimeCompare(want[:], body) != 1 {
				c.fail(errors.New("handshake: the server's Finished is wrong"))
				return
			}
			clear(c.secrets.master[:])
			c.state = clientDone
			return
		default:
			c.fail(fmt.Errorf("handshake: message type %d out of place", typ))
			return
		}
		if typ != typeHelloVerifyRequest {
			c.transcript.Write(appendHeader(nil, typ, sequence, len(body)))
			c.transcript.Write(body)
		}
	}
}

func (c *Client) verifyRequest(body []byte, now time.Duration, send func([]byte)) {
	b := cursor{b: body}
	b.uint16()
	cookie := b.vector8()
	if b.bad || len(cookie) == 0 {
		c.fail(errors.New("handshake: HelloVerifyRequest without a cookie"))
		return
	}
	c.cookie = slices.Clone(cookie)
	c.messages++
	c.hello = c.appendHello(nil)
	c.repetitions = 0
	c.flight(nil, now, send)
}

func (c *Client) serverHello(body []byte) {
	var h hello
	if !parseServerHello(body, &h) || h.version != version12 || h.method != 0 {
		c.fail(errors.New("handshake: ServerHello does not make sense"))
		return
	}
	if !slices.Contains(c.cfg.Suites, record.Suite(h.suite)) || (h.hasCID && (!c.cfg.OfferCID || len(h.cid) > record.MaxCID)) || (h.routability && (!c.cfg.OfferRoutability || !h.hasCID)) || len(h.renegotiated) != 0 {
		c.fail(errors.New("handshake: the server chose what was not offered"))
		return
	}
	copy(c.server[:], h.random)
	c.suite = record.Suite(h.suite)
	c.extendedMaster = h.extendedMaster
	c.renegotiation = h.renegotiation
	c.hasCID = h.hasCID
	c.routability = h.routability
	c.writeCID = slices.Clone(h.cid)
}

// finish answers the server's flight.
func (c *Client) finish(s *record.Scratch, now time.Duration, send func([]byte)) {
	m, at := beginMessage(nil, typeClientKeyExchange, c.messages+1)
	m = append(m, byte(len(c.cfg.Identity)>>8), byte(len(c.cfg.Identity)))
	c.keyExchange = endMessage(append(m, c.cfg.Identity...), at)
	c.transcript.Write(c.keyExchange)
	keys := c.secrets.derive(c.cfg.Key, c.extendedMaster, c.transcript, c.random[:], c.server[:])
	var readCID []byte
	if c.hasCID {
		readCID = c.cfg.CID
	}
	var err error
	if c.association, err = record.NewAssociation(c.suite, &keys, record.Client, readCID, c.writeCID); err != nil {
		c.fail(err)
		return
	}
	c.verify = c.secrets.verify(clientFinished, c.transcript)
	c.transcript.Write(appendHeader(nil, typeFinished, c.messages+2, verifyLength))
	c.transcript.Write(c.verify[:])
	c.state = clientKeyExchangeSent
	c.repetitions = 0
	c.flight(s, now, send)
	var r record.Record
	for _, raw := range c.early {
		if _, err := record.Next(raw, len(c.cfg.CID), &r); err == nil && c.state < clientDone {
			c.receive(s, &r, now, send)
		}
	}
	c.early = nil
}

func (c *Client) fail(err error) {
	c.state, c.err = clientFailed, err
}

func (c *Client) appendHello(dst []byte) []byte {
	dst, at := beginMessage(dst, typeClientHello, c.messages)
	dst = append(dst, version12>>8, version12&0xff)
	dst = append(dst, c.random[:]...)
	dst = append(dst, 0, byte(len(c.cookie)))
	dst = append(dst, c.cookie...)
	dst = append(dst, 0, byte(2*len(c.cfg.Suites)))
	for _, s := range c.cfg.Suites {
		dst = append(dst, byte(s>>8), byte(s))
	}
	dst = append(dst, 1, 0)
	dst = appendExtensions(dst, true, true, c.cfg.OfferCID, c.cfg.CID, c.cfg.OfferRoutability)
	return endMessage(dst, at)
}

// flight sends what the state calls for, with fresh record sequence numbers.
func (c *Client) flight(s *record.Scratch, now time.Duration, send func([]byte)) {
	c.deadline = now + c.cfg.Timeout<<min(c.repetitions, 6)
	if c.state == clientHelloSent {
		send(c.plain(nil, record.Handshake, c.hello))
		return
	}
	out := c.plain(nil, record.Handshake, c.keyExchange)
	out = c.plain(out, record.ChangeCipherSpec, []byte{1})
	out, err := appendFinished(c.association, s, c.messages+2, c.verify[:], out)
	if err != nil {
		c.fail(err)
		return
	}
	send(out)
}

func (c *Client) plain(out []byte, typ record.ContentType, body []byte) []byte {
	out = record.AppendPlain(out, typ, c.nextRecord, body)
	c.nextRecord++
	return out
}
