package gateway

import (
	"net/netip"

	"github.com/weir-lb/weir/api/v1"
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
	Up   Traffic `json:"up" metric:",direction=up" help:"relayed from clients to peers (up) and from peers to clients (down)."`
	Down Traffic `json:"down" metric:",direction=down" help:"relayed from clients to peers (up) and from peers to clients (down)."`
	// Opened counts allocations since the start.
	Opened uint64 `json:"opened" metric:"_allocations_opened_total" help:"Allocations since the start."`
}

// Traffic is packets and bytes of user data.
type Traffic = v1.Count

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
	AllocateTime metrics.Histogram `json:"-" metric:"weir_turn_listener_allocate_duration_seconds" buckets:"10µs..1s" help:"Time to open the relay addresses of an allocation, successful or not."`
	Counts       `metric:"weir_turn_listener"`
}

// ClusterStats is one cluster.
type ClusterStats struct {
	Name   string `json:"name" label:"cluster"`
	Counts `metric:"weir_turn_cluster"`
}
