package tcpscale

import (
	"time"

	"github.com/weir-lb/weir/internal/testbed/measure"
)

// Roles of a [Report].
const (
	RoleServer = "server"
	RoleClient = "client"
)

// Report is what a server or client has done so far: of one worker, or merged of all workers of a process
// ([MergeReports]). Counts are since the start, rates of the last second.
type Report struct {
	Role    string    `json:"role"` // RoleServer or RoleClient
	ID      string    `json:"id"`   // unique among those of a run
	Host    string    `json:"host"`
	Zone    string    `json:"zone,omitempty"`
	PID     int       `json:"pid"`               // in a merged report that of the first
	Run     string    `json:"run,omitempty"`     // of a client, 16 hexadecimal digits
	Worker  int       `json:"worker"`            // from 0; in a merged report that of the first
	Workers int       `json:"workers,omitempty"` // processes merged
	At      time.Time `json:"at"`
	Final   bool      `json:"final,omitempty"` // nothing follows: the run is over

	BeganAt time.Time `json:"began_at,omitzero"` // client: first connect
	FullAt  time.Time `json:"full_at,omitzero"`  // client: all of the target were established for the first time

	Connections Connections       `json:"connections"`
	Totals      Totals            `json:"totals"`
	Failures    map[string]uint64 `json:"failures,omitempty"` // by [Failure]
	Rates       Rates             `json:"rates"`
	Heartbeats  Heartbeats        `json:"heartbeats"`
	Connect     *measure.Latency  `json:"connect,omitempty"`     // client: from connect until the server's hello
	Detected    *measure.Latency  `json:"detected,omitempty"`    // client: silence before a connection was called lost
	Reconnect   *measure.Latency  `json:"reconnect,omitempty"`   // client: from a loss until the connection is back
	Marks       []Mark            `json:"marks,omitempty"`       // client: since moments that its parent named
	Peers       []Peer            `json:"peers,omitempty"`       // client: servers; server: clients
	OtherPeers  int               `json:"other_peers,omitempty"` // connections of peers beyond the 4096 that are told apart
	Bytes       Bytes             `json:"bytes"`

	CPUSeconds         float64        `json:"cpu_s"`
	RSSBytes           uint64         `json:"rss_bytes"`
	BytesPerConnection float64        `json:"user_bytes_per_connection"` // resident memory that no file holds, since the start, at least the tables, for each established
	TableBytes         uint64         `json:"table_bytes"`               // of that, tables of connections and timers
	Frozen             float64        `json:"frozen_s,omitempty"`        // how long the process was not scheduled, in all; of several, the longest
	Void               string         `json:"void,omitempty"`            // why times and rates are not the path's: the process was not scheduled
	LimitsHit          []string       `json:"limits_hit,omitempty"`
	Samples            []FailedTuple  `json:"failed_samples,omitempty"` // the first 64
	Plateau            *Plateau       `json:"plateau,omitempty"`        // client: where the ramp stands still
	Plateaus           []Plateau      `json:"plateaus,omitempty"`       // client, in a final report: all on the way, one of each ceiling and kind of failure
	RateLimit          float64        `json:"rate_limit,omitempty"`     // client: new connections a second that came through while others went unanswered
	Interval           *Interval      `json:"interval,omitempty"`       // client: round trips of the last second only
	Command            string         `json:"command,omitempty"`        // client, in a final report: as it was typed
	LoadBefore         string         `json:"load_before,omitempty"`    // client, in a final report: the machine's load average of 1, 5 and 15 minutes
	LoadAfter          string         `json:"load_after,omitempty"`
	Conclusion         string         `json:"verdict,omitempty"`    // client, in a final report: what became of the run, in a sentence
	Reconciled         *Reconciled    `json:"reconciled,omitempty"` // where both ends are known
	Replicas           *Replicas      `json:"replicas,omitempty"`   // client: where there are several
	History            []HistoryPoint `json:"history,omitempty"`    // only in a final report
}

// Connections are those of this moment.
type Connections struct {
	Target      int `json:"target,omitempty" metric:"weir_tcp_target" help:"Connections that a client is to hold."` // client
	Established int `json:"established" metric:"weir_tcp_connections" help:"Connections established."`              // both programs have said hello (plain: TCP is up)
	Connecting  int `json:"connecting" metric:"weir_tcp_connecting" help:"Connections that are being opened."`      // SYN sent, or TCP up and hello awaited
	Unanswered  int `json:"unanswered"`                                                                             // of those: TCP is up, the peer's program has said nothing
	Waiting     int `json:"waiting,omitempty"`                                                                      // client: backing off after a failure
	Draining    int `json:"draining,omitempty"`                                                                     // closing on request
}

// Totals count since the start.
type Totals struct {
	Opened      uint64 `json:"opened" metric:"weir_tcp_opened_total" help:"Connections that became established."`
	Closed      uint64 `json:"closed" metric:"weir_tcp_closed_total" help:"Connections closed on purpose."`                 // meant: churn, drain, bye
	Lost        uint64 `json:"lost" metric:"weir_tcp_lost_total" help:"Established connections that broke or fell silent."` // established and then broken, silent or evicted
	Reconnected uint64 `json:"reconnected" metric:"weir_tcp_reconnected_total" help:"Connections established again after a loss."`
	Evicted     uint64 `json:"evicted" metric:"weir_tcp_evicted_total" help:"Connections that a server gave up as silent."`                                         // server: silent for longer than the client announced
	Refused     uint64 `json:"refused" metric:"weir_tcp_refused_total" help:"Connections that a server closed, because their bytes are no protocol of the tester."` // server: bytes that are no protocol
	Failed      uint64 `json:"failed" metric:"weir_tcp_failed_total" help:"Attempts of a client that led to no connection."`                                        // client: attempts that did not become established
}

// Rates are per second.
type Rates struct {
	Opened float64 `json:"opened"`
	Closed float64 `json:"closed"`
	Failed float64 `json:"failed"`
}

// Heartbeats count frames, and time the echoes.
type Heartbeats struct {
	Sent     uint64           `json:"sent"`
	Received uint64           `json:"received"`
	Missed   uint64           `json:"missed"`           // client: no echo before the next was due; server: none within 1.5 periods
	Unsent   uint64           `json:"unsent,omitempty"` // client: was due while the process stood still, and never sent; RTT has the time by which it was late
	RTT      *measure.Latency `json:"rtt,omitempty"`    // from the time that the heartbeat was due until its echo
}

// Bytes are of payload and frames, without TCP's headers.
type Bytes struct {
	Sent     uint64 `json:"sent"`
	Received uint64 `json:"received"`
}

// Peer is one row of the distribution.
type Peer struct {
	ID          string `json:"id"`
	Zone        string `json:"zone,omitempty"`
	Generation  string `json:"generation,omitempty"` // 16 hexadecimal digits; another one after a server's restart
	Connections int    `json:"connections"`
}

// FailedTuple is one failure, for a look into captures and tables.
type FailedTuple struct {
	At      time.Time `json:"at"`
	Kind    string    `json:"kind"`
	Local   string    `json:"local,omitempty"`
	Remote  string    `json:"remote"`
	Error   string    `json:"error,omitempty"`
	AfterMS float64   `json:"after_ms"` // since the connect, or since the last echo
}

// Plateau is a ramp that stands still below its target.
type Plateau struct {
	Connections int     `json:"connections"`
	Since       float64 `json:"since_s"`
	Ceiling     string  `json:"ceiling"` // the limit that was hit, one that is possible, or "unknown"
	Text        string  `json:"text"`    // all in one sentence
	At          int     `json:"ceiling_at,omitempty"`
	Because     string  `json:"because"`
	Kind        string  `json:"kind,omitempty"` // the [Failure] that is in the way
	Remedy      string  `json:"remedy,omitempty"`
}

// Replicas says how many of several clients have all that they want.
type Replicas struct {
	Replicas    int `json:"replicas"`
	Connections int `json:"connections"`       // that each wants
	Whole       int `json:"whole_replicas"`    // that have all of their connections
	Held        int `json:"whole_connections"` // by those
}

// Reconciled compares what both ends count at about the same time.
type Reconciled struct {
	Client  int    `json:"client"`
	Server  int    `json:"server"`
	Agree   bool   `json:"agree"`
	Finding string `json:"finding,omitempty"`
}

// Interval is what was measured between two looks at a run.
type Interval struct {
	Count uint64  `json:"count"`
	P50   float64 `json:"p50_ms"`
	P99   float64 `json:"p99_ms"`
	Max   float64 `json:"max_ms"`
}

func newInterval(l *measure.Latency) *Interval {
	return &Interval{l.Count(), measure.Millis(l.Quantile(.5)), measure.Millis(l.Quantile(.99)), measure.Millis(l.Max())}
}

// HistoryPoint is one second of a run.
type HistoryPoint struct {
	Seconds     float64 `json:"s"`
	Established int     `json:"established"`
	Server      int     `json:"server,omitempty"`
	Opened      uint64  `json:"opened"`
	Lost        uint64  `json:"lost"`
	Failed      uint64  `json:"failed"`
	RTT50       float64 `json:"rtt_p50_ms"` // round trips of this point's time only
	RTT99       float64 `json:"rtt_p99_ms"`
	RTTMax      float64 `json:"rtt_max_ms"`
	CPU         float64 `json:"cpu_percent"` // of one core, this process and its workers
}
