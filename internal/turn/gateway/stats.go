package gateway

import (
	"net/netip"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/turn/allocation"
)

// Stats is the state of a gateway at one moment.
type Stats struct {
	Workers   int             `json:"workers"`
	Ready     bool            `json:"ready"`
	Draining  bool            `json:"draining"`
	Totals    Counts          `json:"totals"`
	Listeners []ListenerStats `json:"listeners"`
	Clusters  []ClusterStats  `json:"clusters"`
	// Reasons counts how messages and packets ended, by the name of allocation.Reason; also per listener.
	Reasons map[string]uint64 `json:"reasons"`
	Offload string            `json:"offload"` // the offload's own description, empty without an offload
	// Withheld counts answers that the limits of requests without valid credentials suppressed.
	Withheld allocation.WithheldStats `json:"answers_withheld"`
	// Displaced counts unproven sources that were evicted because the table of those limits was full.
	Displaced uint64 `json:"rate_limit_displaced"`
}

// Counts are the counters of Stats in total, of a listener or of a cluster.
type Counts struct {
	Allocations int `json:"allocations"`
	Permissions int `json:"permissions"`
	Channels    int `json:"channels"`
	// Suspended is how many further permissions and channels there are whose routes are currently missing.
	Suspended int `json:"suspended"`
	// Up is from clients to peers, Down from peers to clients: user data without headers.
	Up   Traffic `json:"up"`
	Down Traffic `json:"down"`
	// Opened counts allocations since the start.
	Opened uint64 `json:"opened"`
}

// Traffic is packets and bytes of user data.
type Traffic = v1.Count

// ListenerStats is one listener.
type ListenerStats struct {
	Name        string            `json:"name"`
	Protocol    string            `json:"protocol"`
	Address     netip.AddrPort    `json:"address"`
	Connections int               `json:"connections"` // of clients over TCP, TLS and DTLS
	ReadBuffer  int               `json:"read_buffer"` // bytes that the kernel granted to each UDP socket
	Overflowed  uint64            `json:"overflowed"`  // datagrams that found the kernel's buffer full
	Reasons     map[string]uint64 `json:"reasons"`
	Counts
}

// ClusterStats is one cluster.
type ClusterStats struct {
	Name string `json:"name"`
	Counts
}
