package v1

// BenchScenario is one element of the list that `weir bench list --json` prints: something that can be measured.
type BenchScenario struct {
	Name    string `json:"name"`    // BenchResult.Scenario
	Command string `json:"command"` // that measures it
	About   string `json:"about"`   // what it measures
	Needs   string `json:"needs"`   // privileges and programs
}

// NATBench is what `weir bench nat --json` prints: the cost of a datagram that weir nat forwards, compared with others.
type NATBench struct {
	Clients  int           `json:"clients"`       // that send side by side
	Requests int           `json:"requests"`      // of one path in one round
	Rounds   int           `json:"rounds"`        // over all paths
	Payload  int           `json:"payload_bytes"` // of a datagram
	Cores    int           `json:"cores"`         // that the run could use
	Kernel   string        `json:"kernel"`        // release
	Network  string        `json:"network"`       // loopback or veth, of namespaces or of the host
	Paths    []NATBenchRow `json:"roads"`         // the paths to the echo server; the key keeps its first name, as in BenchResult
}

// NATBenchRow is one way to the echo server. Costs are medians over the rounds in microseconds; a request is one datagram each way.
type NATBenchRow struct {
	Name       string  `json:"name"`                       // of the way
	Skipped    string  `json:"skipped,omitempty"`          // why it did not run; absent: it did
	Rate       float64 `json:"requests_per_s"`             // answered
	Lost       int     `json:"lost"`                       // datagrams of clients without an answer, in all rounds; a late answer is one
	ProxyCPU   float64 `json:"proxy_us_per_datagram"`      // of its own processes; 0 for kernel paths
	ProxyMin   float64 `json:"proxy_us_per_datagram_min"`  // minimum of the rounds
	ProxyMax   float64 `json:"proxy_us_per_datagram_max"`  // most of the rounds
	PerRequest float64 `json:"proxy_ms_per_1000_requests"` // milliseconds of its own processes
	TotalCPU   float64 `json:"total_us_per_request"`       // load, path and echo server together
	AddedCPU   float64 `json:"added_us_per_datagram"`      // more than the straight path
	// Latency has the times from a request's first transmission to its answer, of all rounds; absent: the path did not run.
	Latency *BenchLatency `json:"latency,omitempty"`
	// Samples are the same over time: that of the path's own rounds, one after the other; absent: the path did not run.
	Samples []BenchSample `json:"samples,omitempty"`
}

// ProgramCost is one element of the list that `weir bench ebpf --json` prints: nanoseconds that the kernel data path needs for a packet
// of one case.
type ProgramCost struct {
	Case   string  `json:"case"`            // what kind of packet
	Hook   string  `json:"hook"`            // xdp or tcx
	Family int     `json:"family"`          // 4 or 6
	Flows  int     `json:"flows"`           // different flows
	Table  int     `json:"table"`           // limits.flows
	InUse  int     `json:"in_use"`          // flows that were alive in the table after the last round
	NS     float64 `json:"ns"`              // of a packet, generator included
	Floor  float64 `json:"floor"`           // of the generator alone, in the same rounds
	Net    float64 `json:"net"`             // the difference: what the program costs
	Reason string  `json:"reasons"`         // what the packets were counted as
	LRU    float64 `json:"lru,omitempty"`   // of a look-up of the same packets in an LRU hash table, in the same rounds; absent, as the next three: not measured with this case
	XLRU   float64 `json:"x_lru,omitempty"` // Net divided by LRU; absent as above
	FIB    float64 `json:"fib,omitempty"`   // of a look-up of the same packets in the kernel's routes; absent as above
	XFIB   float64 `json:"x_fib,omitempty"` // Net divided by FIB; absent as above
}
