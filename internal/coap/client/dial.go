package client

import (
	"context"
	"fmt"
	"net"

	dtls "github.com/weir-lb/weir/internal/dtls/client"
)

// RawLink carries the messages of one connection. A Read returns one message; Close ends it. net.Conn of a connected UDP socket is one.
type RawLink = dtls.Socket

type link = RawLink

// OpenRaw connects to the server that uri names and leaves the messages to the caller, retransmission and acknowledgement
// included. Over TCP and TLS messages look like non-confirmable datagrams, and a Ping with its Pong like an empty confirmable
// message with its reset. Of cfg it takes Security, Timeout and Under.
func OpenRaw(ctx context.Context, uri string, cfg DialConfig) (RawLink, Session, error) {
	cfg.defaults()
	target, err := ParseTarget(uri)
	if err != nil {
		return nil, Session{}, err
	}
	l, session, err := open(ctx, target, &cfg)
	if err != nil {
		return nil, Session{}, fmt.Errorf("connect to %s: %w", target.Authority(), err)
	}
	return l, session, nil
}

// maxRoom is the maximum length of a message over a link that does not name one, in bytes.
const maxRoom = 16384

// roomOf is how long a message over a link may be, in bytes.
func roomOf(l link) int {
	if limited, ok := l.(interface{ room() int }); ok {
		return min(limited.room(), maxRoom)
	}
	return maxRoom
}

// open makes the link to the target: a UDP socket, a DTLS session over it, or a TCP or TLS connection.
func open(ctx context.Context, target Target, cfg *DialConfig) (link, Session, error) {
	if target.Stream {
		return openStream(ctx, target, cfg)
	}
	under, err := cfg.socket(target)
	if err != nil || !target.Secure {
		return under, Session{}, err
	}
	own := cfg.Security
	own.complete(target.Host)
	l, err := secure(ctx, under, &own, cfg.Timeout)
	if err != nil {
		return nil, Session{}, err
	}
	result := l.Result()
	return l, describe(target, &own, &result), nil
}

// socket opens the UDP socket.
func (c *DialConfig) socket(target Target) (link, error) {
	address, err := target.Resolve()
	if err != nil {
		return nil, err
	}
	socket, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(address))
	if err != nil || c.Under == nil {
		return socket, err
	}
	return c.Under(socket), nil
}
