package client

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/record"
)

// Room is what Seal needs in front of and behind the message, in bytes.
const (
	HeadRoom = record.MaxHeadRoom
	TailRoom = record.MaxTailRoom
)

// Session is an established session. Any goroutine may call its methods.
type Session struct {
	mu      sync.Mutex // of all fields
	result  handshake.Result
	scratch record.Scratch
	cid     int // length of our connection id; -1: none is negotiated
}

// Wire carries the datagrams of a handshake.
type Wire interface {
	// Send sends a datagram, which it must not keep.
	Send(datagram []byte)
	// Receive waits until deadline for a datagram and passes each that has come to handle. When the time is up it returns
	// os.ErrDeadlineExceeded.
	Receive(deadline time.Time, handle func(datagram []byte)) error
}

// Shake makes a session. It ends with an *Error when the server refuses or is refused, and when it is silent until cfg's repetitions
// are used up or ctx's deadline comes; with ctx's error when ctx is cancelled; otherwise with that of wire.
func Shake(ctx context.Context, cfg handshake.ClientConfig, wire Wire) (*Session, error) {
	c, err := handshake.NewClient(cfg)
	if err != nil {
		return nil, err
	}
	s := &Session{cid: -1}
	if cfg.OfferCID {
		s.cid = len(cfg.CID)
	}
	start := time.Now()
	c.Start(0, wire.Send)
	for {
		if done, err := c.Done(); err != nil {
			return nil, Explain(err, time.Since(start))
		} else if done {
			s.result = c.Result()
			return s, nil
		}
		if ctx.Err() != nil {
			return nil, cutShort(ctx, c, time.Since(start))
		}
		due := start.Add(c.Deadline())
		until := time.Now().Add(100 * time.Millisecond) // ctx is looked at in between
		if due.Before(until) {
			until = due
		}
		err := wire.Receive(until, func(datagram []byte) { c.Receive(&s.scratch, datagram, time.Since(start), wire.Send) })
		switch {
		case err == nil:
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return nil, Unreachable(err)
		case !time.Now().Before(due):
			c.Timeout(&s.scratch, time.Since(start), wire.Send)
		}
	}
}

// Result is what the handshake has negotiated: suite, connection ids of both sides, what the server has proven itself with. The
// session goes on using its Association: only the methods that tell what was negotiated may be called.
func (s *Session) Result() handshake.Result { return s.result }

// MaxPayload is the maximum length of a message in bytes. A server may have requested less than record.MaxPlaintext (RFC 8449).
func (s *Session) MaxPayload() int { return s.result.Association.MaxPayload() }

// Seal turns the message buf[HeadRoom:HeadRoom+n] into a record, in place, and returns it, a part of buf. buf must have TailRoom
// behind the message.
func (s *Session) Seal(buf []byte, n int) ([]byte, error) {
	return s.seal(record.ApplicationData, buf, n)
}

func (s *Session) seal(typ record.ContentType, buf []byte, n int) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.result.Association.Seal(&s.scratch, typ, buf, HeadRoom, n)
}

// Open handles a datagram, whose bytes it changes, and passes each message in it to each, which must not keep it. reply sends a
// datagram of the session itself, and must not keep it. After io.EOF, or another error, the server has ended the session.
func (s *Session) Open(datagram []byte, each, reply func([]byte)) error {
	var r record.Record
	var err error
	for len(datagram) > 0 {
		if datagram, err = record.Next(datagram, s.cid, &r); err != nil {
			return nil // what is left is no record
		}
		s.mu.Lock()
		typ, payload, _, verdict := s.result.Association.Open(&s.scratch, &r)
		if verdict == record.Opened && typ == record.ApplicationData {
			s.result.Final.Drop() // the server has our last flight
		}
		s.mu.Unlock()
		switch {
		case verdict == record.Spent:
			return errors.New("too many records of the DTLS session failed to open; its keys cannot be used any more")
		case verdict != record.Opened:
		case typ == record.ApplicationData:
			each(payload)
		case typ == record.Alert:
			if err := ended(payload); err != nil {
				return err
			}
		case typ == record.Handshake && handshake.Renegotiates(payload):
			s.refuseRenegotiation(reply)
		case typ == record.Handshake:
			s.repeatFinal(reply)
		case typ == record.RoutabilityCheck:
			s.answerChallenge(payload, reply)
		}
	}
	return nil
}

// ended returns the error of an alert that ends the session, nil for a warning (RFC 5246 section 7.2).
func ended(alert []byte) error {
	const warning, closeNotify = 1, 0
	switch {
	case len(alert) != 2:
		return nil
	case alert[1] == closeNotify:
		return io.EOF
	case alert[0] == warning:
		return nil
	}
	return &Error{"the server has ended the DTLS session", handshake.AlertError(alert[1])}
}

// refuseRenegotiation tells the server that the keys stay as they are (RFC 5246 section 7.2.2). The session goes on.
func (s *Session) refuseRenegotiation(reply func([]byte)) {
	const warning, noRenegotiation = 1, 100
	var buf [HeadRoom + 2 + TailRoom]byte
	buf[HeadRoom], buf[HeadRoom+1] = warning, noRenegotiation
	if out, err := s.seal(record.Alert, buf[:], 2); err == nil {
		reply(out)
	}
}

// repeatFinal sends our last flight again, where the handshake ended with it and the server requests it.
func (s *Session) repeatFinal(reply func([]byte)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.result.Final.Present() {
		if out, err := s.result.Final.Append(s.result.Association, &s.scratch, nil); err == nil {
			reply(out)
		}
	}
}

// answerChallenge shows the server that we receive what it sends to our address (RFC 9853 section 4).
func (s *Session) answerChallenge(message []byte, reply func([]byte)) {
	const challenge, response, length = 0, 1, 9
	if !s.result.Routability || len(message) != length || message[0] != challenge {
		return
	}
	var buf [HeadRoom + length + TailRoom]byte
	buf[HeadRoom] = response
	copy(buf[HeadRoom+1:], message[1:])
	if out, err := s.seal(record.RoutabilityCheck, buf[:], length); err == nil {
		reply(out)
	}
}

// CloseNotify returns the record that ends the session (RFC 5246 section 7.2.1).
func (s *Session) CloseNotify() ([]byte, error) {
	var buf [HeadRoom + 2 + TailRoom]byte
	buf[HeadRoom] = 1
	return s.seal(record.Alert, buf[:], 2)
}
