package handshake

import (
	"crypto"
	"crypto/ecdh"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/weir-lb/weir/internal/dtls/record"
)

// isHostName reports whether a name may be sent to the server: it is no address (RFC 6066 section 3).
func isHostName(name string) bool {
	_, err := netip.ParseAddr(name)
	return name != "" && err != nil
}

// finish answers the server's flight.
func (c *Client) finish(s *record.Scratch, now time.Duration, send func([]byte)) error {
	if c.peer != nil {
		if err := c.credentials.trust(c.peer, x509.ExtKeyUsageServerAuth, c.cfg.ServerName, c.cfg.Clock()); err != nil {
			return clientError{UntrustedError{err}, alertOf(err)}
		}
	}
	c.messages++
	c.out.messages = nil
	if c.certificateRequested {
		c.ownCertificate()
	}
	if err := c.keyExchange(); err != nil {
		return err
	}
	if err := c.certificateVerify(); err != nil {
		return err
	}
	c.transcript.forget()
	verify := c.secrets.verify(clientFinished, &c.transcript)
	c.out.finished = message(typeFinished, c.messages, verify[:])
	c.transcript.write(c.out.finished)
	c.state = clientFlightSent
	c.repetitions = 0
	c.flight(s, now, send)
	c.replayEarly(s, now, send)
	return nil
}

func (c *Client) appendMessage(typ byte, body []byte) {
	m := message(typ, c.messages, body)
	c.messages++
	c.out.messages = append(c.out.messages, m)
	c.transcript.write(m)
}

// ownCertificate sends the certificate that the server can verify, or an empty message.
func (c *Client) ownCertificate() {
	body := []byte{0, 0, 0}
	if own, typ, _, ok := c.credentials.choose("", []byte{c.clientType}, nil, c.schemes, func(crypto.PublicKey) bool { return true }); ok {
		c.certificate = own
		body = own.body(typ)
	}
	c.appendMessage(typeCertificate, body)
}

// keyExchange sends the ClientKeyExchange and makes the association.
func (c *Client) keyExchange() error {
	exchange := c.secrets.suite.KeyExchange()
	var body, public, shared, premaster []byte
	var err error
	if exchange != record.PSK {
		if public, shared, err = c.privateKey(); err != nil {
			return clientError{fmt.Errorf("handshake: key exchange: %w", err), alertIllegalParameter}
		}
	}
	if exchange != record.ECDHEECDSA {
		body = appendVector16(body, c.cfg.Identity)
		premaster = premasterPSK(c.cfg.Key, shared)
	} else {
		premaster = shared
	}
	if exchange != record.PSK {
		body = appendVector8(body, public)
	}
	c.appendMessage(typeClientKeyExchange, body)
	c.secrets.agree(premaster, c.answer.extendedMaster, &c.transcript, c.random[:], c.server[:])
	return c.derive()
}

// derive makes the association of the master secret.
func (c *Client) derive() (err error) {
	keys := c.secrets.keys(c.random[:], c.server[:])
	if c.cfg.MACKeys {
		c.clientMAC, c.serverMAC = c.secrets.macKeys(c.random[:], c.server[:])
	}
	var readCID []byte
	if c.answer.hasCID {
		readCID = c.cfg.CID
	}
	if c.association, err = record.NewAssociation(c.secrets.suite, &keys, record.Client, readCID, c.writeCID); err != nil {
		return err
	}
	switch {
	case c.answer.recordLimit != 0:
		c.association.LimitPlaintext(c.answer.recordLimit)
	case c.out.limit < record.MaxPlaintext:
		c.association.LimitPlaintext(c.out.limit)
	}
	return nil
}

// certificateVerify proves that we have the key of our certificate.
func (c *Client) certificateVerify() error {
	if c.certificate == nil {
		return nil
	}
	scheme, ok := chooseScheme(c.certificate.key.Public(), c.schemes)
	if !ok {
		return errors.New("handshake: no signature scheme for the client's key")
	}
	body, err := appendSigned(nil, c.certificate.key, scheme, c.transcript.raw, c.cfg.Rand)
	if err != nil {
		return fmt.Errorf("handshake: sign: %w", err)
	}
	c.appendMessage(typeCertificateVerify, body)
	return nil
}

// replayEarly handles the records that came before their keys.
func (c *Client) replayEarly(s *record.Scratch, now time.Duration, send func([]byte)) {
	var r record.Record
	for _, raw := range c.early {
		if _, err := record.Next(raw, len(c.cfg.CID), &r); err == nil && c.state < clientDone {
			c.ReceiveRecord(s, &r, now, send)
		}
	}
	c.early = nil
}

// privateKey makes our key pair of the ephemeral key exchange and returns its public part and the shared secret.
func (c *Client) privateKey() (public, shared []byte, err error) {
	private, err := c.group.generate(c.cfg.Rand)
	if err != nil {
		return nil, nil, err
	}
	var theirs *ecdh.PublicKey
	if theirs, err = c.group.curve().NewPublicKey(c.public); err != nil {
		return nil, nil, err
	}
	shared, err = private.ECDH(theirs)
	return private.PublicKey().Bytes(), shared, err
}
