package handshake

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weir-lb/weir/internal/dtls/record"
)

func (c *Client) verifyRequest(body []byte, now time.Duration, send func([]byte)) error {
	b := cursor{b: body}
	b.uint16()
	cookie := b.vector8()
	if b.bad || len(cookie) == 0 {
		return errors.New("handshake: HelloVerifyRequest without a cookie")
	}
	c.cookie = slices.Clone(cookie)
	c.messages++
	c.sendHello(now, send)
	return nil
}

func (c *Client) serverHello(body []byte) error {
	h := &c.answer
	if !parseServerHello(body, h) || h.version != version12 || h.method != 0 {
		return clientError{errors.New("handshake: ServerHello does not make sense"), alertIllegalParameter}
	}
	if !slices.Contains(c.cfg.Suites, record.Suite(h.suite)) || !c.offered(h) {
		return clientError{errors.New("handshake: the server chose what was not offered"), alertIllegalParameter}
	}
	if c.cfg.RequireExtendedMaster && !h.extendedMaster {
		return clientError{errors.New("handshake: the server has no extended master secret"), alertHandshakeFailure}
	}
	copy(c.server[:], h.random)
	c.writeCID = slices.Clone(h.cid)
	if h.serverTypes != nil {
		c.serverType = h.serverTypes[0]
	}
	if h.clientTypes != nil {
		c.clientType = h.clientTypes[0]
	}
	if h.maxFragment == 0 {
		c.out.limit = record.MaxPlaintext // the server did not take it up
	}
	h.sessionID = slices.Clone(h.sessionID)
	c.secrets.suite = record.Suite(h.suite)
	c.transcript.start(c.secrets.suite)
	return c.resume(h)
}

// offered reports whether the server's extensions answer ours.
func (c *Client) offered(h *hello) bool {
	type pair struct{ theirs, ours bool }
	for _, e := range []pair{
		{h.hasCID, c.cfg.OfferCID && len(h.cid) <= record.MaxCID},
		{h.routability, c.cfg.OfferRoutability && h.hasCID},
		{h.hasServerName, c.offer.hasServerName},
		{h.maxFragment != 0, h.maxFragment == c.offer.maxFragment && h.recordLimit == 0},
		{h.recordLimit != 0, c.offer.recordLimit != 0},
		{h.serverTypes != nil, contains(c.offer.serverTypes, h.serverTypes)},
		{h.clientTypes != nil, contains(c.offer.clientTypes, h.clientTypes)},
		{h.hasTicket, c.offer.hasTicket},
		{len(h.renegotiated) != 0, false},
	} {
		if e.theirs && !e.ours {
			return false
		}
	}
	// Without the extension a server means X.509, which we must have meant too.
	return c.resumes(h) || h.serverTypes != nil || c.offer.serverTypes == nil || slices.Contains(c.offer.serverTypes, typeX509) ||
		record.Suite(h.suite).KeyExchange() != record.ECDHEECDSA
}

func contains(offered, chosen []byte) bool {
	return len(chosen) == 1 && slices.Contains(offered, chosen[0])
}

func (c *Client) serverCertificate(body []byte) (err error) {
	if c.peer, err = parseCertificate(body, c.serverType); err != nil {
		return clientError{fmt.Errorf("handshake: the server's certificate: %w", err), alertBadCertificate}
	}
	if c.peer == nil {
		return clientError{errors.New("handshake: the server sent no certificate"), alertBadCertificate}
	}
	if !fits(c.secrets.suite, c.peer.public) {
		return clientError{errors.New("handshake: the server's certificate is not of the kind that the suite names"), alertIllegalParameter}
	}
	return nil
}

// serverKeyExchange takes the server's public key, and checks its signature.
func (c *Client) serverKeyExchange(body []byte) error {
	exchange := c.secrets.suite.KeyExchange()
	b := cursor{b: body}
	if exchange != record.ECDHEECDSA {
		b.vector16() // identity hint
	}
	if exchange == record.PSK {
		return nil
	}
	parameters := b.b
	curve := b.uint8()
	c.group = Group(b.uint16())
	public := b.vector8()
	if b.bad || curve != namedCurve || !slices.Contains(c.cfg.Groups, c.group) {
		return clientError{errors.New("handshake: the server's key exchange makes no sense"), alertIllegalParameter}
	}
	c.public = slices.Clone(public)
	if c.peer == nil {
		return nil
	}
	signed := slices.Concat(c.random[:], c.server[:], parameters[:len(parameters)-len(b.b)])
	if err := verifySigned(&b, c.peer.public, signed); err != nil {
		return clientError{fmt.Errorf("handshake: the server's key exchange: %w", err), alertDecryptError}
	}
	return nil
}

func (c *Client) certificateRequest(body []byte) error {
	b := cursor{b: body}
	b.vector8() // certificate types
	c.schemes = slices.Clone(b.vector16())
	b.vector16() // certificate authorities
	if !b.done() {
		return clientError{errors.New("handshake: CertificateRequest does not make sense"), alertIllegalParameter}
	}
	c.certificateRequested = true
	return nil
}
