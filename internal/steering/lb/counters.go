package lb

import "github.com/weir-lb/weir/internal/metrics"

// ReasonCounts has a number for each Reason.
type ReasonCounts [NumReasons]uint64

// Key is the name of a reason, for package metrics.
func (ReasonCounts) Key(reason int) string { return Reason(reason).String() }

// Counters are what every data path counts, in one form, so that a metric has one name on all of them. The tags are those of
// package metrics. Nil fields are not counted by the data path.
type Counters struct {
	Datapath string                   `label:"datapath"` // ebpf, nfqueue or udp
	Packets  map[string]ReasonCounts  `metric:"weir_packets_total" key:"service,reason" help:"Packets, by service and by the reason of their treatment; an empty service: none, or one that is gone."`
	Bytes    map[string]ReasonCounts  `metric:"weir_bytes_total" key:"service,reason" help:"Bytes of packets from the IP header on, by service and reason; data path ebpf."`
	Backends map[Target]BackendCounts `metric:"weir_backend"`
	Tables   []TableCounts            `metric:"weir_table"`
	// DumpPause are the times for which a worker did nothing else, because flows were listed.
	DumpPause *metrics.Histogram `metric:"weir_flow_list_pause_seconds" buckets:"10µs..100ms" help:"Time that a worker did not serve packets because flows were listed, by step of the list; data paths nfqueue and udp."`
}

// BackendCounts are running totals of one backend.
type BackendCounts struct {
	To     Traffic  `metric:",direction=to_backend"`
	From   *Traffic `metric:",direction=from_backend"` // where the data path sees replies
	Opened uint64   `metric:"_flows_opened_total" help:"Flows, by the backend that they were given."`
}

// Traffic is packets, and their bytes from the IP header on; of datagrams of the data path udp the bytes of the payload.
type Traffic struct {
	Packets uint64 `metric:"_packets_total" help:"Packets by backend; those from it only where the data path sees replies: ebpf in mode nat."`
	Bytes   uint64 `metric:"_bytes_total" help:"Bytes by backend, from the IP header on; data path udp: of the payload."`
}

// TableCounts is the state of a bounded table.
type TableCounts struct {
	Name      string  `label:"table"`
	Entries   int     `metric:"_entries" help:"Entries in use, by table."`
	Size      *int    `metric:"_size" help:"Maximum number of entries, by table."`
	Proven    *int    `metric:"_proven" help:"Entries that have proven themselves, by table."`
	Refused   *uint64 `metric:"_refused_total" help:"New entries refused, because the table was full of proven ones."`
	Evicted   *uint64 `metric:"_evicted_total" help:"Unproven entries removed for new ones, by table."`
	Displaced *uint64 `metric:"_displaced_total" help:"Proven entries removed for packets whose CID names a live owner, by table."`
	Expired   *uint64 `metric:"_expired_total" help:"Entries that timed out, by table."`
}

// Add adds the counts of another worker or service.
func (c *ReasonCounts) Add(o *ReasonCounts) {
	for i, n := range o {
		c[i] += n
	}
}

// WithoutService returns the counts of the services, and under "" those of the rest of total: packets of no service, or of one
// that is gone. A service may have counted more than total did when it was read.
func WithoutService(total ReasonCounts, services map[string]ReasonCounts) map[string]ReasonCounts {
	all := map[string]ReasonCounts{}
	for name, reasons := range services {
		all[name] = reasons
		for i, n := range reasons {
			total[i] -= min(n, total[i])
		}
	}
	all[""] = total
	return all
}
