package client

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
)

// RequestConfig describes one request. The zero value of a field means its default.
type RequestConfig struct {
	URI           string
	Method        message.Code // default GET
	NON           bool
	Payload       []byte
	ContentFormat *message.Format // of the payload
	Accept        *message.Format
	Identity      string        // PSK identity; default "cali." and 16 random hex digits
	Secret        []byte        // PSK; default ".fornium"
	CIDLength     int           // of the connection id this client receives with; 0 is fine: the server's is the one that matters
	NoCID         bool          // do not offer a connection id
	AckTimeout    time.Duration // RFC 7252 ACK_TIMEOUT; default 2 s
	Timeout       time.Duration // for the handshake, and again for each exchange; default 30 s

	echo      []byte // value of an Echo option
	block     uint32 // value of Block2, if blockwise
	blockwise bool
}

// Exchange is a request and what came back.
type Exchange struct {
	Target          Target
	Request         []byte // datagram as sent
	Response        []byte // datagram as received; where it came in blocks, the first one's with the whole payload
	Session         Session
	RTT             time.Duration // first transmission to response, without handshake
	Elapsed         time.Duration // with handshake
	Retransmissions int
}

// Session describes the DTLS session of an Exchange; the zero value is plain CoAP.
type Session struct {
	Authority string // host:port
	ID        uint32 // names the session in logs; derived from its keys by RFC 5705, reveals nothing
	Suite     string // IANA name; empty: no DTLS
	Identity  string // PSK identity
	HasCID    bool
}

// DefaultSecret is the PSK of identities that start with "cali.", as Californium's demo server has it.
const DefaultSecret = ".fornium"

// NewIdentity draws "cali." and 16 hex digits, an identity that Californium's demo server accepts.
func NewIdentity() string {
	var b [8]byte
	rand.Read(b[:]) //nolint:errcheck // never fails, by its contract
	return "cali." + strings.ToUpper(hex.EncodeToString(b[:]))
}

func (c *RequestConfig) defaults() {
	if c.Method == message.Empty {
		c.Method = message.GET
	}
	if c.Identity == "" {
		c.Identity = NewIdentity()
	}
	if len(c.Secret) == 0 {
		c.Secret = []byte(DefaultSecret)
	}
	if c.AckTimeout <= 0 {
		c.AckTimeout = 2 * time.Second
	}
	if c.Timeout <= 0 {
		c.Timeout = 30 * time.Second
	}
}

// Request sends one request and waits for its response. An error response (4.xx, 5.xx) is a response, not an error.
func Request(ctx context.Context, cfg RequestConfig) (Exchange, error) {
	cfg.defaults()
	target, err := ParseTarget(cfg.URI)
	if err != nil {
		return Exchange{}, err
	}
	x := Exchange{Target: target}
	if x.Request, err = buildRequest(target, cfg); err != nil {
		return x, fmt.Errorf("request to %s: %w", cfg.URI, err)
	}
	start := time.Now()
	conn, session, err := dial(ctx, target, cfg)
	if err != nil {
		return x, fmt.Errorf("connect to %s: %w", target.Authority(), err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) }) //nolint:errcheck // only to wake the reader
	defer stop()
	x.Session = session
	err = x.exchange(ctx, conn, cfg)
	if err == nil {
		err = x.follow(ctx, conn, cfg)
	}
	if err != nil {
		if ctx.Err() != nil { // it may have met the exchange in a Write, which calls it a time-out
			err = ctx.Err()
		}
		return x, fmt.Errorf("%s: %w", cfg.URI, err)
	}
	x.Elapsed = time.Since(start)
	return x, nil
}

func buildRequest(target Target, cfg RequestConfig) ([]byte, error) {
	var random [10]byte
	rand.Read(random[:]) //nolint:errcheck // never fails, by its contract
	kind := message.Con
	if cfg.NON {
		kind = message.Non
	}
	var b message.Builder
	b.Reset(make([]byte, 0, 9216+len(cfg.Payload)), kind, cfg.Method, uint16(random[0])<<8|uint16(random[1]), random[2:10])
	format := func() {
		if cfg.ContentFormat != nil {
			b.Uint(message.ContentFormat, uint32(*cfg.ContentFormat))
		}
	}
	target.options(&b, format)
	if cfg.Accept != nil {
		b.Uint(message.Accept, uint32(*cfg.Accept))
	}
	if cfg.blockwise {
		b.Uint(message.Block2, cfg.block)
	}
	if cfg.echo != nil {
		b.Option(message.Echo, cfg.echo)
	}
	b.Payload(cfg.Payload)
	return b.Bytes()
}

// errNoResponse ends an exchange after the last retransmission.
var errNoResponse = errors.New("no response")

// exchange sends the request, repeats it as RFC 7252 section 4.2 says and waits for the response, piggybacked or separate.
func (x *Exchange) exchange(ctx context.Context, conn net.Conn, cfg RequestConfig) error {
	var request message.Message
	if err := message.Parse(x.Request, &request); err != nil {
		return err
	}
	first := time.Now()
	end := first.Add(cfg.Timeout)
	wait := backOff(cfg.AckTimeout)
	if _, err := conn.Write(x.Request); err != nil {
		return err
	}
	next, acknowledged := first.Add(wait), cfg.NON
	buffer := make([]byte, 65536)
	for {
		deadline := end
		if !acknowledged && next.Before(end) {
			deadline = next
		}
		conn.SetReadDeadline(deadline) //nolint:errcheck // Read reports it
		if ctx.Err() != nil {
			return ctx.Err()
		}
		n, err := conn.Read(buffer)
		if err == nil {
			done, ack, err := x.receive(conn, &request, buffer[:n])
			if done || err != nil {
				x.RTT = time.Since(first)
				return err
			}
			acknowledged = acknowledged || ack
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var timeout net.Error
		if !errors.As(err, &timeout) || !timeout.Timeout() {
			return err
		}
		if !time.Now().Before(end) || (!acknowledged && x.Retransmissions == maxRetransmit) {
			return fmt.Errorf("%w within %v, %d retransmissions", errNoResponse, time.Since(first).Round(time.Millisecond), x.Retransmissions)
		}
		x.Retransmissions++
		wait *= 2
		next = time.Now().Add(wait)
		if _, err := conn.Write(x.Request); err != nil {
			return err
		}
	}
}

// receive judges one datagram: done when it is the response, ack when it only says that one will come.
func (x *Exchange) receive(conn net.Conn, request *message.Message, datagram []byte) (done, ack bool, err error) {
	var m message.Message
	if message.Parse(datagram, &m) != nil {
		return false, false, nil
	}
	switch {
	case m.Type == message.Rst && m.ID == request.ID:
		return true, false, errors.New("the server answered with reset (RST)")
	case m.Code == message.Empty && m.Type == message.Con: // a ping, which may be to prove our address
		_, err := conn.Write(message.AppendEmpty(nil, message.Rst, m.ID))
		return false, false, err
	case m.Code == message.Empty:
		return false, m.Type == message.Ack && m.ID == request.ID, nil
	case !m.Code.IsResponse() || string(m.Token) != string(request.Token):
		return false, false, nil
	case m.Type == message.Ack && m.ID != request.ID:
		return false, false, nil
	}
	if m.Type == message.Con {
		if _, err := conn.Write(message.AppendEmpty(nil, message.Ack, m.ID)); err != nil {
			return false, false, err
		}
	}
	x.Response = append([]byte(nil), datagram...)
	return true, false, nil
}
