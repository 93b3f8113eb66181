package allocation

import (
	"fmt"
	"net/netip"
)

// Transport is the transport protocol between a client and the server.
type Transport uint8

// The four transports of RFC 8656, section 3.1 and RFC 7350.
const (
	UDP Transport = iota
	TCP
	TLS
	DTLS
)

func transportNames() [4]string { return [4]string{"udp", "tcp", "tls", "dtls"} }

// String is the transport's name in lower case.
func (t Transport) String() string {
	if names := transportNames(); int(t) < len(names) {
		return names[t]
	}
	return fmt.Sprintf("transport(%d)", uint8(t))
}

// MarshalText writes the name; an unknown transport is an error.
func (t Transport) MarshalText() ([]byte, error) {
	if t > DTLS {
		return nil, fmt.Errorf("transport %d is unknown", uint8(t))
	}
	return []byte(t.String()), nil
}

// UnmarshalText reads a name.
func (t *Transport) UnmarshalText(text []byte) error {
	for i, name := range transportNames() {
		if string(text) == name {
			*t = Transport(i)
			return nil
		}
	}
	return fmt.Errorf("transport %.16q is none of udp, tcp, tls, dtls", text)
}

// stream reports whether the transport's own handshake proves the client's address.
func (t Transport) stream() bool { return t == TCP || t == TLS }

// Path is the client's 5-tuple (RFC 8656, section 2). Listener is a small id that the gateway assigns and does not
// reuse while the process lives; records contain the listener's name instead.
type Path struct {
	Client    netip.AddrPort `json:"client"`
	Server    netip.AddrPort `json:"server"`
	Transport Transport      `json:"transport"`
	Listener  uint16         `json:"-"`
	// Session, if not 0, distinguishes DTLS sessions with a connection id from others: the address of their clients may change.
	Session uint32 `json:"-"`
}
