package v1

import "time"

// TCPReport is what `weir tcp server` and `weir tcp client` print with --json and send to `weir tcp stats`: the state of one worker, or
// of all workers of a process. Counts are since the start, rates of the last second.
type TCPReport = TCPReportOf[BenchLatency]

// TCPReportOf is a TCPReport whose distributions are of another type, such as the histograms of a program that measures. Their JSON is
// that of BenchLatency.
type TCPReportOf[Latency any] struct {
	Role    string    `json:"role"`              // server or client
	ID      string    `json:"id"`                // unique among those of a run
	Host    string    `json:"host"`              // name of the machine
	Zone    string    `json:"zone,omitempty"`    // absent: none is given
	PID     int       `json:"pid"`               // of several processes that of the first
	Run     string    `json:"run,omitempty"`     // of a client, 16 hexadecimal digits; else absent
	Worker  int       `json:"worker"`            // from 0; of several that of the first
	Workers int       `json:"workers,omitempty"` // processes that are added up; absent: it is one of them
	At      time.Time `json:"at"`                // when the report was made
	Final   bool      `json:"final,omitempty"`   // nothing follows: the run is over

	BeganAt time.Time `json:"began_at,omitzero"` // first connect of a client; else absent
	FullAt  time.Time `json:"full_at,omitzero"`  // when a client first had all connections of its target; absent: not yet

	Connections TCPConnections           `json:"connections"`           // of this moment
	Totals      TCPTotals                `json:"totals"`                // since the start
	Failures    map[string]uint64        `json:"failures,omitempty"`    // attempts and connections by kind of failure; absent: none
	Rates       TCPRates                 `json:"rates"`                 // of the last second
	Heartbeats  TCPHeartbeatsOf[Latency] `json:"heartbeats"`            // frames, and the times of their echoes
	Connect     *Latency                 `json:"connect,omitempty"`     // client: from connect until the server's hello; absent: none yet
	Detected    *Latency                 `json:"detected,omitempty"`    // client: silence before a connection was called lost; absent: none was
	Reconnect   *Latency                 `json:"reconnect,omitempty"`   // client: from a loss until the connection is back; absent: none was
	Marks       []TCPMarkOf[Latency]     `json:"marks,omitempty"`       // client: since moments that its parent named; absent: none
	Peers       []TCPPeer                `json:"peers,omitempty"`       // client: servers; server: clients; absent: none
	OtherPeers  int                      `json:"other_peers,omitempty"` // connections of peers beyond the 4096 that are distinguished; absent: none
	Bytes       TCPBytes                 `json:"bytes"`                 // of payload and frames, without TCP's headers

	CPUSeconds float64 `json:"cpu_s"`     // user and system time of the process
	RSSBytes   uint64  `json:"rss_bytes"` // resident memory of the process
	// BytesPerConnection is resident memory that no file holds, since the start, at least the tables, for each established connection.
	BytesPerConnection float64           `json:"user_bytes_per_connection"`
	TableBytes         uint64            `json:"table_bytes"`              // of that memory, tables of connections and timers
	Frozen             float64           `json:"frozen_s,omitempty"`       // seconds that the process was not scheduled, of several the most; absent: none
	Void               string            `json:"void,omitempty"`           // why times and rates are not the path's; absent: they are
	LimitsHit          []string          `json:"limits_hit,omitempty"`     // limits of this machine that were reached; absent: none
	Samples            []TCPFailure      `json:"failed_samples,omitempty"` // the first 64 failures; absent: none
	Plateau            *TCPPlateau       `json:"plateau,omitempty"`        // client: where the ramp stands still; absent: it does not
	Plateaus           []TCPPlateau      `json:"plateaus,omitempty"`       // client, in a final report: all on the way; absent: none
	RateLimit          float64           `json:"rate_limit,omitempty"`     // client: new connections per second that came through while others went unanswered; absent: all were
	Interval           *TCPInterval      `json:"interval,omitempty"`       // client: round trips of the last second; absent: none
	Command            string            `json:"command,omitempty"`        // client, in a final report: as it was typed; else absent
	LoadBefore         string            `json:"load_before,omitempty"`    // client, in a final report: the machine's load average of 1, 5 and 15 minutes at the start; else absent
	LoadAfter          string            `json:"load_after,omitempty"`     // likewise at the end; else absent
	Conclusion         string            `json:"verdict,omitempty"`        // client, in a final report: what became of the run, in a sentence; else absent
	Reconciled         *TCPReconciled    `json:"reconciled,omitempty"`     // absent: only one end is known
	Replicas           *TCPReplicas      `json:"replicas,omitempty"`       // absent: there is one client
	History            []TCPHistoryPoint `json:"history,omitempty"`        // in a final report; else absent
}

// TCPConnections are those of this moment.
type TCPConnections struct {
	Target      int `json:"target,omitempty" metric:"weir_tcp_target" help:"Connections that a client is to hold."` // that a client wants; absent: a server
	Established int `json:"established" metric:"weir_tcp_connections" help:"Connections established."`              // both programs have sent their hello (plain: TCP is up)
	Connecting  int `json:"connecting" metric:"weir_tcp_connecting" help:"Connections that are being opened."`      // SYN sent, or TCP up and hello awaited
	Unanswered  int `json:"unanswered"`                                                                             // of those: TCP is up, the peer's program has sent nothing
	Waiting     int `json:"waiting,omitempty"`                                                                      // of a client: backing off after a failure; absent: none
	Draining    int `json:"draining,omitempty"`                                                                     // closing on request; absent: none
}

// TCPTotals count connections since the start.
type TCPTotals struct {
	Opened      uint64 `json:"opened" metric:"weir_tcp_opened_total" help:"Connections that became established."`                                                   // became established
	Closed      uint64 `json:"closed" metric:"weir_tcp_closed_total" help:"Connections closed on purpose."`                                                         // on purpose: churn, drain, bye
	Lost        uint64 `json:"lost" metric:"weir_tcp_lost_total" help:"Established connections that broke or fell silent."`                                         // established and then broken, silent or evicted
	Reconnected uint64 `json:"reconnected" metric:"weir_tcp_reconnected_total" help:"Connections established again after a loss."`                                  // established again after a loss
	Evicted     uint64 `json:"evicted" metric:"weir_tcp_evicted_total" help:"Connections that a server gave up as silent."`                                         // of a server: silent for longer than the client announced
	Refused     uint64 `json:"refused" metric:"weir_tcp_refused_total" help:"Connections that a server closed, because their bytes are no protocol of the tester."` // of a server: bytes that are no protocol
	Failed      uint64 `json:"failed" metric:"weir_tcp_failed_total" help:"Attempts of a client that led to no connection."`                                        // of a client: attempts that did not become established
}

// TCPRates are connections per second.
type TCPRates struct {
	Opened float64 `json:"opened"` // as in TCPTotals
	Closed float64 `json:"closed"` // as in TCPTotals
	Failed float64 `json:"failed"` // as in TCPTotals
}

// TCPHeartbeatsOf count frames, and time the echoes.
type TCPHeartbeatsOf[Latency any] struct {
	Sent     uint64   `json:"sent"`             // frames
	Received uint64   `json:"received"`         // frames
	Missed   uint64   `json:"missed"`           // client: no echo before the next was due; server: none within 1.5 periods
	Unsent   uint64   `json:"unsent,omitempty"` // client: due while the process stood still, and never sent; absent: none
	RTT      *Latency `json:"rtt,omitempty"`    // from the time that the heartbeat was due until its echo; absent: none came
}

// TCPBytes are of payload and frames, without TCP's headers.
type TCPBytes struct {
	Sent     uint64 `json:"sent"`     // to the peers
	Received uint64 `json:"received"` // from the peers
}

// TCPPeer is one row of the distribution.
type TCPPeer struct {
	ID          string `json:"id"`                   // of its report
	Zone        string `json:"zone,omitempty"`       // absent: none is given
	Generation  string `json:"generation,omitempty"` // 16 hexadecimal digits, others after a server's restart; absent: a client
	Connections int    `json:"connections"`          // established
}

// TCPFailure is one failure, to look for in captures and tables.
type TCPFailure struct {
	At      time.Time `json:"at"`              // when it was noticed
	Kind    string    `json:"kind"`            // key of TCPReport.Failures
	Local   string    `json:"local,omitempty"` // address and port; absent: none was assigned
	Remote  string    `json:"remote"`          // address and port
	Error   string    `json:"error,omitempty"` // of the system; absent: there was none
	AfterMS float64   `json:"after_ms"`        // milliseconds since the connect, or since the last echo
}

// TCPPlateau is a ramp that stands still below its target.
type TCPPlateau struct {
	Connections int     `json:"connections"`          // established
	Since       float64 `json:"since_s"`              // seconds that it has stood still
	Ceiling     string  `json:"ceiling"`              // the limit that was hit, one that is possible, or unknown
	Text        string  `json:"text"`                 // all in one sentence
	At          int     `json:"ceiling_at,omitempty"` // connections that the limit allows; absent: not known
	Because     string  `json:"because"`              // for people
	Kind        string  `json:"kind,omitempty"`       // key of TCPReport.Failures that is in the way; absent: none is
	Remedy      string  `json:"remedy,omitempty"`     // for people; absent: none is known
}

// TCPReplicas says how many of several clients have all connections that they want.
type TCPReplicas struct {
	Replicas    int `json:"replicas"`          // clients
	Connections int `json:"connections"`       // that each wants
	Whole       int `json:"whole_replicas"`    // clients that have all of their connections
	Held        int `json:"whole_connections"` // connections of those
}

// TCPReconciled compares what both ends count at about the same time.
type TCPReconciled struct {
	Client  int    `json:"client"`            // connections that clients count
	Server  int    `json:"server"`            // connections that servers count
	Agree   bool   `json:"agree"`             // the two are equal
	Finding string `json:"finding,omitempty"` // for people; absent: they agree
}

// TCPInterval is what was measured between two reports.
type TCPInterval struct {
	Count uint64  `json:"count"`  // round trips
	P50   float64 `json:"p50_ms"` // half of them took no longer, in milliseconds
	P99   float64 `json:"p99_ms"` // 99 % of them took no longer, in milliseconds
	Max   float64 `json:"max_ms"` // the longest, in milliseconds
}

// TCPHistoryPoint is one second of a run.
type TCPHistoryPoint struct {
	Seconds     float64 `json:"s"`                // since the start of the run
	Established int     `json:"established"`      // connections
	Server      int     `json:"server,omitempty"` // connections that servers count; absent: not known
	Opened      uint64  `json:"opened"`           // connections so far
	Lost        uint64  `json:"lost"`             // connections so far
	Failed      uint64  `json:"failed"`           // attempts so far
	RTT50       float64 `json:"rtt_p50_ms"`       // half of this second's round trips took no longer, in milliseconds
	RTT99       float64 `json:"rtt_p99_ms"`       // 99 % of them, in milliseconds
	RTTMax      float64 `json:"rtt_max_ms"`       // the longest of them, in milliseconds
	CPU         float64 `json:"cpu_percent"`      // of one core, this process and its workers
}

// TCPMarkOf is what became of a client's connections since a moment that its parent named, until the next one.
type TCPMarkOf[Latency any] struct {
	Name      string            `json:"name"`                   // of the moment
	Lost      uint64            `json:"lost"`                   // connections that were established, and broke
	LostBy    map[string]uint64 `json:"lost_by_peer,omitempty"` // of those, by the server's id; absent: none
	Kinds     map[string]uint64 `json:"failures,omitempty"`     // of those, by kind of failure; absent: none
	Moved     uint64            `json:"moved"`                  // connections that their server sent away
	Back      uint64            `json:"back"`                   // of the lost, established again
	LostAfter *Latency          `json:"lost_after,omitempty"`   // from the moment until the loss; absent: none was lost
	BackAfter *Latency          `json:"back_after,omitempty"`   // from the moment until the connection was back; absent: none is
	// Full is how many seconds after the moment all connections of the target were established again. Absent: not yet, or none had gone.
	Full float64 `json:"full_again_s,omitempty"`
}
