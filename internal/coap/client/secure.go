package client

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/record"
)

// errClosed says that the server has ended the DTLS session.
var errClosed = errors.New("the server has closed the DTLS session")

// secureLink is a DTLS session over link. One goroutine may Read while others Write.
type secureLink struct {
	link
	cidLength int // of our connection id; negative: none offered

	in, rest []byte // a datagram, and what is not read of it

	mu          sync.Mutex
	scratch     record.Scratch
	association *record.Association
	final       handshake.Final
}

// secure makes a DTLS session over a link, within limit.
func secure(ctx context.Context, under link, s *Security, limit time.Duration) (*secureLink, handshake.Result, error) {
	cid := make([]byte, s.CIDLength)
	rand.Read(cid) //nolint:errcheck // never fails, by its contract
	client, err := handshake.NewClient(s.handshake(cid))
	if err != nil {
		return nil, handshake.Result{}, err
	}
	l := &secureLink{link: under, cidLength: len(cid), in: make([]byte, 65536)}
	if s.NoCID {
		l.cidLength = -1
	}
	stop := context.AfterFunc(ctx, func() { under.SetReadDeadline(time.Unix(1, 0)) }) //nolint:errcheck // only to wake the reader
	defer stop()
	if err := l.shake(ctx, client, limit); err != nil {
		return nil, handshake.Result{}, err
	}
	result := client.Result()
	l.association, l.final = result.Association, result.Final
	return l, result, nil
}

// shake drives the handshake to its end.
func (l *secureLink) shake(ctx context.Context, client *handshake.Client, limit time.Duration) error {
	start := time.Now()
	var refused error
	send := func(d []byte) {
		if _, err := l.link.Write(d); err != nil {
			refused = err
		}
	}
	client.Start(0, send)
	for {
		if done, err := client.Done(); done {
			return explain(err, time.Since(start))
		}
		if refused != nil {
			return refusal(refused)
		}
		l.link.SetReadDeadline(start.Add(min(client.Deadline(), limit))) //nolint:errcheck // Read reports it
		if ctx.Err() != nil {
			return ctx.Err()
		}
		n, err := l.link.Read(l.in)
		now := time.Since(start)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			client.Receive(&l.scratch, l.in[:n], now, send)
		case !isTimeout(err):
			return refusal(err)
		case now >= limit:
			return explain(client.Unanswered(), limit)
		default:
			client.Timeout(&l.scratch, max(now, client.Deadline()), send)
		}
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// Read returns the payload of the next record of application data.
func (l *secureLink) Read(b []byte) (int, error) {
	for {
		for len(l.rest) > 0 {
			var r record.Record
			var err error
			if l.rest, err = record.Next(l.rest, l.cidLength, &r); err != nil {
				l.rest = nil
				break
			}
			payload, err := l.open(&r)
			if err != nil {
				return 0, err
			}
			if payload != nil {
				return copy(b, payload), nil
			}
		}
		n, err := l.link.Read(l.in)
		if err != nil {
			return 0, err
		}
		l.rest = l.in[:n]
	}
}

// open handles one record and returns its payload if it is application data.
func (l *secureLink) open(r *record.Record) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	kind, payload, _, verdict := l.association.Open(&l.scratch, r)
	switch {
	case verdict == record.Spent:
		return nil, errors.New("too many forged records: the keys of the DTLS session are spent")
	case verdict != record.Opened:
		return nil, nil
	case kind == record.ApplicationData:
		l.final.Drop() // the server has it
		return payload, nil
	case kind == record.Handshake && l.final.Present(): // the server repeats its last flight, so ours was lost
		if flight, err := l.final.Append(l.association, &l.scratch, nil); err == nil {
			l.link.Write(flight) //nolint:errcheck // it asks again
		}
	case kind == record.RoutabilityCheck && len(payload) == 9 && payload[0] == 0: // RFC 9853: a challenge
		payload[0] = 1
		l.seal(record.RoutabilityCheck, payload) //nolint:errcheck // it asks again
	case kind == record.Alert && len(payload) == 2 && payload[1] == 0:
		return nil, errClosed
	case kind == record.Alert && len(payload) == 2 && payload[0] == 2:
		return nil, fmt.Errorf("%w with alert %d", errClosed, payload[1])
	}
	return nil, nil
}

// Write seals one record of application data.
func (l *secureLink) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(b), l.seal(record.ApplicationData, b)
}

// seal protects payload and sends it; with l.mu held.
func (l *secureLink) seal(kind record.ContentType, payload []byte) error {
	head := l.association.HeadRoom()
	buffer := make([]byte, head+len(payload)+l.association.TailRoom())
	copy(buffer[head:], payload)
	sealed, err := l.association.Seal(&l.scratch, kind, buffer, head, len(payload))
	if errors.Is(err, record.ErrSize) {
		return fmt.Errorf("a message of %d bytes: the server takes at most %d in one record", len(payload), l.association.MaxPayload())
	}
	if err != nil {
		return err
	}
	_, err = l.link.Write(sealed)
	return err
}

// room is how long a message may be, in bytes.
func (l *secureLink) room() int { return l.association.MaxPayload() }

func (l *secureLink) Close() error {
	l.mu.Lock()
	l.seal(record.Alert, []byte{1, 0}) //nolint:errcheck // close_notify is a courtesy
	l.mu.Unlock()
	return l.link.Close()
}

// describe is what a user sees of a session.
func describe(target Target, own *Security, r *handshake.Result) Session {
	var id [4]byte
	rand.Read(id[:]) //nolint:errcheck // never fails, by its contract
	s := Session{
		Authority: target.Authority(), ID: binary.BigEndian.Uint32(id[:]),
		Suite: r.Association.Suite().String(), Auth: r.Auth, Identity: r.Identity, HasCID: r.HasCID, Resumed: r.Resumed, Resumption: r.Session,
		ReadCID: hexCID(r.Association.ReadCID()), WriteCID: hexCID(r.Association.WriteCID()),
	}
	if r.Auth == handshake.AuthPSK && s.Identity == "" {
		s.Identity = own.Identity
	}
	return s
}

func hexCID(cid []byte) string { return fmt.Sprintf("%X", cid) }
