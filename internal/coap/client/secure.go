package client

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	dtls "github.com/weir-lb/weir/internal/dtls/client"
	"github.com/weir-lb/weir/internal/dtls/handshake"
)

// errClosed says that the server has ended the DTLS session.
var errClosed = errors.New("the server has closed the DTLS session")

// secureLink is a DTLS session over a link.
type secureLink struct{ *dtls.Conn }

// secure makes a DTLS session over a link, within limit.
func secure(ctx context.Context, under link, s *Security, limit time.Duration) (secureLink, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cid := make([]byte, s.CIDLength)
	rand.Read(cid) //nolint:errcheck // never fails, by its contract
	conn, err := dtls.Dial(ctx, under, s.handshake(cid))
	return secureLink{conn}, err
}

// Read returns the next message.
func (l secureLink) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if errors.Is(err, io.EOF) {
		err = errClosed
	}
	return n, err
}

// room is how long a message may be, in bytes.
func (l secureLink) room() int { return l.MaxPayload() }

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
