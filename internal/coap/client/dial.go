package client

import (
	"context"
	"net"

	dtls "github.com/weir-lb/weir/internal/dtls/client"
)

// link carries the messages of one connection. A Read returns one message; Close ends it. net.Conn of a connected UDP socket is one.
type link = dtls.Socket

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
	return net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(address))
}
