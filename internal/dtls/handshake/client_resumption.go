package handshake

import (
	"bytes"
	"errors"
	"io"
	"time"

	"github.com/weir-lb/weir/internal/dtls/record"
)

// maxOfferedTicket bounds the tickets that a client offers, in bytes: its hello must stay a message that servers take.
const maxOfferedTicket = 4096

// offerSession adds to our hello what resumes the configured session, or requests one. A ticket goes with a random session id: the
// server's answer shows by it that it takes the ticket (RFC 5077 section 3.4).
func (c *Client) offerSession() error {
	h, session := &c.offer, c.cfg.Session
	h.hasTicket = c.cfg.Resumable || session != nil && session.ticket != nil
	if session == nil {
		return nil
	}
	h.sessionID, h.ticket = session.id, session.ticket
	if session.ticket != nil {
		h.sessionID = make([]byte, sessionIDLength)
		_, err := io.ReadFull(c.cfg.Rand, h.sessionID)
		return err
	}
	return nil
}

// resumes reports whether the server's hello resumes our session.
func (c *Client) resumes(h *hello) bool {
	return c.cfg.Session != nil && len(h.sessionID) > 0 && bytes.Equal(h.sessionID, c.offer.sessionID)
}

// resume takes up the session if the server's hello says so.
func (c *Client) resume(h *hello) error {
	session := c.cfg.Session
	if !c.resumes(h) {
		return nil
	}
	if session.suite != c.secrets.suite || session.extended != h.extendedMaster {
		return clientError{errors.New("handshake: the server resumes another session"), alertIllegalParameter}
	}
	c.resumed = true
	c.secrets.master = session.master
	return c.derive()
}

func (c *Client) newSessionTicket(body []byte) error {
	b := cursor{b: body}
	b.take(4) // lifetime hint
	ticket := b.vector16()
	if !b.done() {
		return errors.New("handshake: NewSessionTicket does not make sense")
	}
	c.ticket = []byte{}
	if len(ticket) <= maxOfferedTicket {
		c.ticket = append(c.ticket, ticket...)
	}
	return nil
}

// remember makes the Session for a later handshake.
func (c *Client) remember() {
	s := &Session{
		suite: c.secrets.suite, master: c.secrets.master, extended: c.answer.extendedMaster, auth: AuthPSK,
		identity: string(c.cfg.Identity), id: c.answer.sessionID, ticket: c.ticket,
	}
	switch {
	case c.resumed:
		if s = c.cfg.Session; len(c.ticket) > 0 {
			renewed := *s
			renewed.ticket = c.ticket
			s = &renewed
		}
	case !c.cfg.Resumable || len(c.ticket) == 0 && len(s.id) == 0:
		return
	case c.peer != nil:
		s.auth, s.identity = c.peer.auth(), c.peer.identity()
	}
	if len(s.ticket) == 0 {
		s.ticket = nil
	}
	c.session = s
}

// finishResumed sends our Finished, which is the last one. Whoever owns the association sends it again where the server repeats its
// own (Result.Final).
func (c *Client) finishResumed(s *record.Scratch, now time.Duration, send func([]byte)) error {
	c.messages++
	verify := c.secrets.verify(clientFinished, &c.transcript)
	c.out.messages, c.out.finished = nil, message(typeFinished, c.messages, verify[:])
	c.flight(s, now, send)
	c.final = Final{verify: verify, message: c.messages, record: c.out.record, present: true}
	clear(c.secrets.master[:])
	c.transcript.forget()
	if c.state != clientFailed {
		c.state = clientDone
	}
	return nil
}
