package load

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weir-lb/weir/internal/dtls/record"
	"github.com/weir-lb/weir/internal/turn/requests"
)

const (
	// HeaderSize is the minimum size of a datagram's user data in bytes.
	HeaderSize = 32
	// MaxClients is the maximum number of clients of one Load. The header limits it, not the channel numbers of RFC
	// 8656.
	MaxClients = 1 << 14
)

// Config describes the clients and the far end.
type Config struct {
	// Server is the TURN server. If it is invalid, the clients send plain UDP.
	Server netip.AddrPort
	// Stream makes the clients use TCP to the server instead of UDP.
	Stream bool
	// DTLS makes the clients use DTLS to the server instead of UDP. Every certificate is trusted.
	DTLS           bool
	User, Password string // long-term credential
	// To is the destination of plain UDP: client i sends to To[i%len(To)]. Empty: to the far end itself.
	To []netip.AddrPort
	// Clients is the number of clients, each with a socket of its own. Default 1.
	Clients int
	// Source is the address of the clients; invalid: the kernel's choice.
	Source netip.Addr
	// Sink is the address at which this process receives what the clients sent. Invalid: 127.0.0.1 and a port that
	// the kernel chooses.
	Sink netip.AddrPort
	// Peer, if valid, is an echo server elsewhere. There is then no sink, and the only direction is Echo.
	Peer netip.AddrPort
	// SinkIn, if set, calls the function that opens the sink's socket in another environment, such as another network
	// namespace.
	SinkIn func(open func() error) error
	// Size is the most user data of a datagram in bytes, HeaderSize to 65,000. Default 1200.
	Size int
	// Burst is how many datagrams a client sends consecutively, 1 to 64. Default 8.
	Burst int
	// NoSegment sends every datagram individually (no UDP_SEGMENT), NoCoalesce receives every datagram individually
	// (no UDP_GRO).
	NoSegment, NoCoalesce bool
	// Lifetime is the requested lifetime of each allocation, which is refreshed in time. Default 10 minutes.
	Lifetime time.Duration
	// Timeout is how long a TURN transaction may take, retransmissions included. Default 5 s.
	Timeout time.Duration
}

// Direction is the direction of the datagrams of a phase.
type Direction uint8

// The directions.
const (
	Up   Direction = iota // clients to sink
	Down                  // sink to clients
	Both                  // each way at Phase.Rate
	Echo                  // up, and back from the far end: the latency of Report.Down is that of the round trip
)

// ParseDirection reads a direction's name.
func ParseDirection(name string) (Direction, error) {
	if i := slices.Index(directionNames(), name); i >= 0 {
		return Direction(i), nil
	}
	return 0, fmt.Errorf("direction %q: write %s", name, strings.Join(directionNames(), ", "))
}

func directionNames() []string { return []string{"up", "down", "both", "echo"} }

// String is the direction's name.
func (d Direction) String() string {
	if names := directionNames(); int(d) < len(names) {
		return names[d]
	}
	return "unknown"
}

// MarshalText is String.
func (d Direction) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText is ParseDirection.
func (d *Direction) UnmarshalText(text []byte) (err error) {
	*d, err = ParseDirection(string(text))
	return err
}

// Phase is one period of load.
type Phase struct {
	// Rate is datagrams per second of all clients together, in each direction; 0: as fast as one thread can.
	Rate float64 `json:"rate"`
	// Duration of sending; 0: until ctx ends, which is then no error.
	Duration  time.Duration `json:"duration_ns"`
	Direction Direction     `json:"direction"`
	// Count ends the phase after that many datagrams in a direction, rounded up to whole bursts; 0: no limit.
	Count uint64 `json:"count,omitempty"`
	// Size is the user data of a datagram in bytes, at most Config.Size; 0: that.
	Size int `json:"size"`
	// Silence is how long nothing must arrive until the missing datagrams count as lost, at most a minute; 0: 300 ms.
	// It takes time only if something is lost. On a busy machine a process may not be scheduled for longer than the
	// default, and the datagrams in its queues are not lost.
	Silence time.Duration `json:"silence_ns,omitempty"`
}

const (
	maxSize            = 65000
	maxBurst           = 64
	maxRefreshInterval = 200 * time.Second // a permission lasts 300 s (RFC 8656 section 9)
	sinkRoom           = 32 << 20
	clientRoom         = 4 << 20
)

// withDefaults checks the configuration and sets the defaults.
func (c Config) withDefaults() (Config, error) {
	if c.Clients == 0 {
		c.Clients = 1
	}
	if c.Size == 0 {
		c.Size = 1200
	}
	if c.Burst == 0 {
		c.Burst = 8
	}
	if c.Lifetime == 0 {
		c.Lifetime = 10 * time.Minute
	}
	if c.Timeout == 0 {
		c.Timeout = 5 * time.Second
	}
	if !c.Sink.IsValid() {
		c.Sink = netip.MustParseAddrPort("127.0.0.1:0")
	}
	switch {
	case c.Clients < 1 || c.Clients > MaxClients:
		return c, fmt.Errorf("%d clients: want 1 to %d", c.Clients, MaxClients)
	case c.Size < HeaderSize || c.Size > maxSize:
		return c, fmt.Errorf("datagrams of %d bytes: want %d to %d", c.Size, HeaderSize, maxSize)
	case c.Burst < 1 || c.Burst > maxBurst:
		return c, fmt.Errorf("bursts of %d datagrams: want 1 to %d", c.Burst, maxBurst)
	case c.Lifetime < time.Second || c.Timeout < 0:
		return c, fmt.Errorf("lifetime of %v, timeout of %v: want at least 1s and 0", c.Lifetime, c.Timeout)
	case c.Stream && !c.Server.IsValid():
		return c, errors.New("clients over TCP need a TURN server")
	case c.DTLS && (c.Stream || !c.Server.IsValid()):
		return c, errors.New("clients over DTLS need a TURN server, and do not use TCP")
	case c.DTLS && c.Size > record.MaxPlaintext-requests.ChannelHeader-3:
		return c, fmt.Errorf("datagrams of %d bytes: over DTLS at most %d", c.Size, record.MaxPlaintext-requests.ChannelHeader-3)
	case c.Server.IsValid() && len(c.To) > 0:
		return c, errors.New("a TURN server and addresses of plain UDP: want one of them")
	}
	return c, nil
}

// destination returns the destination of the datagrams: the echo server elsewhere, else the sink.
func (c *Config) destination() netip.AddrPort {
	if c.Peer.IsValid() {
		return c.Peer
	}
	return c.Sink
}

// target returns the address to which client i sends.
func (c *Config) target(i int) netip.AddrPort {
	switch {
	case c.Server.IsValid():
		return c.Server
	case len(c.To) > 0:
		return c.To[i%len(c.To)]
	}
	return c.destination()
}

// refreshInterval is the time between two refreshes.
func (c *Config) refreshInterval() time.Duration { return min(c.Lifetime/2, maxRefreshInterval) }
