package lb

import (
	"net/netip"
	"time"
)

// AnnounceSpec says who learns that the addresses of services are at this balancer. An address is announced only while it can be served.
type AnnounceSpec struct {
	// MinHealthy: backends that a service needs; those that are down or whose probes fail do not count. 0 announces it also without any.
	MinHealthy *int `yaml:"min_healthy" default:"1" range:"0 to 4096"`
	// Require: an address or aggregate of several services is announced while any of them can be served, or only while all can.
	Require AnnounceRequire `yaml:"require" default:"any" values:"any, all"`
	// Services: names of the services whose addresses are announced.
	Services []string `yaml:"services" default:"all services"`
	// Aggregates: prefixes that are announced in place of the addresses within them.
	Aggregates []AddressPrefix `yaml:"aggregates" default:"none" bounds:"at most 256"`
	BGP        *BGPSpec        `yaml:"bgp" default:"none"` // to routers, by BGP
	// VRRP: to the hosts of a network, by ARP and neighbour advertisements of the one machine that holds the addresses.
	VRRP []VRRPSpec `yaml:"vrrp" default:"none" bounds:"at most 64"`
}

// BGPSpec says how prefixes are announced to routers. Nothing is accepted from them.
type BGPSpec struct {
	AS uint32 `yaml:"as" bounds:"1 to 4294967294"` // number of the autonomous system of this balancer
	// RouterID: unique among the routers.
	RouterID netip.Addr `yaml:"router_id" default:"this machine's address towards the first IPv4 neighbour" bounds:"IPv4 address"`
	// Listen: address and port for connections of neighbours; without it this balancer opens all connections.
	Listen     netip.AddrPort  `yaml:"listen" default:"none"`
	NextHop4   netip.Addr      `yaml:"next_hop4" default:"this end of the session"` // next hop of IPv4 prefixes
	NextHop6   netip.Addr      `yaml:"next_hop6" default:"this end of the session"` // next hop of IPv6 prefixes; over IPv4 sessions it is needed
	Neighbours []NeighbourSpec `yaml:"neighbours" bounds:"1 to 64"`                 // routers
	Prepends   int             `yaml:"prepends" default:"0" range:"0 to 16"`        // how often the own AS is added to the path, to be preferred less; for neighbours of other ASes
	// Communities: 64512:100, the large 64512:1:2, or a name: no-export, no-advertise, no-peer, accept-own, blackhole, graceful-shutdown.
	Communities []Community `yaml:"communities" default:"none" bounds:"at most 32"`
	// LocalPreference: for neighbours of the own AS.
	LocalPreference *uint32 `yaml:"local_preference" default:"100"`
	// GracefulShutdown: before a planned end, prefixes are announced with the community graceful-shutdown (RFC 8326) for this time.
	GracefulShutdown time.Duration `yaml:"graceful_shutdown" default:"0s" range:"0s to 5m"`
	// ReportAfter: a session that is not established for so long is reported.
	ReportAfter time.Duration `yaml:"report_after" default:"30s" range:"1s to 1h"`
}

// NeighbourSpec is one router.
type NeighbourSpec struct {
	Address      netip.Addr    `yaml:"address"`                                   // address of the router
	AS           uint32        `yaml:"as" bounds:"1 to 4294967294"`               // number of its autonomous system
	Port         int           `yaml:"port" default:"179" range:"1 to 65535"`     // TCP port
	LocalAddress netip.Addr    `yaml:"local_address" default:"that of the route"` // this end of the session
	PasswordFile string        `yaml:"password_file" default:"none"`              // file with the password of TCP MD5 (RFC 2385)
	PasswordEnv  string        `yaml:"password_env" default:"none"`               // environment variable with it
	HoldTime     time.Duration `yaml:"hold_time" default:"9s" range:"3s to 1h"`   // silence that ends the session; whole seconds
	// Multihop: neighbour of another AS that is not on the same network: TTL of packets to it.
	Multihop int `yaml:"multihop" default:"0" range:"0 to 255"`
	// TTLSecurity: packets of the neighbour are accepted with TTL 255 alone, and sent so (RFC 5082).
	TTLSecurity bool `yaml:"ttl_security" default:"false"`
	// PrefixLimit: the neighbour may send so many prefixes of a family; with more the session is closed.
	PrefixLimit int      `yaml:"prefix_limit" default:"10000" range:"1 to 4000000"`
	BFD         *BFDSpec `yaml:"bfd" default:"none"` // detects within less than a second that the path to the neighbour is dead
}

// BFDSpec is bidirectional forwarding detection for one neighbour on the same network (RFC 5880, RFC 5881).
type BFDSpec struct {
	Interval   time.Duration `yaml:"interval" default:"100ms" range:"10ms to 10s"` // time between two packets, in both directions
	Multiplier int           `yaml:"multiplier" default:"3" range:"1 to 50"`       // packets in a row that may be missing
}
