package v1

import "net/netip"

// NATStatus is the answer of GET /status of `weir nat`.
type NATStatus struct {
	BalancerStatus
	NAT NATStats `json:"nat"` // the data path
}

// NATStats is the state of the data path udp. `weir nat --json` prints it at the end.
type NATStats struct {
	Generation uint64            `json:"generation"`        // number of the snapshot in force
	Entries    int               `json:"entries"`           // flows in the table
	Proven     int               `json:"proven"`            // of entries: a backend answered
	MaxEntries int               `json:"max_entries"`       // bound on entries
	Reverse    bool              `json:"reverse"`           // a reply from another backend moves its flow there
	Counters   NATCounters       `json:"counters"`          // datagrams and entries
	Reasons    map[string]uint64 `json:"reasons"`           // datagrams from clients, by the reason of their decision
	Backends   []NATBackend      `json:"backends"`          // ordered by service and name
	Faults     NATFaults         `json:"faults"`            // disturbances in force
	Listeners  []netip.AddrPort  `json:"listeners"`         // where clients send to
	Offload    *NATOffload       `json:"offload,omitempty"` // what the kernel forwards; absent: user space forwards everything
}

// NATOffload is what the kernel forwards in front of user space.
type NATOffload struct {
	Interfaces []EBPFInterface   `json:"interfaces"` // with the program, or with the reason why it is not there
	Flows      int               `json:"flows"`      // entries that the kernel forwards
	MaxFlows   int               `json:"max_flows"`  // bound on flows
	Refused    map[string]uint64 `json:"refused"`    // attempts to hand an entry to the kernel that failed, by reason
	Packets    map[string]uint64 `json:"packets"`    // packets that the program saw, by what became of them
}

// NATCounters are running totals. A datagram is counted once each way.
type NATCounters struct {
	Received          uint64 `json:"received"`           // datagrams from clients
	Forwarded         uint64 `json:"forwarded"`          // datagrams to backends
	ForwardedBytes    uint64 `json:"forwarded_bytes"`    // UDP payload of those
	Backwarded        uint64 `json:"backwarded"`         // datagrams to clients
	BackwardedBytes   uint64 `json:"backwarded_bytes"`   // UDP payload of those
	Filtered          uint64 `json:"filtered"`           // datagrams from clients that are no DTLS record, dropped
	LostForward       uint64 `json:"lost_forward"`       // datagrams to backends that the loss fault dropped
	LostBackward      uint64 `json:"lost_backward"`      // datagrams to clients that the loss fault dropped
	TooLong           uint64 `json:"too_long"`           // datagrams to backends that the size fault dropped
	Truncated         uint64 `json:"truncated"`          // datagrams to backends that the truncation fault cut
	Reordered         uint64 `json:"reordered"`          // datagrams to backends that the reordering fault delayed
	WrongRouted       uint64 `json:"wrong_routed"`       // replies that came from elsewhere than the flow's backend
	Moved             uint64 `json:"moved"`              // of these, those that moved their entry
	Undecided         uint64 `json:"undecided"`          // datagrams that steering dropped; the reasons say why
	EntriesFull       uint64 `json:"entries_full"`       // new flows dropped because the table was full of proven ones
	Exhausted         uint64 `json:"exhausted"`          // new flows dropped for want of a descriptor or port
	Evicted           uint64 `json:"evicted"`            // entries that no backend had answered, closed for new ones
	Displaced         uint64 `json:"displaced"`          // answered entries closed for datagrams whose connection id names a live owner
	Expired           uint64 `json:"expired"`            // entries that timed out
	Opened            uint64 `json:"opened"`             // entries made
	Cleared           uint64 `json:"cleared"`            // entries dropped by the operator or with their VIP
	SendErrors        uint64 `json:"send_errors"`        // datagrams to backends that the kernel refused
	ReplyErrors       uint64 `json:"reply_errors"`       // datagrams to clients that the kernel refused
	Refused           uint64 `json:"refused"`            // ICMP errors: no program listens at the backend
	ReceiveErrors     uint64 `json:"receive_errors"`     // reads that failed
	HeldFull          uint64 `json:"held_full"`          // datagrams not reordered for want of room
	BackendTimeouts   uint64 `json:"backend_timeouts"`   // backends that turned stale
	OffloadForwarded  uint64 `json:"offload_forwarded"`  // of forwarded, those that the kernel forwarded
	OffloadBackwarded uint64 `json:"offload_backwarded"` // of backwarded, those that the kernel forwarded
	ReceiveOverflows  uint64 `json:"receive_overflows"`  // datagrams that the kernel dropped before Weir read them
}

// NATBackend is one address of a backend as the data path sees it.
type NATBackend struct {
	Service  string         `json:"service"`  // name
	Name     string         `json:"name"`     // of the backend
	Addr     netip.AddrPort `json:"address"`  // that datagrams are sent to
	State    string         `json:"state"`    // active, stale (gets nothing), probing (the next new flow tries it) or pending (a new flow is trying it)
	Override string         `json:"override"` // up, draining or down in the configuration
	Entries  int64          `json:"entries"`  // flows
	Silent   float64        `json:"silent_s"` // seconds since the first datagram without an answer; 0: none
	// LastReply is how long ago the last reply came, in seconds. Absent: never.
	LastReply *float64 `json:"last_reply_s,omitempty"`
}

// NATFaults are the disturbances that the operator has switched on. Percentages are 0 to 100.
type NATFaults struct {
	Seed            uint64  `json:"seed"`              // of the random generators
	LossForward     float64 `json:"loss_forward"`      // percent of the datagrams to backends that are dropped
	LossBackward    float64 `json:"loss_backward"`     // percent of the datagrams to clients that are dropped
	SizeLimit       int     `json:"size_limit"`        // bytes of payload; 0: no limit
	SizePercent     float64 `json:"size_percent"`      // percent of the longer datagrams to backends that are dropped
	TruncateLimit   int     `json:"truncate_limit"`    // bytes of payload; 0: no limit
	TruncatePercent float64 `json:"truncate_percent"`  // percent of the longer datagrams to backends that are cut
	ReorderPercent  float64 `json:"reorder_percent"`   // percent of the datagrams to backends that are delayed
	ReorderDelay    float64 `json:"reorder_delay_ms"`  // by so many milliseconds
	ReorderJitter   float64 `json:"reorder_jitter_ms"` // and up to so many more
}
