package stats

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/tcpscale"
)

// States of a reporter.
const (
	StateLive   = "live"
	StateSilent = "silent" // has not reported for too long; counts in no sum
	StateEnded  = "ended"  // its final report has come; counts in no sum of connections
)

// What the service answers are public types.
type (
	State   = v1.TCPStats
	End     = v1.TCPEnd // the sum of the servers, or of the clients
	Failure = v1.TCPFailureCount
	Rates   = v1.TCPReporterRates
	Dropped = v1.TCPDropped
	Matrix  = v1.TCPMatrix
	History = v1.TCPHistory
)

// row is one reporter with its last report, for the matrix.
type row struct {
	v1.TCPReporter
	report *tcpscale.Report
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
	}
	var servers, clients []row
	failures := map[string]uint64{}
	for _, r := range s.reporters {
		row := r.row(now)
		if r.report.Role == tcpscale.RoleServer {
			servers = append(servers, row)
			addRow(&st.Servers, &row)
			st.Totals.Evicted += row.Totals.Evicted
			st.Totals.Refused += row.Totals.Refused
		} else {
			clients = append(clients, row)
			addRow(&st.Clients, &row)
			addClient(&st, &row)
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
	st.ServerRows, st.ClientRows = name(servers), name(clients)
	st.Matrix = matrixOf(servers, clients)
	return st
}

func addClient(st *State, row *row) {
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

func addRow(e *End, row *row) {
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

func (r *reporter) row(now time.Time) row {
	p, l := &r.report, r.latencies
	row := row{report: p, TCPReporter: v1.TCPReporter{
		Key: r.key, ID: p.ID, Host: p.Host, Zone: p.Zone, Address: r.address, PID: p.PID, Run: p.Run, Workers: p.Workers,
		Original: r.original, State: r.state, Age: max(0, now.Sub(r.last).Round(100*time.Millisecond).Seconds()), Restarts: r.restarts,
		Connections: p.Connections, Totals: p.Totals, Rates: r.rates, Sent: p.Heartbeats.Sent, Received: p.Heartbeats.Received,
		Missed: p.Heartbeats.Missed, RTT50: l.rtt50, RTT99: l.rtt99, Connect50: l.connect50, Connect99: l.connect99,
		Detected99: l.detected99, Reconnect99: l.reconnect99, CPU: r.cpu, RSS: p.RSSBytes, LimitsHit: p.LimitsHit, Plateau: p.Plateau, Frozen: p.Frozen, Void: p.Void,
	}}
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

// name gives rows of one id names of their own, sorts them by name, and returns them as they are shown.
func name(rows []row) []v1.TCPReporter {
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
	slices.SortFunc(rows, func(a, b row) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Key, b.Key)) })
	shown := make([]v1.TCPReporter, len(rows))
	for i := range rows {
		shown[i] = rows[i].TCPReporter
	}
	return shown
}

// otherKinds is the kind of failures beyond those that are distinguished.
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
