package v1

import "time"

// TCPBench is what `weir tcp bench` prints with --json: both ends of many connections in one run. Memory and processor figures are of
// the time in which all connections are held.
type TCPBench = TCPBenchOf[BenchLatency]

// TCPBenchOf is a TCPBench whose distributions are of another type, as in TCPReportOf.
type TCPBenchOf[Latency any] struct {
	At               time.Time               `json:"at"`                                          // start
	Machine          string                  `json:"machine"`                                     // where the run was made
	Command          string                  `json:"command,omitempty"`                           // as it was typed; absent: not known
	LoadBefore       string                  `json:"load_before"`                                 // the machine's load average of 1, 5 and 15 minutes
	LoadAfter        string                  `json:"load_after"`                                  // likewise
	Connections      int                     `json:"connections"`                                 // requested
	Held             int                     `json:"held"`                                        // at the end
	HoldSeconds      float64                 `json:"hold_s"`                                      // seconds that they were held
	EstablishSeconds float64                 `json:"establish_s,omitempty"`                       // seconds until all were established; absent: not all were
	Lost             uint64                  `json:"lost"`                                        // connections
	InterruptedAfter float64                 `json:"interrupted_after_s,omitempty"`               // seconds since the start; absent: it was not interrupted
	KernelBytes      *float64                `json:"kernel_bytes_per_connection,omitempty"`       // both ends: growth of unreclaimable slab and socket buffers; absent, as the next eight: nothing was idle for so long that it could be measured
	AvailableBytes   *float64                `json:"available_bytes_per_connection,omitempty"`    // by how much the machine's available memory fell; absent as above
	ServerBytes      *float64                `json:"server_user_bytes_per_connection,omitempty"`  // resident memory of the server's processes; absent as above
	ServerTable      *float64                `json:"server_table_bytes_per_connection,omitempty"` // of that memory, tables; absent as above
	ClientBytes      *float64                `json:"client_user_bytes_per_connection,omitempty"`  // resident memory of the client's processes; absent as above
	ClientTable      *float64                `json:"client_table_bytes_per_connection,omitempty"` // of that memory, tables; absent as above
	ServerCPU        *float64                `json:"server_idle_cpu_percent,omitempty"`           // of one core; absent as above
	ClientCPU        *float64                `json:"client_idle_cpu_percent,omitempty"`           // of one core; absent as above
	Beats            *float64                `json:"heartbeats_per_s,omitempty"`                  // of the clients; absent as above
	OK               bool                    `json:"ok"`                                          // all were held and none was lost
	Void             string                  `json:"void,omitempty"`                              // why times and rates are not the path's; absent: they are
	Verdict          string                  `json:"verdict"`                                     // the run in one sentence, for people
	Findings         []Finding               `json:"findings"`                                    // of the doctor, before the run
	Conditions       []TCPCondition          `json:"conditions"`                                  // what the result depends on
	Via              *TCPBenchViaOf[Latency] `json:"via,omitempty"`                               // of a run through a balancer; absent: it was direct
	Client           TCPReportOf[Latency]    `json:"client"`                                      // of all client processes
	Server           TCPReportOf[Latency]    `json:"server"`                                      // of all server processes
}

// TCPCondition is something that a result depends on, as it was while the connections were held.
type TCPCondition struct {
	Name  string `json:"name"`  // such as net.ipv4.tcp_mem
	Value string `json:"value"` // as text
}

// TCPBenchViaOf is what a balancer between both ends adds to a TCPBench.
type TCPBenchViaOf[Latency any] struct {
	Path     string       `json:"road"`               // the balancer; the key keeps its first name, as in BenchResult
	Backends int          `json:"backends"`           // behind it
	Sources  int          `json:"sources"`            // addresses of the clients
	Balancer *TCPBalancer `json:"balancer,omitempty"` // what it reports; absent: there is none
	// Machine is the processor time of the whole machine while the connections were held, until the first event, in percent of one core.
	// Absent, as the next two: that came too early to measure.
	Machine     *float64                   `json:"machine_idle_cpu_percent,omitempty"`
	Others      *float64                   `json:"machine_others_cpu_percent,omitempty"`  // of that, programs that do not belong to the run; absent as above
	Softirq     *float64                   `json:"machine_softirq_cpu_percent,omitempty"` // of that, softirqs, which run the kernel data path; absent as above
	Events      []TCPBenchEventOf[Latency] `json:"events"`                                // what was done to balancer and backends, ascending
	Unexplained uint64                     `json:"lost_unexplained"`                      // connections that no event explains
	Shares      []TCPShares                `json:"shares,omitempty"`                      // the clients' distribution over time; absent: it does not matter here
	Ratio       *TCPRatio                  `json:"ratio_to_direct,omitempty"`             // absent: the command had no direct path
}

// TCPShares is the distribution of connections at one second.
type TCPShares struct {
	Seconds     float64        `json:"s"`           // since the start of the run
	Connections map[string]int `json:"connections"` // by server
}

// TCPRatio has the figures of a path divided by those of the direct one.
type TCPRatio struct {
	Establish float64 `json:"establish"`        // time to establish
	RTT50     float64 `json:"rtt_p50"`          // round trip of half of the heartbeats
	RTT99     float64 `json:"rtt_p99"`          // round trip of 99 % of them
	Machine   float64 `json:"machine_idle_cpu"` // processor time of the machine; 0: not measured on one of them
}

// TCPBalancer is what a balancer reports of itself, or the kernel in its place.
type TCPBalancer struct {
	Flows     int               `json:"flows"`                      // held: of Weir's table, or connection tracking
	FlowsMax  int               `json:"flows_max"`                  // its bound; 0: it has none
	TableFull uint64            `json:"table_full"`                 // new flows that found no room
	Packets   map[string]uint64 `json:"packets,omitempty"`          // by Weir's reason; absent: it is not Weir
	QueueFull uint64            `json:"queue_full"`                 // packets that found a queue, or its socket, full
	CPU       *float64          `json:"idle_cpu_percent,omitempty"` // of one core: the process, without what the kernel does in softirqs; absent: not measured
	RSS       uint64            `json:"rss_bytes"`                  // resident memory of the process
}

// TCPBenchEventOf is something that was done to the balancer or a backend. A loss belongs to it if the connection was with the backend
// that went; all others are unexplained.
type TCPBenchEventOf[Latency any] struct {
	Kind        string            `json:"kind"`              // what was done
	Target      string            `json:"target,omitempty"`  // backend; absent: the balancer
	Skipped     string            `json:"skipped,omitempty"` // why it was not done; absent: it was
	AtSeconds   float64           `json:"at_s"`              // on the time axis of TCPReport.History
	TookSeconds float64           `json:"took_s"`            // seconds until it was done: the balancer works again, the backend is empty
	Held        int               `json:"held"`              // connections that the target held, or all
	Lost        uint64            `json:"lost"`              // connections, by the event
	LostOthers  uint64            `json:"lost_others"`       // connections, unexplained, between this event and the next
	Moved       uint64            `json:"moved"`             // connections that their server sent away
	Kinds       map[string]uint64 `json:"failures"`          // of all that were lost until the next event, by kind
	LostAfter   *Latency          `json:"lost_after"`        // from the event until the loss; null: none was lost
	BackAfter   *Latency          `json:"back_after"`        // from the event until the connection was back; null: none is
	AllBack     float64           `json:"all_back_s"`        // seconds since the event; 0: nothing had gone, or not all came back
	Before      []TCPPeer         `json:"before"`            // the clients' distribution
	After       []TCPPeer         `json:"after"`             // at the next event, or at the end
}

// TCPComparison is what `weir tcp bench --with` prints with --json: idle connections of several testers, as the kernel counts them.
type TCPComparison struct {
	At          time.Time `json:"at"`          // start
	Machine     string    `json:"machine"`     // where the runs were made
	Connections int       `json:"connections"` // of each run
	Runs        []TCPRun  `json:"runs"`        // in the order in which they were made
	Interrupted bool      `json:"interrupted"` // it was ended early
	OK          bool      `json:"ok"`          // Weir held all in every round and lost none, and no program failed
	Verdict     string    `json:"verdict"`     // the comparison in one sentence, for people
	Findings    []Finding `json:"findings"`    // of the doctor, before the first run
}

// TCPRun is what the kernel reports of one program in one round. Bytes for each connection are what the run took more than a run of the
// same processes with one connection each.
type TCPRun struct {
	Program          string   `json:"program"`                          // that held the connections
	Server           string   `json:"server"`                           // program that it connected to
	Round            int      `json:"round"`                            // from 1
	Processes        int      `json:"processes"`                        // that hold connections, at each end
	Held             int      `json:"held"`                             // at the end; both ends established by the kernel's count
	Accepted         int      `json:"accepted"`                         // descriptors of the server's processes for them
	EstablishSeconds float64  `json:"establish_s,omitempty"`            // seconds from the first to the last; absent: not all were
	HoldSeconds      float64  `json:"hold_s"`                           // seconds
	Lost             int      `json:"lost"`                             // went away while held, or were opened again
	KernelBytes      *float64 `json:"kernel_bytes_per_connection"`      // of both ends; null: too small to measure
	ServerBytes      float64  `json:"server_user_bytes_per_connection"` // resident memory of the server's processes
	ClientBytes      float64  `json:"client_user_bytes_per_connection"` // resident memory of the client's processes
	UserBytes        float64  `json:"user_bytes"`                       // of all processes, their own memory
	ServerCPU        float64  `json:"server_idle_cpu_percent"`          // of one core
	ClientCPU        float64  `json:"client_idle_cpu_percent"`          // of one core
	Segments         float64  `json:"segments_per_s"`                   // TCP segments of both ends while held: how idle it was
	DataSegments     float64  `json:"data_segments_per_s"`              // of these, with bytes, sent for the first time
	DataCPU          float64  `json:"cpu_us_per_data_segment"`          // microseconds of both ends; 0: next to none were sent
	Failed           string   `json:"failed,omitempty"`                 // why there are no figures; absent: there are
	Reached          int      `json:"reached,omitempty"`                // of a run that failed: the most that were established at once; absent: none, or it did not fail
}
