package client

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/coap/stream"
	dtls "github.com/weir-lb/weir/internal/dtls/client"
	"github.com/weir-lb/weir/internal/dtls/handshake"
)

// streamLink carries messages over TCP or TLS. To the rest of the client they look like non-confirmable datagrams, and a Ping with
// its Pong like an empty message with its reset.
type streamLink struct {
	conn *stream.Conn
	next uint16        // message id of what comes
	ping atomic.Uint32 // message id of the newest Ping
}

// openStream connects over TCP or TLS.
func openStream(ctx context.Context, target Target, cfg *DialConfig) (link, Session, error) {
	ctx, cancel := context.WithTimeout(ctx, cfg.Timeout)
	defer cancel()
	var secure *tls.Config
	own := cfg.Security
	if target.Secure {
		var err error
		if secure, err = own.tls(target.Host); err != nil {
			return nil, Session{}, err
		}
	}
	address, err := target.Resolve()
	if err != nil {
		return nil, Session{}, err
	}
	settings := stream.Announced()
	settings.MaxMessageSize = maxStreamMessage
	conn, err := stream.Dial(ctx, address.String(), secure, settings)
	if err != nil {
		return nil, Session{}, explainTLS(err, cfg.Timeout)
	}
	l := &streamLink{conn: conn}
	if secured, ok := conn.NetConn().(*tls.Conn); ok {
		return l, describeTLS(target, secured), nil
	}
	return l, Session{}, nil
}

// maxStreamMessage is the maximum length of a message that this client takes over TCP, in bytes; longer ones come in blocks.
const maxStreamMessage = 60000

// tls is the configuration of a TLS client.
func (s *Security) tls(host string) (*tls.Config, error) {
	if s.Credentials == nil {
		return nil, errors.New("TLS needs certificates: name a certificate to trust (--trust, --trust-all); pre-shared keys and raw public keys are for coaps://")
	}
	cfg := &tls.Config{
		ServerName: s.ServerName, RootCAs: s.Credentials.Roots, InsecureSkipVerify: s.Credentials.TrustAll, MinVersion: tls.VersionTLS12, //nolint:gosec // the user's --trust-all
	}
	if cfg.ServerName == "" {
		cfg.ServerName = host
	}
	for _, own := range s.Credentials.Certificates {
		if c, ok := own.TLS(); ok {
			cfg.Certificates = append(cfg.Certificates, c)
		}
	}
	if cfg.RootCAs == nil && !cfg.InsecureSkipVerify {
		return nil, errors.New("no root certificate is trusted; TLS knows no raw public keys here")
	}
	return cfg, nil
}

// explainTLS names the cause of a failed connection.
func explainTLS(err error, after time.Duration) error {
	var untrusted *tls.CertificateVerificationError
	var alert tls.AlertError
	switch {
	case errors.As(err, &untrusted):
		return fmt.Errorf("certificate not trusted: %w", untrusted.Err)
	case errors.As(err, &alert):
		return fmt.Errorf("%s (%w)", dtls.AlertCause(handshake.AlertError(alert)), err)
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("no answer within %v (%w)", after, err)
	}
	return dtls.Unreachable(err)
}

func describeTLS(target Target, conn *tls.Conn) Session {
	state := conn.ConnectionState()
	var id [4]byte
	rand.Read(id[:]) //nolint:errcheck // never fails, by its contract
	s := Session{
		TLS: true, Authority: target.Authority(), ID: binary.BigEndian.Uint32(id[:]), Suite: tls.CipherSuiteName(state.CipherSuite),
		Auth: handshake.AuthX509, Resumed: state.DidResume,
	}
	if len(state.PeerCertificates) > 0 {
		s.Identity = state.PeerCertificates[0].Subject.String()
	}
	return s
}

// Write sends a message. Acknowledgements and resets have no counterpart.
func (l *streamLink) Write(b []byte) (int, error) {
	switch {
	case len(b) > 4 || b[1] != 0:
		return len(b), l.conn.Send(b)
	case message.Type(b[0]>>4&3) == message.Con:
		l.ping.Store(uint32(binary.BigEndian.Uint16(b[2:])))
		return len(b), l.conn.Ping(b[2:4], false)
	}
	return len(b), nil
}

// Read returns the next message as a datagram.
func (l *streamLink) Read(b []byte) (int, error) {
	var m message.Message
	if err := l.conn.Receive(&m); err != nil {
		return 0, err
	}
	if m.Code == stream.Pong {
		mid := uint16(l.ping.Load()) // libcoap leaves the token of the Ping out
		if len(m.Token) == 2 {
			mid = binary.BigEndian.Uint16(m.Token)
		}
		return copy(b, message.AppendEmpty(nil, message.Rst, mid)), nil
	}
	l.next++
	var out message.Builder
	out.Reset(b[:0], message.Non, m.Code, l.next, m.Token)
	for options := m.Options(); options.Next(); {
		out.Option(options.ID(), options.Value())
	}
	out.Payload(m.Payload)
	datagram, err := out.Bytes()
	return len(datagram), err
}

// SetReadDeadline wakes a Read at t.
func (l *streamLink) SetReadDeadline(t time.Time) error { return l.conn.NetConn().SetReadDeadline(t) }

func (l *streamLink) Close() error { return l.conn.Close() }

// room is how long a message to the peer may be, in bytes: little until its settings have come.
func (l *streamLink) room() int { return l.conn.Peer().MaxMessageSize }
