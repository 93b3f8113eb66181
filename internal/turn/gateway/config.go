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
	Name  string     `yaml:"name,omitempty" default:"weir" bounds:"at most 253 bytes"` // of the gateway, in status and logs
	Realm string     `yaml:"realm,omitempty" default:"weir" bounds:"at most 40 bytes"` // realm of the long-term credentials (RFC 8489 §9.2)
	Auth  AuthConfig `yaml:"auth,omitempty"`                                           // who may allocate

	Listeners []ListenerConfig `yaml:"listeners,omitempty" default:"none" bounds:"at most 256"` // what clients connect to
	Clusters  []ClusterConfig  `yaml:"clusters,omitempty" default:"none" bounds:"at most 4096"` // sets of peers

	Quotas    QuotaConfig    `yaml:"quotas,omitempty"`    // what clients may use
	Limits    LimitConfig    `yaml:"limits,omitempty"`    // cost of clients without credentials
	Lifetimes LifetimeConfig `yaml:"lifetimes,omitempty"` // the times of RFC 8656
	Drain     DrainConfig    `yaml:"drain,omitempty"`     // how the gateway ends
	Offload   OffloadConfig  `yaml:"offload,omitempty"`   // whether the kernel relays ChannelData of UDP listeners
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
	// Mode: static: users; ephemeral: names EXPIRY[:USER] signed with a shared secret; none: STUN binding only, no allocation.
	Mode  AuthMode     `yaml:"mode,omitempty" default:"static" values:"static, ephemeral, none"`
	Users []UserConfig `yaml:"users,omitempty" default:"none" bounds:"at most 65536"` // of mode static
	// Secrets: of mode ephemeral; each of them is accepted, so that a new one can be rolled out.
	Secrets []string `yaml:"secrets,omitempty" default:"none" bounds:"at most 8"`
	// SHA256: also offer MESSAGE-INTEGRITY-SHA256 and password algorithms (RFC 8489 §9.2).
	SHA256 bool `yaml:"sha256,omitempty" default:"false"`
}

// UserConfig is one user of mode static.
type UserConfig struct {
	Name     string `yaml:"name" bounds:"1 to 508 bytes"`     // user name
	Password string `yaml:"password" bounds:"1 to 508 bytes"` // password
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
	Name     string       `yaml:"name" bounds:"1 to 253 bytes"`                                  // unique; in logs, metrics and status
	Protocol Protocol     `yaml:"protocol,omitempty" default:"udp" values:"udp, tcp, tls, dtls"` // transport between clients and the listener
	Address  netip.Addr   `yaml:"address,omitempty" default:"0.0.0.0"`                           // address to bind; :: is both families
	Port     uint16       `yaml:"port,omitempty" default:"3478" range:"1 to 65535"`              // port to bind; default of tls and dtls 5349
	Relay    []netip.Addr `yaml:"relay,omitempty" default:"the address that the client reached"` // addresses that relay sockets bind, at most one of each family
	// RelayPublic: addresses at which peers reach those of relay through a 1:1 NAT, at most one of each family. They are
	// reported to clients, and refused as peers.
	RelayPublic []netip.Addr `yaml:"relay_public,omitempty" default:"none"`
	RelayPorts  PortRange    `yaml:"relay_ports,omitempty" default:"49152-65535"` // range of relay ports
	// Public: where clients reach the listener if a NAT or a load balancer is in front of it; for the URIs in log and status,
	// and refused as a peer.
	Public      string   `yaml:"public,omitempty" default:"none" bounds:"HOST:PORT"`
	Certificate string   `yaml:"certificate,omitempty" default:"none"`  // PEM file with the chain; of tls and dtls
	Key         string   `yaml:"key,omitempty" default:"none"`          // PEM file
	SelfSigned  bool     `yaml:"self_signed,omitempty" default:"false"` // make a certificate at the start, instead of certificate and key
	Routes      []string `yaml:"routes,omitempty" default:"none"`       // names of clusters whose peers its clients may reach

	CertificatePEM []byte `yaml:"-"` // instead of the files
	KeyPEM         []byte `yaml:"-"`
}

// PortRange is written MIN-MAX or as one port. The zero value is no range.
type PortRange struct{ Min, Max uint16 }

// ClusterConfig is a set of peers that listeners may be routed to.
type ClusterConfig struct {
	Name     string   `yaml:"name" bounds:"1 to 253 bytes"`                       // what routes name
	Protocol Protocol `yaml:"protocol,omitempty" default:"udp" values:"udp, tcp"` // transport to the peers; tcp is RFC 6062
	// Endpoints: addresses, prefixes and DNS names, each with an optional port or range of ports.
	Endpoints []string      `yaml:"endpoints"`
	Refresh   time.Duration `yaml:"refresh,omitempty" default:"5s" range:"1s to 24h"` // time between two look-ups of its names
}

// QuotaConfig limits what clients may use. Zero values take the defaults.
type QuotaConfig struct {
	Allocations        int      `yaml:"allocations,omitempty" default:"65536" range:"1 to 16777216"`                                      // in all
	AllocationsPerUser int      `yaml:"allocations_per_user,omitempty" default:"no limit" range:"1 to 16777216"`                          // of one user
	Permissions        int      `yaml:"permissions,omitempty" default:"256" range:"1 to 4096"`                                            // of one allocation
	Channels           int      `yaml:"channels,omitempty" default:"256" range:"1 to 4096"`                                               // of one allocation
	Connections        int      `yaml:"connections,omitempty" default:"64" range:"1 to 4096"`                                             // to peers, of one TCP allocation (RFC 6062)
	Bandwidth          ByteRate `yaml:"bandwidth,omitempty" default:"no limit" bounds:"such as 500kB/s, 2MB/s or 16Mbit/s"`               // user data of one allocation, both directions together
	Burst              ByteSize `yaml:"burst,omitempty" default:"a quarter second of bandwidth, at least 64KiB" bounds:"from 2048 bytes"` // bytes that may pass at once
}

// ByteRate is bytes per second, written with its unit: 500kB/s, 2MB/s, 16Mbit/s.
type ByteRate uint64

// ByteSize is bytes, written with its unit: 64kB, 1MB.
type ByteSize uint64

// LimitConfig limits the cost of clients without credentials.
type LimitConfig struct {
	// Unauthenticated: requests per second that are answered, of a source (IPv4 address, IPv6 /64) that has not proven its
	// address by returning a nonce; Binding requests do not count.
	Unauthenticated int `yaml:"unauthenticated,omitempty" default:"100" range:"1 to 1073741824"`
	// UnauthenticatedTotal: the same for all such sources together; a second, equal limit applies to their Binding requests.
	UnauthenticatedTotal int `yaml:"unauthenticated_total,omitempty" default:"50000" range:"1 to 1073741824"`
	// Bindings: Binding requests per second that are answered, of a source that has not proven its address.
	Bindings int `yaml:"bindings,omitempty" default:"2000" range:"1 to 1073741824"`
	// Proven: requests of both kinds without valid credentials that are answered per second, of a source that returned a nonce
	// within the last ten minutes or connects over TCP, TLS or DTLS.
	Proven      int `yaml:"proven,omitempty" default:"20000" range:"1 to 1073741824"`
	Connections int `yaml:"connections,omitempty" default:"65536" range:"1 to 16777216"` // connections over TCP, TLS and DTLS at a time
	Handshakes  int `yaml:"handshakes,omitempty" default:"1024" range:"1 to 1048576"`    // TLS and DTLS handshakes at a time
}

// LifetimeConfig are the times of RFC 8656.
type LifetimeConfig struct {
	Default time.Duration `yaml:"default,omitempty" default:"10m" range:"1m to 24h"` // of an allocation whose client requests none; not longer than max
	Max     time.Duration `yaml:"max,omitempty" default:"1h" range:"1m to 24h"`      // of an allocation
	Nonce   time.Duration `yaml:"nonce,omitempty" default:"1h" range:"1m to 24h"`    // of a nonce; then the answer is 438 with a new one
}

// DrainConfig is how the gateway shuts down.
type DrainConfig struct {
	// Alternate: server to which new clients are redirected while the gateway drains (300, RFC 8489 §10); without it they are
	// refused with 508.
	Alternate netip.AddrPort `yaml:"alternate,omitempty" default:"none" bounds:"ADDRESS:PORT"`
	Timeout   time.Duration  `yaml:"timeout,omitempty" default:"1h" range:"1s to 168h"` // longest wait for allocations to end
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
	Mode       OffloadMode `yaml:"mode,omitempty" default:"none" values:"none, auto, xdp, tcx"`            // what relays ChannelData; auto is the fastest that the host supports
	Interfaces []string    `yaml:"interfaces,omitempty" default:"all that carry traffic of the listeners"` // names of interfaces
}
