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
