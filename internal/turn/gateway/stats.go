package gateway

import (
	"net/netip"

	"github.com/weir-lb/weir/internal/metrics"
	"github.com/weir-lb/weir/internal/turn/allocation"
)

// Stats is the state of a gateway at one moment.
type Stats struct {
	Workers   int             `json:"workers" metric:"weir_turn_workers" help:"Goroutines that relay."`
	Ready     bool            `json:"ready" metric:"weir_turn_ready" help:"1 while new clients are welcome."`
	Draining  bool            `json:"draining" metric:"weir_turn_draining" help:"1 while the gateway waits for its allocations to end."`
	Totals    Counts          `json:"totals"`
	Listeners []ListenerStats `json:"listeners" metric:""`
	Clusters  []ClusterStats  `json:"clusters" metric:""`
	// Reasons counts how messages and packets ended, by the name of allocation.Reason; also per listener.
	Reasons map[string]uint64 `json:"reasons"`
	Offload string            `json:"offload" metric:"weir_turn_offload_info" label:"mode" help:"How the kernel relays ChannelData, as a label; none or empty: user space does."` // the offload's own description, empty without an offload
	// Withheld counts answers that the limits of requests without valid credentials suppressed.
	Withheld allocation.WithheldStats `json:"answers_withheld" metric:"weir_turn_answers_withheld_total" help:"Requests without valid credentials that a limit left unanswered, by the key of the limit."`
	// Displaced counts unproven sources that were evicted because the table of those limits was full.
	Displaced uint64 `json:"rate_limit_displaced" metric:"weir_turn_rate_limit_displaced_total" help:"Unproven sources that the full table of rate limits evicted."`
}

// Counts are the counters of Stats in total, of a listener or of a cluster.
type Counts struct {
	Allocations int `json:"allocations" metric:"_allocations" help:"Allocations that live."`
	Permissions int `json:"permissions" metric:"_permissions" help:"Permissions in force."`
	Channels    int `json:"channels" metric:"_channels" help:"Channels in force."`
	// Suspended is how many further permissions and channels there are whose routes are currently missing.
	Suspended int `json:"suspended" metric:"_suspended" help:"Permissions and channels whose routes are missing at present."`
	// Up is from clients to peers, Down from peers to clients: user data without headers.
	Up   Traffic `json:"up" metric:",direction=up"`
	Down Traffic `json:"down" metric:",direction=down"`
	// Opened counts allocations since the start.
	Opened uint64 `json:"opened" metric:"_allocations_opened_total" help:"Allocations since the start."`
}

// Traffic is packets and bytes of user data.
type Traffic struct {
	Packets uint64 `json:"packets" metric:"_packets_total" help:"Packets relayed; up: from clients to peers."`
	Bytes   uint64 `json:"bytes" metric:"_bytes_total" help:"Bytes of user data relayed; up: from clients to peers."`
}

// ListenerStats is one listener.
type ListenerStats struct {
	Name        string            `json:"name" label:"listener"`
	Protocol    string            `json:"protocol" label:"protocol"`
	Address     netip.AddrPort    `json:"address"`
	Connections int               `json:"connections" metric:"weir_turn_listener_connections" help:"Connections of clients over TCP, TLS and DTLS."`
	ReadBuffer  int               `json:"read_buffer"` // bytes that the kernel granted to each UDP socket
	Overflowed  uint64            `json:"overflowed" metric:"weir_turn_listener_overflowed_total" help:"Datagrams that found the kernel's buffer full."`
	Reasons     map[string]uint64 `json:"reasons" metric:"weir_turn_listener_reasons_total" key:"reason" help:"Messages and packets by how they ended."`
	// AllocateTime is how long it took to open the relay addresses of an allocation, successful or not.
	AllocateTime metrics.Histogram `json:"-" metric:"weir_turn_listener_allocate_duration_seconds" buckets:"10µs..1s" help:"Allocate requests with valid credentials, by the time it took to open their relay addresses, successful or not."`
	Counts       `metric:"weir_turn_listener"`
}

// ClusterStats is one cluster.
type ClusterStats struct {
	Name   string `json:"name" label:"cluster"`
	Counts `metric:"weir_turn_cluster"`
}

// User is one allocation. Times are Unix nanoseconds, 0: never.
type User struct {
	ID          uint64           `json:"id"`
	User        string           `json:"user"`
	Client      netip.AddrPort   `json:"client"`
	Transport   string           `json:"transport"`
	Listener    string           `json:"listener"`
	Relay       []netip.AddrPort `json:"relay"`
	RelayPublic []netip.AddrPort `json:"relay_public,omitempty"` // as reported to clients if a NAT is in front of Relay
	TCP         bool             `json:"tcp"`
	Created     int64            `json:"created"`
	Expires     int64            `json:"expires"`
	Permissions int              `json:"permissions"`
	Channels    int              `json:"channels"`
	Suspended   int              `json:"suspended,omitempty"` // permissions and channels whose routes are currently missing
	Peers       []netip.AddrPort `json:"peers"`
	Up          Traffic          `json:"up"`
	Down        Traffic          `json:"down"`
	LastUp      int64            `json:"last_up"`
	LastDown    int64            `json:"last_down"`
	Offloaded   int              `json:"offloaded"` // channels in the kernel
}

// Change says what a reload did. Listeners are identified by their names.
type Change struct {
	Restarted    []string       `json:"restarted,omitempty"`    // closed, and opened at another address, port or protocol
	Added        []string       `json:"added,omitempty"`        // opened
	Removed      []string       `json:"removed,omitempty"`      // closed
	Certificates []string       `json:"certificates,omitempty"` // have another certificate from the next handshake on
	Ended        map[string]int `json:"ended,omitempty"`        // allocations that ended, by reason
	Permissions  int            `json:"permissions,omitempty"`  // suspended because the routes no longer allow them
	Channels     int            `json:"channels,omitempty"`     // suspended likewise
	Connections  int            `json:"connections,omitempty"`  // to peers (RFC 6062), suspended likewise
	Resumed      int            `json:"resumed,omitempty"`      // permissions, channels and connections that the routes allow again
	Notes        []string       `json:"notes,omitempty"`        // what takes effect at the next start only
}
