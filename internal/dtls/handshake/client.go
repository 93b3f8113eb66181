package handshake

import (
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/weir-lb/weir/internal/dtls/record"
)

type clientState uint8

const (
	clientHelloSent  clientState = iota // until the ServerHelloDone
	clientFlightSent                    // until the server's Finished
	clientDone
	clientFailed
)

// Client makes one association. It has no goroutine, socket or clock: call Start,
// then Receive for every datagram and Timeout at every Deadline, and send what
// they hand to send, which must not keep it. Not safe for concurrent use.
type Client struct {
	cfg         ClientConfig
	credentials *Credentials
	state       clientState
	err         error
	transcript  transcript
	random      [randomLength]byte
	server      [randomLength]byte
	secrets     secrets
	cookie      []byte
	offer       hello

	answer               hello // the server's, without what its slices point to
	writeCID             []byte
	serverType           byte // of certificate
	clientType           byte
	peer                 *peerCertificate
	group                Group
	public               []byte // the server's, of the ephemeral key exchange
	certificateRequested bool   // for a certificate
	schemes              []byte // that the server verifies
	certificate          *Certificate
	resumed              bool
	ticket               []byte
	final                Final // of an abbreviated handshake
	session              *Session
	clientMAC, serverMAC []byte

	out         flight
	messages    uint16 // number of our next message
	repetitions int
	deadline    time.Duration

	in          reassembly
	association *record.Association
	early       [][]byte // records of epoch 1 before their keys
}

// NewClient makes a Client.
func NewClient(cfg ClientConfig) (*Client, error) {
	if err := cfg.defaults(); err != nil {
		return nil, err
	}
	c := &Client{cfg: cfg, credentials: cfg.credentials(), out: newFlight(cfg.MTU)}
	c.transcript.keep = true
	if _, err := io.ReadFull(cfg.Rand, c.random[:]); err != nil {
		return nil, err
	}
	if cfg.MaxFragmentLength != 0 && cfg.MaxFragmentLength < record.MaxPlaintext {
		c.out.limit = cfg.MaxFragmentLength
	}
	c.makeOffer()
	return c, c.offerSession()
}

// makeOffer is our hello.
func (c *Client) makeOffer() {
	h := &c.offer
	*h = hello{
		version: version12, random: c.random[:], methods: []byte{0}, extendedMaster: true, renegotiation: true,
		hasCID: c.cfg.OfferCID, cid: c.cfg.CID, routability: c.cfg.OfferRoutability,
		recordLimit: c.cfg.RecordSizeLimit, maxFragment: fragmentCode(c.cfg.MaxFragmentLength),
	}
	ephemeral, certificates := false, false
	for _, s := range c.cfg.Suites {
		h.suites = binary.BigEndian.AppendUint16(h.suites, uint16(s))
		ephemeral = ephemeral || s.KeyExchange() != record.PSK
		certificates = certificates || s.KeyExchange() == record.ECDHEECDSA
	}
	if ephemeral {
		for _, g := range c.cfg.Groups {
			h.groups = binary.BigEndian.AppendUint16(h.groups, uint16(g))
		}
		h.pointFormats = []byte{0}
	}
	if !certificates {
		return
	}
	h.schemes = offeredSchemes
	if types := c.credentials.types(); !slices.Equal(types, []byte{typeX509}) {
		h.serverTypes = types
	}
	if own := c.ownTypes(); len(own) > 0 && !slices.Equal(own, []byte{typeX509}) {
		h.clientTypes = own
	}
	if name := c.cfg.ServerName; isHostName(name) {
		h.hasServerName, h.serverName = true, []byte(name)
	}
}

// ownTypes are the certificate types in which we can prove ourselves.
func (c *Client) ownTypes() (types []byte) {
	if c.credentials == nil {
		return nil
	}
	for _, typ := range []byte{typeX509, typeRawKey} {
		if slices.ContainsFunc(c.credentials.Certificates, func(own *Certificate) bool { return own.body(typ) != nil }) {
			types = append(types, typ)
		}
	}
	return types
}

// Start sends the first hello.
func (c *Client) Start(now time.Duration, send func(datagram []byte)) { c.sendHello(now, send) }

func (c *Client) sendHello(now time.Duration, send func([]byte)) {
	c.offer.cookie = c.cookie
	c.out.messages = [][]byte{message(typeClientHello, c.messages, c.offer.appendClientHello(nil))}
	c.repetitions = 0
	c.flight(nil, now, send)
}

// Deadline is when Timeout is due; it means nothing once Done.
func (c *Client) Deadline() time.Duration { return c.deadline }

// Done reports whether the handshake has ended, and how.
func (c *Client) Done() (bool, error) {
	return c.state == clientDone || c.state == clientFailed, c.err
}

// Result returns the association after Done without an error. With a pre-shared key Identity is our own.
func (c *Client) Result() Result {
	r := Result{
		Association: c.association, Auth: AuthPSK, Identity: string(c.cfg.Identity), HasCID: c.answer.hasCID,
		ExtendedMaster: c.answer.extendedMaster, Renegotiation: c.answer.renegotiation, Routability: c.answer.routability,
		ClientMAC: c.clientMAC, ServerMAC: c.serverMAC,
	}
	if c.peer != nil {
		r.Auth, r.Identity, r.Chain = c.peer.auth(), c.peer.identity(), c.peer.chain
	}
	if c.resumed {
		r.Resumed, r.Auth, r.Identity, r.Final = true, c.cfg.Session.auth, c.cfg.Session.identity, c.final
	}
	r.Session = c.session
	return r
}

// Timeout repeats the flight, or fails the handshake.
func (c *Client) Timeout(s *record.Scratch, now time.Duration, send func(datagram []byte)) {
	if c.state >= clientDone {
		return
	}
	if c.repetitions++; c.repetitions > c.cfg.Repetitions {
		c.fail(c.Unanswered())
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
		c.ReceiveRecord(s, &r, now, send)
	}
}

// ReceiveRecord handles one record of a datagram, for an owner that has other uses for the others. It may change the record's bytes. It
// does nothing once Done.
func (c *Client) ReceiveRecord(s *record.Scratch, r *record.Record, now time.Duration, send func([]byte)) {
	switch {
	case c.state >= clientDone:
	case r.Epoch == 0 && r.Type == record.Alert:
		if len(r.Body) == 2 && r.Body[0] == 2 {
			c.fail(AlertError(r.Body[1]))
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
		switch {
		case verdict != record.Opened:
		case typ == record.Handshake:
			c.fragments(payload, 1)
			c.messagesDue(s, now, send)
		case typ == record.Alert && len(payload) == 2 && payload[0] == 2:
			c.fail(AlertError(payload[1]))
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
		if err := c.handle(s, typ, epoch, sequence, body, now, send); err != nil {
			var e clientError
			if errors.As(err, &e) && c.association == nil {
				c.out.alert(e.alert, send)
			}
			c.fail(err)
		}
	}
}

// handle handles one message.
func (c *Client) handle(s *record.Scratch, typ byte, epoch, sequence uint16, body []byte, now time.Duration, send func([]byte)) error {
	if !c.due(typ, epoch) {
		return fmt.Errorf("handshake: message type %d out of place", typ)
	}
	switch typ {
	case typeHelloVerifyRequest:
		return c.verifyRequest(body, now, send)
	case typeFinished:
		want := c.secrets.verify(serverFinished, &c.transcript)
		if subtle.ConstantTimeCompare(want[:], body) != 1 {
			return errors.New("handshake: the server's Finished is wrong")
		}
		c.remember()
		if c.resumed {
			c.transcript.message(typ, sequence, body)
			return c.finishResumed(s, now, send)
		}
		clear(c.secrets.master[:])
		c.state = clientDone
		return nil
	case typeServerHello:
		c.transcript.write(c.out.messages[0])
	}
	c.transcript.message(typ, sequence, body)
	switch typ {
	case typeServerHello:
		return c.serverHello(body)
	case typeNewSessionTicket:
		return c.newSessionTicket(body)
	case typeCertificate:
		return c.serverCertificate(body)
	case typeServerKeyExchange:
		return c.serverKeyExchange(body)
	case typeCertificateRequest:
		return c.certificateRequest(body)
	}
	return c.finish(s, now, send)
}

// due reports whether a message may come now.
func (c *Client) due(typ byte, epoch uint16) bool {
	exchange := c.secrets.suite.KeyExchange()
	switch {
	case typ == typeFinished:
		return epoch == 1 && (c.state == clientFlightSent || c.resumed)
	case epoch != 0:
		return false
	case typ == typeNewSessionTicket:
		return c.answer.hasTicket && c.ticket == nil && (c.state == clientFlightSent || c.resumed)
	case c.state != clientHelloSent || c.resumed:
		return false
	}
	greeted := c.secrets.suite != 0
	switch typ {
	case typeHelloVerifyRequest:
		return !greeted && c.cookie == nil
	case typeServerHello:
		return !greeted
	case typeCertificate:
		return greeted && exchange == record.ECDHEECDSA && c.peer == nil
	case typeServerKeyExchange:
		// Of plain PSK it is an identity hint: we have but one identity.
		return greeted && c.public == nil && (exchange != record.ECDHEECDSA || c.peer != nil)
	case typeCertificateRequest:
		return c.public != nil && exchange == record.ECDHEECDSA && !c.certificateRequested
	case typeServerHelloDone:
		return greeted && (exchange == record.PSK || c.public != nil)
	}
	return false
}

func (c *Client) fail(err error) {
	c.state, c.err = clientFailed, err
}

// flight sends what the state calls for, with fresh record sequence numbers.
func (c *Client) flight(s *record.Scratch, now time.Duration, send func([]byte)) {
	c.deadline = now + c.cfg.Timeout<<min(c.repetitions, 6)
	if err := c.out.send(c.association, s, send); err != nil {
		c.fail(err)
	}
}
