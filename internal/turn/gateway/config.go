package gateway

import (
	"net/netip"
	"time"
)

// Defaults and bounds of Config.
const (
	DefaultName        = "weir"
	DefaultRealm       = "weir"
	DefaultPort        = 3478 // RFC 8656 §5: stun, turn
	DefaultSecurePort  = 5349 // stuns, turns
	DefaultAllocations = 65536
	DefaultPerClient   = 256 // permissions, and channels, of one allocation
	DefaultTCP         = 64  // connections of one allocation over TCP

	DefaultUnauthenticated      = 100
	DefaultUnauthenticatedTotal = 50000
	DefaultBindings             = 2000
	DefaultProven               = 20000
	DefaultConnections          = 65536
	DefaultHandshakes           = 1024

	DefaultLifetime    = 10 * time.Minute // RFC 8656 §3.2
	DefaultMaxLifetime = time.Hour
	DefaultNonce       = time.Hour
	DefaultDrain       = time.Hour

	maxListeners = 256
	maxClusters  = 4096
	maxUsers     = 65536
	maxSecrets   = 8
	maxName      = 253 // bytes of the name of a gateway, listener or cluster
	maxUsername  = 508 // bytes, RFC 8489 §14.3
)

// Config is one gateway as its YAML file describes it. Zero values take the stated defaults. Call Validate before
// use.
type Config struct {
	// Name of the gateway in status and logs; default "weir".
	Name  string     `yaml:"name,omitempty"`
	Realm string     `yaml:"realm,omitempty"` // RFC 8489 §9.2; default "weir"
	Auth  AuthConfig `yaml:"auth,omitempty"`

	Listeners []ListenerConfig `yaml:"listeners,omitempty"`
	Clusters  []ClusterConfig  `yaml:"clusters,omitempty"`

	Quotas    QuotaConfig    `yaml:"quotas,omitempty"`
	Limits    LimitConfig    `yaml:"limits,omitempty"`
	Lifetimes LifetimeConfig `yaml:"lifetimes,omitempty"`
	Drain     DrainConfig    `yaml:"drain,omitempty"`
	Offload   OffloadConfig  `yaml:"offload,omitempty"`
}

// AuthMode is how clients authenticate.
type AuthMode string

// The authentication modes. The zero value is AuthStatic.
const (
	AuthStatic    AuthMode = "static"    // users with passwords (long-term credentials, RFC 8489 §9.2)
	AuthEphemeral AuthMode = "ephemeral" // EXPIRY[:USER] names signed with a shared secret
	AuthNone      AuthMode = "none"      // STUN binding only, no allocation
)

// AuthConfig says who may allocate.
type AuthConfig struct {
	Mode    AuthMode     `yaml:"mode,omitempty"`
	Users   []UserConfig `yaml:"users,omitempty"`   // mode static
	Secrets []string     `yaml:"secrets,omitempty"` // mode ephemeral; each of them is accepted, so that a new one can be rolled out
	// SHA256 offers MESSAGE-INTEGRITY-SHA256 and password algorithms (RFC 8489 §9.2) in addition to SHA-1.
	SHA256 bool `yaml:"sha256,omitempty"`
}

// UserConfig is one user of mode static.
type UserConfig struct {
	Name     string `yaml:"name"`
	Password string `yaml:"password"`
}

// Protocol is the transport between clients and a listener.
type Protocol string

// The protocols of a listener. The zero value is UDP.
const (
	UDP  Protocol = "udp"
	TCP  Protocol = "tcp"
	TLS  Protocol = "tls"
	DTLS Protocol = "dtls"
)

// ListenerConfig is one address that clients connect to.
type ListenerConfig struct {
	Name     string       `yaml:"name"`
	Protocol Protocol     `yaml:"protocol,omitempty"`
	Address  netip.Addr   `yaml:"address,omitempty"` // the address to bind; default 0.0.0.0
	Port     uint16       `yaml:"port,omitempty"`    // default 3478, of tls and dtls 5349
	Relay    []netip.Addr `yaml:"relay,omitempty"`   // relay addresses, one per family; default Address or, for a wildcard, the address that the client sent to
	// RelayPublic are the addresses at which peers reach Relay through a 1:1 NAT, at most one of each family. The
	// gateway reports them to clients, binds sockets to Relay, and refuses them as peers.
	RelayPublic []netip.Addr `yaml:"relay_public,omitempty"`
	// RelayPorts bounds the ports of relay addresses; default 49152-65535.
	RelayPorts PortRange `yaml:"relay_ports,omitempty"`
	// Public is the HOST:PORT at which clients reach the listener if a NAT or a load balancer is in front of it. It
	// is printed in URIs. If it is an address, it is refused as a peer.
	Public      string   `yaml:"public,omitempty"`
	Certificate string   `yaml:"certificate,omitempty"` // PEM file with the chain; tls and dtls
	Key         string   `yaml:"key,omitempty"`         // PEM file
	SelfSigned  bool     `yaml:"self_signed,omitempty"` // instead of certificate and key: make a certificate at start
	Routes      []string `yaml:"routes,omitempty"`      // clusters whose peers clients may reach; empty: no peer

	CertificatePEM []byte `yaml:"-"` // instead of the files
	KeyPEM         []byte `yaml:"-"`
}

// PortRange is written MIN-MAX or as one port. The zero value is no range.
type PortRange struct{ Min, Max uint16 }

// ClusterConfig is a set of peers that listeners may be routed to.
type ClusterConfig struct {
	Name     string   `yaml:"name"`
	Protocol Protocol `yaml:"protocol,omitempty"` // transport to the peers: udp (default), tcp (RFC 6062)
	// Endpoints are addresses, prefixes and DNS names, each with an optional port or port range.
	Endpoints []string      `yaml:"endpoints"`
	Refresh   time.Duration `yaml:"refresh,omitempty"` // time between two look-ups of its names; default 5s
}

// QuotaConfig limits what clients may use. Zero values take the defaults.
type QuotaConfig struct {
	Allocations        int      `yaml:"allocations,omitempty"`          // total; default 65536
	AllocationsPerUser int      `yaml:"allocations_per_user,omitempty"` // default: as many as Allocations
	Permissions        int      `yaml:"permissions,omitempty"`          // per allocation; default 256
	Channels           int      `yaml:"channels,omitempty"`             // per allocation; default 256
	Connections        int      `yaml:"connections,omitempty"`          // to peers per TCP allocation (RFC 6062); default 64
	Bandwidth          ByteRate `yaml:"bandwidth,omitempty"`            // of user data per allocation, both directions together; default: no limit
	Burst              ByteSize `yaml:"burst,omitempty"`                // bytes that may pass at once; default a quarter second of Bandwidth, at least 64KiB
}

// ByteRate is bytes per second, written with its unit: 500kB/s, 2MB/s, 16Mbit/s.
type ByteRate uint64

// ByteSize is bytes, written with its unit: 64kB, 1MB.
type ByteSize uint64

// LimitConfig limits the cost of clients without credentials.
type LimitConfig struct {
	// Unauthenticated requests per second that are answered, per source (/32 of IPv4, /64 of IPv6) that has not proven its
	// address by returning a nonce; default 100. Binding requests do not count.
	Unauthenticated int `yaml:"unauthenticated,omitempty"`
	// UnauthenticatedTotal is the same limit for all such sources together. A second, equal limit applies to their
	// Binding requests. Default 50000.
	UnauthenticatedTotal int `yaml:"unauthenticated_total,omitempty"`
	// Bindings are Binding requests per second that are answered, per source that has not proven its address; default 2000.
	Bindings int `yaml:"bindings,omitempty"`
	// Proven is how many requests of both kinds without valid credentials are answered per second, per source that
	// returned a nonce within the last ten minutes or speaks over TCP, TLS or DTLS; default 20000.
	Proven int `yaml:"proven,omitempty"`
	// Connections is how many connections stream listeners and DTLS hold at once; default 65536.
	Connections int `yaml:"connections,omitempty"`
	// Handshakes is how many TLS and DTLS handshakes may be in progress at once; default 1024.
	Handshakes int `yaml:"handshakes,omitempty"`
}

// LifetimeConfig are the times of RFC 8656.
type LifetimeConfig struct {
	Default time.Duration `yaml:"default,omitempty"` // of an allocation whose client requests none; default 10m
	Max     time.Duration `yaml:"max,omitempty"`     // of an allocation; default 1h
	Nonce   time.Duration `yaml:"nonce,omitempty"`   // of a nonce: then the answer is 438 with a new one; default 1h
}

// DrainConfig is how the gateway shuts down.
type DrainConfig struct {
	Alternate netip.AddrPort `yaml:"alternate,omitempty"` // new clients are redirected there (300, RFC 8489 §10); default: refused with 508
	Timeout   time.Duration  `yaml:"timeout,omitempty"`   // the longest wait for allocations to end; default 1h
}

// OffloadMode selects what relays ChannelData.
type OffloadMode string

// The offload modes. The zero value is OffloadNone.
const (
	OffloadNone OffloadMode = "none"
	OffloadAuto OffloadMode = "auto" // the fastest mode that the host supports
	OffloadXDP  OffloadMode = "xdp"
	OffloadTCX  OffloadMode = "tcx"
)

// OffloadConfig makes the kernel relay ChannelData of UDP listeners.
type OffloadConfig struct {
	Mode       OffloadMode `yaml:"mode,omitempty"`
	Interfaces []string    `yaml:"interfaces,omitempty"` // default: all interfaces that carry traffic of the listeners
}
