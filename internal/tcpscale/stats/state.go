package stats

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-lb/weir/internal/tcpscale"
)

// States of a reporter.
const (
	StateLive   = "live"
	StateSilent = "silent" // has not reported for too long; counts in no sum
	StateEnded  = "ended"  // its final report has come; counts in no sum of connections
)

// State is everything of one moment. Sums of connections and rates are of live reporters, totals of all that are known.
type State struct {
	At           time.Time       `json:"at"`
	Started      time.Time       `json:"started"`
	Reports      uint64          `json:"reports" metric:"weir_tcp_stats_reports_total" help:"Reports taken."`
	Reporters    int             `json:"reporters"`
	MaxReporters int             `json:"max_reporters"`
	SilentAfter  float64         `json:"silent_after_s"`
	Expected     int             `json:"expected,omitempty" metric:"weir_tcp_expected" help:"Connections that should be there; 0: none are expected."`
	Connected    int             `json:"connected" metric:"weir_tcp_connected" help:"Connections established, by the live clients; by the servers where no client reports."` // by the clients; by the servers where no client reports
	Clients      End             `json:"client_end"`
	Servers      End             `json:"server_end"`
	Difference   *int            `json:"difference,omitempty" metric:"weir_tcp_ends_difference" help:"Connections that clients count and servers do not."` // clients' count less the servers'; where both report
	Rates        Rates           `json:"rates"`                                                                                                            // of the clients
	Totals       tcpscale.Totals `json:"totals"`                                                                                                           // of the clients; evicted and refused of the servers
	Failures     []Failure       `json:"failures" metric:""`
	ServerRows   []Row           `json:"servers"`
	ClientRows   []Row           `json:"clients"`
	Matrix       Matrix          `json:"matrix"`
	Dropped      Dropped         `json:"dropped" metric:"weir_tcp_stats_dropped_total" help:"What the service refused or gave up."`
}

// End sums up the servers, or the clients.
type End struct {
	Live   int `json:"live"`
	Silent int `json:"silent"`
	Ended  int `json:"ended"`
	tcpscale.Connections
}

// Rates are per second, between the last two reports.
type Rates struct {
	Opened      float64 `json:"opened"`
	Closed      float64 `json:"closed"`
	Lost        float64 `json:"lost"`
	Reconnected float64 `json:"reconnected"`
	Failed      float64 `json:"failed"`
}

// Failure is a kind of failure, or of loss, that clients or servers have counted.
type Failure struct {
	Kind   string `json:"kind" label:"kind"`
	Count  uint64 `json:"count" metric:"weir_tcp_failures" help:"Failures by kind, of all clients that are known now."`
	Remedy string `json:"remedy,omitempty"`
}

// Dropped counts what was refused or given up, since the start.
type Dropped struct {
	Reporters  uint64 `json:"reporters" metric:"_,what=reporters"`     // reports of new reporters that found no place
	Forgotten  uint64 `json:"forgotten" metric:"_,what=forgotten"`     // silent or ended reporters that gave their place before ForgetAfter
	BadReports uint64 `json:"bad_reports" metric:"_,what=bad_reports"` // no report, or impossible in itself
	TooLarge   uint64 `json:"too_large" metric:"_,what=too_large"`
	Strangers  uint64 `json:"strangers" metric:"_,what=strangers"`         // requests without the token, or with another one
	Busy       uint64 `json:"busy" metric:"_,what=busy"`                   // came while too many were read
	Watchers   uint64 `json:"watchers" metric:"_,what=watchers"`           // found no place
	Slow       uint64 `json:"slow_watchers" metric:"_,what=slow_watchers"` // were cut off
}

// Row is one reporter.
type Row struct {
	Key         string               `json:"key" label:"key"` // for /api/history?id=
	Name        string               `json:"name"`            // its id, with host and address where others have the same
	ID          string               `json:"id" label:"id"`
	Host        string               `json:"host" label:"host"`
	Zone        string               `json:"zone,omitempty"`
	Address     string               `json:"address"`
	PID         int                  `json:"pid,omitempty"`
	Run         string               `json:"run,omitempty"`
	Workers     int                  `json:"workers,omitempty"`
	Original    bool                 `json:"original,omitempty"` // the original tester's program
	State       string               `json:"state"`
	Age         float64              `json:"age_s"` // since its last report
	Restarts    int                  `json:"restarts"`
	Peers       int                  `json:"peers"` // how many of the other end it has connections with
	Connections tcpscale.Connections `json:"connections" metric:""`
	Totals      tcpscale.Totals      `json:"totals" metric:""`
	Rates       Rates                `json:"rates"`
	Sent        uint64               `json:"heartbeats_sent"`
	Received    uint64               `json:"heartbeats_received"`
	Missed      uint64               `json:"heartbeats_missed" metric:"weir_tcp_heartbeats_missed_total" help:"Heartbeats without an echo in time."`
	RTT50       float64              `json:"rtt_p50_ms"`
	RTT99       float64              `json:"rtt_p99_ms" metric:"weir_tcp_rtt_p99_seconds" unit:"ms" help:"99th percentile of the round trip of heartbeats."`
	Connect50   float64              `json:"connect_p50_ms"`
	Connect99   float64              `json:"connect_p99_ms"`
	Detected99  float64              `json:"detected_p99_ms"`
	Reconnect99 float64              `json:"reconnect_p99_ms"`
	CPU         float64              `json:"cpu_percent"` // of one core
	RSS         uint64               `json:"rss_bytes"`
	LimitsHit   []string             `json:"limits_hit,omitempty"`
	Plateau     *tcpscale.Plateau    `json:"plateau,omitempty"`
	Frozen      float64              `json:"frozen_s" metric:"weir_tcp_not_scheduled_seconds_total" help:"How long the processes of the reporter were not scheduled: beyond a second its times are void."` // how long it was not scheduled
	Void        string               `json:"void,omitempty"`                                                                                                                                               // why its times and rates are not the path's
	report      *tcpscale.Report     // for the matrix
}

// State returns the moment now; who has become silent since the last tick is so here too.
func (s *Service) State(now time.Time) State {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.age(now)
	return s.state(now)
}

func (s *Service) state(now time.Time) State {
	st := State{
		At: now, Started: s.started, Reports: s.reports, Reporters: len(s.reporters), MaxReporters: s.config.MaxReporters,
		SilentAfter: s.config.SilentAfter.Seconds(), Expected: s.config.Expect, Dropped: s.dropped,
		ServerRows: []Row{}, ClientRows: []Row{},
	}
	failures := map[string]uint64{}
	for _, r := range s.reporters {
		row := r.row(now)
		if r.report.Role == tcpscale.RoleServer {
			st.ServerRows = append(st.ServerRows, row)
			st.Servers.add(&row)
			st.Totals.Evicted += row.Totals.Evicted
			st.Totals.Refused += row.Totals.Refused
		} else {
			st.ClientRows = append(st.ClientRows, row)
			st.Clients.add(&row)
			st.addClient(&row)
			for kind, n := range r.report.Failures {
				failures[kind] += n
			}
		}
	}
	st.Connected = st.Clients.Established
	if st.Clients.Live == 0 {
		st.Connected = st.Servers.Established
	} else if st.Servers.Live > 0 {
		difference := st.Clients.Established - st.Servers.Established
		st.Difference = &difference
	}
	st.Failures = failureRows(failures)
	name(st.ServerRows)
	name(st.ClientRows)
	st.Matrix = matrixOf(st.ServerRows, st.ClientRows)
	return st
}

func (st *State) addClient(row *Row) {
	t := &st.Totals
	t.Opened += row.Totals.Opened
	t.Closed += row.Totals.Closed
	t.Lost += row.Totals.Lost
	t.Reconnected += row.Totals.Reconnected
	t.Failed += row.Totals.Failed
	r := &st.Rates
	r.Opened += row.Rates.Opened
	r.Closed += row.Rates.Closed
	r.Lost += row.Rates.Lost
	r.Reconnected += row.Rates.Reconnected
	r.Failed += row.Rates.Failed
}

func (e *End) add(row *Row) {
	switch row.State {
	case StateSilent:
		e.Silent++
		return
	case StateEnded:
		e.Ended++
		return
	}
	e.Live++
	e.Target += row.Connections.Target
	e.Established += row.Connections.Established
	e.Connecting += row.Connections.Connecting
	e.Unanswered += row.Connections.Unanswered
	e.Waiting += row.Connections.Waiting
	e.Draining += row.Connections.Draining
}

func (r *reporter) row(now time.Time) Row {
	p, l := &r.report, r.latencies
	row := Row{
		Key: r.key, ID: p.ID, Host: p.Host, Zone: p.Zone, Address: r.address, PID: p.PID, Run: p.Run, Workers: p.Workers,
		Original: r.original, State: r.state, Age: max(0, now.Sub(r.last).Round(100*time.Millisecond).Seconds()), Restarts: r.restarts,
		Connections: p.Connections, Totals: p.Totals, Rates: r.rates, Sent: p.Heartbeats.Sent, Received: p.Heartbeats.Received,
		Missed: p.Heartbeats.Missed, RTT50: l.rtt50, RTT99: l.rtt99, Connect50: l.connect50, Connect99: l.connect99,
		Detected99: l.detected99, Reconnect99: l.reconnect99, CPU: r.cpu, RSS: p.RSSBytes, LimitsHit: p.LimitsHit, Plateau: p.Plateau, Frozen: p.Frozen, Void: p.Void, report: p,
	}
	seen := map[string]struct{}{}
	for _, peer := range p.Peers {
		if peer.Connections > 0 {
			id := peer.ID
			if p.Role == tcpscale.RoleServer {
				id, _, _ = strings.Cut(id, "/") // RUN/CLIENT: the workers of a client are one
			}
			seen[id] = struct{}{}
		}
	}
	row.Peers = len(seen)
	return row
}

// name gives rows of one id names of their own, and sorts them by name.
func name(rows []Row) {
	count := map[string]int{}
	for i := range rows {
		count[rows[i].ID]++
	}
	for i := range rows {
		r := &rows[i]
		if r.Name = r.ID; count[r.ID] > 1 {
			r.Name = fmt.Sprintf("%s (%s, %s", r.ID, r.Host, r.Address)
			if r.PID != 0 {
				r.Name += fmt.Sprintf(", pid %d", r.PID)
			}
			r.Name += ")"
		}
	}
	slices.SortFunc(rows, func(a, b Row) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Key, b.Key)) })
}

// otherKinds is the kind of failures beyond those that are told apart.
const otherKinds = "others"

func failureRows(count map[string]uint64) []Failure {
	remedies := map[string]string{}
	for f := tcpscale.Failure(0); f.Remedy() != ""; f++ {
		remedies[f.String()] = f.Remedy()
	}
	rows := []Failure{}
	for kind, n := range count {
		if n > 0 {
			rows = append(rows, Failure{Kind: kind, Count: n, Remedy: remedies[kind]})
		}
	}
	slices.SortFunc(rows, func(a, b Failure) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Kind, b.Kind)) })
	if len(rows) > maxKinds { // reporters may have kinds of their own
		rest := Failure{Kind: otherKinds}
		for _, r := range rows[maxKinds-1:] {
			rest.Count += r.Count
		}
		rows = append(rows[:maxKinds-1], rest)
	}
	return rows
}
