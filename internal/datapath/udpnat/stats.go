package udpnat

import (
	"net/netip"
	"time"

	"github.com/weir-lb/weir/internal/datapath/kernelnat"
	"github.com/weir-lb/weir/internal/metrics"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/steer"
)

// Counters are running totals. Datagrams are counted once each way.
type Counters struct {
	Received          uint64 `json:"received" metric:"weir_udp_received_total" help:"Datagrams from clients."`
	Forwarded         uint64 `json:"forwarded" metric:"weir_udp_forwarded_total" help:"Datagrams to backends."`
	ForwardedBytes    uint64 `json:"forwarded_bytes" metric:"weir_udp_forwarded_bytes_total" help:"Bytes to backends, without headers."`
	Backwarded        uint64 `json:"backwarded" metric:"weir_udp_backwarded_total" help:"Datagrams to clients."`
	BackwardedBytes   uint64 `json:"backwarded_bytes" metric:"weir_udp_backwarded_bytes_total" help:"Bytes to clients, without headers."`
	Filtered          uint64 `json:"filtered" metric:"weir_udp_filtered_total" help:"Datagrams from clients that are no DTLS record, dropped by the DTLS filter."`
	LostForward       uint64 `json:"lost_forward" metric:"weir_udp_lost_forward_total" help:"Datagrams to backends that the loss fault dropped."`
	LostBackward      uint64 `json:"lost_backward" metric:"weir_udp_lost_backward_total" help:"Datagrams to clients that the loss fault dropped."`
	TooLong           uint64 `json:"too_long" metric:"weir_udp_too_long_total" help:"Datagrams that the size fault dropped."`
	Truncated         uint64 `json:"truncated" metric:"weir_udp_truncated_total" help:"Datagrams that the size fault cut."`
	Reordered         uint64 `json:"reordered" metric:"weir_udp_reordered_total" help:"Datagrams that the order fault delayed."`
	WrongRouted       uint64 `json:"wrong_routed" metric:"weir_udp_wrong_routed_total" help:"Replies that came from elsewhere than the flow's backend."`
	Moved             uint64 `json:"moved" metric:"weir_udp_moved_total" help:"Flows that a reply from another backend moved to that backend."`
	Undecided         uint64 `json:"undecided" metric:"weir_udp_undecided_total" help:"Datagrams from clients that steering dropped; weir_packets_total has the reasons."`
	EntriesFull       uint64 `json:"entries_full"` // new flows dropped at MaxEntries, all of them proven
	Exhausted         uint64 `json:"exhausted" metric:"weir_udp_exhausted_total" help:"New flows dropped because no file descriptor or port was left."`
	Evicted           uint64 `json:"evicted"`   // entries no backend had answered, closed for new ones
	Displaced         uint64 `json:"displaced"` // answered entries closed for datagrams whose CID names a live owner
	Expired           uint64 `json:"expired"`   // entries that timed out
	Opened            uint64 `json:"opened" metric:"weir_udp_opened_total" help:"Entries made."`
	Cleared           uint64 `json:"cleared" metric:"weir_udp_cleared_total" help:"Entries dropped by the operator or with their VIP."`
	SendErrors        uint64 `json:"send_errors" metric:"weir_udp_send_errors_total" help:"Datagrams to backends that the kernel refused."`
	ReplyErrors       uint64 `json:"reply_errors" metric:"weir_udp_reply_errors_total" help:"Datagrams to clients that the kernel refused."`
	Refused           uint64 `json:"refused" metric:"weir_udp_refused_total" help:"ICMP errors: no program listens at the backend."`
	ReceiveErrors     uint64 `json:"receive_errors" metric:"weir_udp_receive_errors_total" help:"Reads that failed."`
	HeldFull          uint64 `json:"held_full" metric:"weir_udp_held_full_total" help:"Datagrams that the order fault had no room to delay."`
	BackendTimeouts   uint64 `json:"backend_timeouts" metric:"weir_udp_backend_timeouts_total" help:"Backends that became stale: no answer for the destination timeout."`
	OffloadForwarded  uint64 `json:"offload_forwarded" metric:"weir_udp_offload_forwarded_total" help:"Of the datagrams to backends, those that the kernel forwarded."`
	OffloadBackwarded uint64 `json:"offload_backwarded" metric:"weir_udp_offload_backwarded_total" help:"Of the datagrams to clients, those that the kernel forwarded."`
	ReceiveOverflows  uint64 `json:"receive_overflows" metric:"weir_udp_receive_overflows_total" help:"Datagrams that the kernel dropped because a receive buffer was full."`
}

// Backend is one address of a backend as the data path sees it.
type Backend struct {
	Target    lb.Target
	Service   string
	Name      string
	Addr      netip.AddrPort
	State     BackendState
	Override  lb.State // up, draining or down in the snapshot
	Entries   int64
	Silent    time.Duration // since the first unanswered datagram, 0: none
	LastReply time.Duration // ago; below 0: never
}

// Stats is the state of a Datapath at one moment.
type Stats struct {
	Generation uint64
	Entries    int
	Proven     int // of entries: a backend answered
	MaxEntries int
	Reverse    bool
	Counters   Counters `metric:""`
	Reasons    map[string]uint64
	Backends   []Backend
	Faults     Faults
	Listeners  []netip.AddrPort
	Offload    *kernelnat.Report // nil: user space forwards everything

	// Services and Targets are counted by steering, for Stats.Common.
	Services map[string]lb.ReasonCounts
	Targets  map[lb.Target]steer.BackendCounters
	total    lb.ReasonCounts
	pause    metrics.Histogram // of the workers, while entries are listed
}

// Entry is one NAT entry.
type Entry struct {
	Client   netip.AddrPort
	VIP      netip.AddrPort
	Outgoing netip.AddrPort // what the backend sees
	Backend  lb.Target
	Addr     netip.AddrPort
	Idle     time.Duration
	InKernel bool // the kernel forwards its datagrams
}

// Samples are the metrics of the data path.
func (d *Datapath) Samples() []metrics.Sample {
	stats := d.Stats()
	if stats.Offload == nil {
		return metrics.Of(stats.Common(), &stats)
	}
	return metrics.Of(stats.Common(), &stats, stats.Offload)
}
