package v1

import "time"

// TCPStats is what `weir tcp stats` knows at one moment: the answer of /api/state, and what `weir tcp show --json` prints. Sums of
// connections and rates are of live reporters, totals of all that are known.
type TCPStats struct {
	At           time.Time         `json:"at"`                                                                                                                                 // this moment
	Started      time.Time         `json:"started"`                                                                                                                            // when the service started
	Reports      uint64            `json:"reports" metric:"weir_tcp_stats_reports_total" help:"Reports taken."`                                                                // taken since then
	Reporters    int               `json:"reporters"`                                                                                                                          // that are known
	MaxReporters int               `json:"max_reporters"`                                                                                                                      // bound of those
	SilentAfter  float64           `json:"silent_after_s"`                                                                                                                     // seconds without a report after which a reporter is silent
	Expected     int               `json:"expected,omitempty" metric:"weir_tcp_expected" help:"Connections that should be there; 0: none are expected."`                       // connections; absent: none are
	Connected    int               `json:"connected" metric:"weir_tcp_connected" help:"Connections established, by the live clients; by the servers where no client reports."` // by the clients; by the servers where no client reports
	Clients      TCPEnd            `json:"client_end"`                                                                                                                         // sum of the clients
	Servers      TCPEnd            `json:"server_end"`                                                                                                                         // sum of the servers
	Difference   *int              `json:"difference,omitempty" metric:"weir_tcp_ends_difference" help:"Connections that clients count and servers do not."`                   // clients' count less the servers'; absent: one end does not report
	Rates        TCPReporterRates  `json:"rates"`                                                                                                                              // of the clients
	Totals       TCPTotals         `json:"totals"`                                                                                                                             // of the clients; evicted and refused of the servers
	Failures     []TCPFailureCount `json:"failures" metric:""`                                                                                                                 // most frequent first
	ServerRows   []TCPReporter     `json:"servers"`                                                                                                                            // by name
	ClientRows   []TCPReporter     `json:"clients"`                                                                                                                            // by name
	Matrix       TCPMatrix         `json:"matrix"`                                                                                                                             // connections by client and server
	Dropped      TCPDropped        `json:"dropped" metric:"weir_tcp_stats_dropped_total" help:"What the service refused or gave up."`                                          // since the start
}

// TCPEnd sums up the servers, or the clients.
type TCPEnd struct {
	Live   int `json:"live"`   // reporters
	Silent int `json:"silent"` // reporters that have not reported for too long; they count in no sum
	Ended  int `json:"ended"`  // reporters whose final report has come; they count in no sum of connections
	TCPConnections
}

// TCPReporterRates are connections per second, between the last two reports.
type TCPReporterRates struct {
	Opened      float64 `json:"opened"`      // as in TCPTotals
	Closed      float64 `json:"closed"`      // as in TCPTotals
	Lost        float64 `json:"lost"`        // as in TCPTotals
	Reconnected float64 `json:"reconnected"` // as in TCPTotals
	Failed      float64 `json:"failed"`      // as in TCPTotals
}

// TCPFailureCount is a kind of failure, or of loss, that clients or servers have counted.
type TCPFailureCount struct {
	Kind   string `json:"kind" label:"kind"`                                                                            // key of TCPReport.Failures
	Count  uint64 `json:"count" metric:"weir_tcp_failures" help:"Failures by kind, of all clients that are known now."` // of all clients that are known
	Remedy string `json:"remedy,omitempty"`                                                                             // for people; absent: none is known
}

// TCPDropped counts what the service refused or gave up, since the start.
type TCPDropped struct {
	Reporters  uint64 `json:"reporters" metric:"_,what=reporters"`         // reports of new reporters that found no place
	Forgotten  uint64 `json:"forgotten" metric:"_,what=forgotten"`         // silent or ended reporters that gave their place early
	BadReports uint64 `json:"bad_reports" metric:"_,what=bad_reports"`     // no report, or impossible in itself
	TooLarge   uint64 `json:"too_large" metric:"_,what=too_large"`         // reports
	Strangers  uint64 `json:"strangers" metric:"_,what=strangers"`         // requests without the token, or with another one
	Busy       uint64 `json:"busy" metric:"_,what=busy"`                   // reports that came while too many were read
	Watchers   uint64 `json:"watchers" metric:"_,what=watchers"`           // watchers that found no place
	Slow       uint64 `json:"slow_watchers" metric:"_,what=slow_watchers"` // watchers that were cut off
}

// TCPReporter is one server or client that reports to `weir tcp stats`.
type TCPReporter struct {
	Key         string           `json:"key" label:"key"`                                                                                                                                              // for /api/history?id=
	Name        string           `json:"name"`                                                                                                                                                         // its id, with host and address where others have the same
	ID          string           `json:"id" label:"id"`                                                                                                                                                // as it reports
	Host        string           `json:"host" label:"host"`                                                                                                                                            // as it reports
	Zone        string           `json:"zone,omitempty"`                                                                                                                                               // absent: none is given
	Address     string           `json:"address"`                                                                                                                                                      // that its reports come from
	PID         int              `json:"pid,omitempty"`                                                                                                                                                // absent: not known
	Run         string           `json:"run,omitempty"`                                                                                                                                                // of a client; else absent
	Workers     int              `json:"workers,omitempty"`                                                                                                                                            // processes that are added up; absent: one
	Original    bool             `json:"original,omitempty"`                                                                                                                                           // the original tester's program
	State       string           `json:"state"`                                                                                                                                                        // live, silent or ended
	Age         float64          `json:"age_s"`                                                                                                                                                        // seconds since its last report
	Restarts    int              `json:"restarts"`                                                                                                                                                     // that were noticed
	Peers       int              `json:"peers"`                                                                                                                                                        // how many of the other end it has connections with
	Connections TCPConnections   `json:"connections" metric:""`                                                                                                                                        // of its last report
	Totals      TCPTotals        `json:"totals" metric:""`                                                                                                                                             // of its last report
	Rates       TCPReporterRates `json:"rates"`                                                                                                                                                        // between its last two reports
	Sent        uint64           `json:"heartbeats_sent"`                                                                                                                                              // as in TCPHeartbeats
	Received    uint64           `json:"heartbeats_received"`                                                                                                                                          // as in TCPHeartbeats
	Missed      uint64           `json:"heartbeats_missed" metric:"weir_tcp_heartbeats_missed_total" help:"Heartbeats without an echo in time."`                                                       // as in TCPHeartbeats
	RTT50       float64          `json:"rtt_p50_ms"`                                                                                                                                                   // half of the heartbeats took no longer, in milliseconds, as the next five
	RTT99       float64          `json:"rtt_p99_ms" metric:"weir_tcp_rtt_p99_seconds" unit:"ms" help:"99th percentile of the round trip of heartbeats."`                                               // 99 % of them
	Connect50   float64          `json:"connect_p50_ms"`                                                                                                                                               // from connect until the server's hello
	Connect99   float64          `json:"connect_p99_ms"`                                                                                                                                               // likewise
	Detected99  float64          `json:"detected_p99_ms"`                                                                                                                                              // silence before a connection was called lost
	Reconnect99 float64          `json:"reconnect_p99_ms"`                                                                                                                                             // from a loss until the connection is back
	CPU         float64          `json:"cpu_percent"`                                                                                                                                                  // of one core
	RSS         uint64           `json:"rss_bytes"`                                                                                                                                                    // resident memory
	LimitsHit   []string         `json:"limits_hit,omitempty"`                                                                                                                                         // limits of its machine that were reached; absent: none
	Plateau     *TCPPlateau      `json:"plateau,omitempty"`                                                                                                                                            // of a client: where the ramp stands still; absent: it does not
	Frozen      float64          `json:"frozen_s" metric:"weir_tcp_not_scheduled_seconds_total" help:"How long the processes of the reporter were not scheduled: beyond a second its times are void."` // seconds that it was not scheduled
	Void        string           `json:"void,omitempty"`                                                                                                                                               // why its times and rates are not the path's; absent: they are
}

// TCPMatrix shows which client holds how many connections with which server: as the clients report it, and for those that do not
// report as the servers do. Silent and ended reporters have no part in it.
type TCPMatrix struct {
	Servers []string       `json:"servers"` // ids, in their order; of many those with the most connections
	Others  int            `json:"others"`  // servers beyond these
	Rows    []TCPMatrixRow `json:"rows"`    // one for each client
	Hidden  int            `json:"hidden"`  // clients beyond these
}

// TCPMatrixRow is one client.
type TCPMatrixRow struct {
	Client string `json:"client"`            // name of the reporter, or its run
	ByPeer bool   `json:"by_peer,omitempty"` // it does not report: the servers report this
	Cells  []int  `json:"cells"`             // connections with each of TCPMatrix.Servers
	Others int    `json:"others"`            // connections with servers beyond these
	Sum    int    `json:"sum"`               // of all its connections
}

// TCPHistory is the last hour of a reporter, or of the sum of all, oldest first: the answer of /api/history. All lists have the same
// length; null where nothing was reported.
type TCPHistory struct {
	ID          string     `json:"id"`          // TCPReporter.Key, or all
	Step        float64    `json:"step_s"`      // seconds between two points
	End         time.Time  `json:"end"`         // of the last point
	Clients     []*float32 `json:"clients"`     // connections established, by the clients
	Servers     []*float32 `json:"servers"`     // connections established, by the servers
	Opened      []*float32 `json:"opened"`      // connections per second, as the next three
	Lost        []*float32 `json:"lost"`        // as in TCPTotals
	Reconnected []*float32 `json:"reconnected"` // as in TCPTotals
	Failed      []*float32 `json:"failed"`      // as in TCPTotals
}
