package handshake

import (
	"crypto/x509"
	"slices"
	"time"
)

// ConfigOption changes a Client for a test.
type ConfigOption func(*Client)

// WithoutTickets lets the client resume by session id only, as Californium's does.
func WithoutTickets(c *Client) {
	c.offer.hasTicket = false
	if c.cfg.Session != nil {
		c.offer.sessionID, c.offer.ticket = c.cfg.Session.id, nil
	}
}

// WithoutExtendedMaster lets the client not know RFC 7627.
func WithoutExtendedMaster(c *Client) { c.offer.extendedMaster = false }

// TicketOf returns a session's ticket.
func TicketOf(s *Session) []byte { return slices.Clone(s.ticket) }

// WithTicket returns a copy of the session with another ticket.
func WithTicket(s *Session, ticket []byte) *Session {
	changed := *s
	changed.ticket = ticket
	return &changed
}

// CertificateBody returns the body of a Certificate message.
func CertificateBody(c *Certificate, typ byte) []byte { return c.body(typ) }

// TrustsBody reports whether the client of a Certificate message would be trusted.
func TrustsBody(c *Credentials, body []byte, typ byte) bool {
	p, err := parseCertificate(body, typ)
	return err == nil && p != nil && c.trust(p, x509.ExtKeyUsageClientAuth, "", time.Now()) == nil
}

// WithVersion10 lets the client know DTLS 1.0 only.
func WithVersion10(c *Client) { c.offer.version = version10 }

// WithCompressedPoints lets the client read no point in our format.
func WithCompressedPoints(c *Client) { c.offer.pointFormats = []byte{1} }

// WithoutGroups lets the client not say which groups it knows.
func WithoutGroups(c *Client) { c.offer.groups, c.offer.pointFormats = nil, nil }

// WithoutSchemes lets the client not say which signatures it verifies.
func WithoutSchemes(c *Client) { c.offer.schemes = nil }

// ParseChain reads a chain of certificates as a peer's.
func ParseChain(chain ...[]byte) error {
	var list []byte
	for _, der := range chain {
		list = appendVector24(list, der)
	}
	p, err := parseCertificate(appendVector24(nil, list), typeX509)
	if err != nil {
		return err
	}
	_, err = p.intermediates()
	return err
}

// CorruptFinal makes the Finished wrong.
func CorruptFinal(f *Final) { f.verify[0] ^= 1 }
