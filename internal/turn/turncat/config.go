package turncat

import (
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Defaults of Config.
const (
	DefaultMaxClients  = 1000
	DefaultMTU         = 1500
	DefaultIdleTimeout = 2 * time.Minute
	DefaultCheckEvery  = 10 * time.Second
	DefaultLinger      = time.Second
	DefaultLifetime    = 10 * time.Minute
	DefaultBuffer      = 1 << 20
)

// Config says what to tunnel. Zero values of fields with a default mean the default.
type Config struct {
	Listen Endpoint // the address that clients connect to
	Server Server   // its credentials are ignored
	Peer   Endpoint // the destination of their data, KindUDP or KindTCP
	// Credentials returns the long-term credential; it is required.
	Credentials Source
	// ServerName is the name that the server's certificate must have, default Server.Host. Insecure accepts any
	// certificate. Roots replaces the system's certificate authorities.
	ServerName string
	Insecure   bool
	Roots      *x509.CertPool
	// MaxClients limits the number of concurrent clients. The datagrams of further ones are dropped, their
	// connections closed; both are counted.
	MaxClients int
	// IdleTimeout ends the session of a client that neither sent nor received for that time.
	IdleTimeout time.Duration
	// CheckEvery is how often a session in use queries the server, by a Refresh, whether the allocation still exists.
	// Negative: never.
	CheckEvery time.Duration
	// Linger is how long to wait for answers after the end of a stream's input.
	Linger time.Duration
	// Lifetime is the lifetime that Allocate and Refresh request; the server's answer counts.
	Lifetime time.Duration
	// MTU is the maximum size in bytes of a datagram cut from a byte stream.
	MTU int
	// Workers is how many goroutines, each with a reuse-port socket, share the clients of a UDP listener. One handles
	// some 200,000 packets per second; more workers mean smaller batches.
	Workers int
	// Gather is how long a busy worker lets datagrams accumulate before it reads them. Batches become fewer and
	// larger; latency increases by that time.
	Gather time.Duration
	// Buffer is the size in bytes of the kernel's buffers of each UDP socket.
	Buffer int
	// NoCheck starts without testing the server first.
	NoCheck bool
	Log     *slog.Logger
}

// Validate sets the defaults and returns the first invalid value.
func (c *Config) Validate() error {
	setDefault(&c.MaxClients, DefaultMaxClients)
	setDefault(&c.MTU, DefaultMTU)
	setDefault(&c.IdleTimeout, DefaultIdleTimeout)
	setDefault(&c.CheckEvery, DefaultCheckEvery)
	setDefault(&c.Linger, DefaultLinger)
	setDefault(&c.Lifetime, DefaultLifetime)
	setDefault(&c.Buffer, DefaultBuffer)
	setDefault(&c.Workers, 1)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	switch {
	case c.Credentials == nil:
		return errors.New("no credentials: give them in the URI (turn://USER:PASSWORD@...), by --user and --password, --credentials or --secret")
	case c.Listen.Kind == KindUDP && c.Peer.Kind == KindTCP:
		return errors.New("a TCP peer needs a stream in front: LISTEN tcp://, unix:// or -")
	case c.Peer.Kind == KindTCP && !c.Server.Transport.reliable():
		return errors.New("a TCP peer (RFC 6062) is reached through the server's TCP or TLS port: ?transport=tcp or tls")
	case c.MaxClients < 1 || c.MaxClients > 1_000_000:
		return fmt.Errorf("%d clients: write 1 to 1000000", c.MaxClients)
	case c.MTU < 1 || c.MTU > maxData:
		return fmt.Errorf("MTU of %d bytes: write 1 to %d", c.MTU, maxData)
	case c.Workers < 1 || c.Workers > 64:
		return fmt.Errorf("%d workers: write 1 to 64", c.Workers)
	case c.IdleTimeout < time.Second || c.Linger < 0:
		return errors.New("an idle time-out is at least 1s, a linger not negative")
	case c.Lifetime < time.Minute || c.Lifetime > time.Hour:
		return fmt.Errorf("lifetime %v: write 1m to 1h", c.Lifetime)
	case c.Gather < 0 || c.Gather > time.Millisecond:
		return fmt.Errorf("gathering for %v: write at most 1ms", c.Gather)
	case c.Buffer < 4096 || c.Buffer > 1<<30:
		return fmt.Errorf("socket buffer of %d bytes: write 4096 to %d", c.Buffer, 1<<30)
	}
	return nil
}

func setDefault[T int | time.Duration](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}
