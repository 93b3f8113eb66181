package gateway

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/weir-lb/weir/internal/turn/routes"
)

// WithDefaults returns the configuration with defaults for missing values, as a gateway runs it. It does not change
// c's lists.
func (c Config) WithDefaults() Config {
	c.Name, c.Realm = cmp.Or(c.Name, DefaultName), cmp.Or(c.Realm, DefaultRealm)
	c.Auth.Mode = cmp.Or(c.Auth.Mode, AuthStatic)
	c.Listeners, c.Clusters = slices.Clone(c.Listeners), slices.Clone(c.Clusters)
	for i := range c.Listeners {
		c.Listeners[i].setDefaults()
	}
	for i := range c.Clusters {
		cluster := &c.Clusters[i]
		cluster.Protocol = cmp.Or(cluster.Protocol, UDP)
		cluster.Refresh = cmp.Or(cluster.Refresh, routes.DefaultRefresh)
	}
	q := &c.Quotas
	q.Allocations = cmp.Or(q.Allocations, DefaultAllocations)
	q.Permissions, q.Channels = cmp.Or(q.Permissions, DefaultPerClient), cmp.Or(q.Channels, DefaultPerClient)
	q.Connections = cmp.Or(q.Connections, DefaultTCP)
	l := &c.Limits
	l.Unauthenticated = cmp.Or(l.Unauthenticated, DefaultUnauthenticated)
	l.UnauthenticatedTotal = cmp.Or(l.UnauthenticatedTotal, DefaultUnauthenticatedTotal)
	l.Bindings, l.Proven = cmp.Or(l.Bindings, DefaultBindings), cmp.Or(l.Proven, DefaultProven)
	l.Connections, l.Handshakes = cmp.Or(l.Connections, DefaultConnections), cmp.Or(l.Handshakes, DefaultHandshakes)
	t := &c.Lifetimes
	t.Max = cmp.Or(t.Max, DefaultMaxLifetime)
	t.Default = cmp.Or(t.Default, min(DefaultLifetime, t.Max))
	t.Nonce = cmp.Or(t.Nonce, DefaultNonce)
	c.Drain.Timeout = cmp.Or(c.Drain.Timeout, DefaultDrain)
	c.Offload.Mode = cmp.Or(c.Offload.Mode, OffloadNone)
	return c
}

func (l *ListenerConfig) setDefaults() {
	l.Protocol = cmp.Or(l.Protocol, UDP)
	if !l.Address.IsValid() {
		l.Address = netip.IPv4Unspecified()
	}
	if l.Port == 0 {
		l.Port = DefaultPort
		if l.Protocol.Secure() {
			l.Port = DefaultSecurePort
		}
	}
	if l.RelayPorts == (PortRange{}) {
		l.RelayPorts = PortRange{Min: 49152, Max: 65535}
	}
}

// Secure reports whether the protocol is TLS or DTLS.
func (p Protocol) Secure() bool { return p == TLS || p == DTLS }

// Stream reports whether the protocol runs over TCP.
func (p Protocol) Stream() bool { return p == TCP || p == TLS }

// UnmarshalText reads a protocol in lower or upper case.
func (p *Protocol) UnmarshalText(text []byte) error {
	*p = Protocol(strings.ToLower(string(text)))
	return nil // Validate checks which protocols are valid here
}

// URI is the URI for clients as RFC 7065 writes it: turn:192.0.2.1:3478?transport=udp. It always includes the port.
func (l *ListenerConfig) URI() string {
	scheme, transport := "turn", "udp"
	if l.Protocol.Secure() {
		scheme = "turns"
	}
	if l.Protocol.Stream() {
		transport = "tcp"
	}
	where := l.Public
	if where == "" {
		where = netip.AddrPortFrom(l.Address, l.Port).String()
	}
	return scheme + ":" + where + "?transport=" + transport
}

// Redacted is the configuration without its secrets, for status.
func (c Config) Redacted() Config {
	c.Auth.Users, c.Auth.Secrets = slices.Clone(c.Auth.Users), slices.Clone(c.Auth.Secrets)
	for i := range c.Auth.Users {
		c.Auth.Users[i].Password = redacted
	}
	for i := range c.Auth.Secrets {
		c.Auth.Secrets[i] = redacted
	}
	c.Listeners = slices.Clone(c.Listeners)
	for i := range c.Listeners {
		c.Listeners[i].CertificatePEM, c.Listeners[i].KeyPEM = nil, nil
	}
	return c
}

const redacted = "(secret)"
