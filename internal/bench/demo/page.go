package demo

import (
	"fmt"
	"math"
	"time"

	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/plot"
)

// report is the page of the run.
func (r *Result) report(when time.Time, method string) plot.Report {
	page := plot.Report{
		Title: "weir demo: sessions outlive their path", When: when, OK: r.OK, Verdict: r.Verdict, Method: method,
		Lead: fmt.Sprintf("%d clients with DTLS connection IDs and %d without talk to %d servers through one load balancer. "+
			"%d events disturb both kinds at the same moments. A session with a connection ID goes on where its path changes; a session without one is lost.",
			r.Clients, r.Plain.Clients, r.Nodes, len(r.Events)),
		Picture: r.topology(),
		Facts: []plot.Fact{
			{Name: "sessions lost with connection IDs", Value: fmt.Sprintf("%d of %d", r.Lost, r.Established)},
			{Name: "sessions lost without", Value: fmt.Sprintf("%d of %d", r.Plain.Lost, r.Plain.Established)},
			{Name: "new handshakes with / without", Value: fmt.Sprintf("%d / %d", r.Rehandshakes, r.Plain.Rehandshakes)},
			{Name: "requests answered", Value: plot.Whole(r.Requests)},
			{Name: "requests/s", Value: plot.Whole(uint64(r.Rate))},
			{Name: "p50", Value: fmt.Sprintf("%.2f ms", r.P50)},
			{Name: "p99", Value: fmt.Sprintf("%.2f ms", r.P99)},
			{Name: "longest", Value: fmt.Sprintf("%.0f ms", r.Max)},
			{Name: "records forwarded", Value: plot.Whole(r.Forwarded)},
		},
		Figures: r.figures(),
	}
	for _, e := range r.Events {
		page.Events = append(page.Events, plot.Event{X: e.At, Label: fmt.Sprintf("%s. Lost: %d sessions with connection IDs, %d without", e.Label, e.Lost, e.LostPlain)})
	}
	sessions := plot.Table{Title: "Sessions by node at the end", Header: []string{"node", "sessions held"}}
	for i, s := range r.Sessions {
		name := fmt.Sprint(i + 1)
		if i+1 == r.Drained {
			name += " (drained: keeps its sessions, gets no new clients)"
		}
		sessions.Rows = append(sessions.Rows, []string{name, fmt.Sprint(s)})
	}
	page.Tables = []plot.Table{sessions}
	return page
}

const drawnNodes = 4 // of more, the last box stands for the rest

func (r *Result) topology() plot.Topology {
	t := plot.Topology{
		Title: "Clients, balancer and nodes",
		Clients: []plot.Box{
			{Name: fmt.Sprintf("%d clients", r.Clients), Detail: "with connection IDs"},
			{Name: fmt.Sprintf("%d clients", r.Plain.Clients), Detail: "without", Muted: true},
		},
		Via:   plot.Box{Name: "weir nat", Detail: "clear, rebalance, drain"},
		Among: "nodes forward a record to the owner of its connection ID",
	}
	for i := range min(r.Nodes, drawnNodes) {
		t.Nodes = append(t.Nodes, plot.Box{Name: fmt.Sprintf("node %d", i+1), Detail: "DTLS, CoAP"})
	}
	if more := r.Nodes - drawnNodes; more > 0 {
		t.Nodes[drawnNodes-1] = plot.Box{Name: fmt.Sprintf("%d more nodes", more+1), Detail: "DTLS, CoAP"}
	}
	return t
}

// series are the ticks as lines.
type series struct{ x, lost, plainLost, rate, plainRate, p50, p99, forwarded, repeated []float64 }

func (r *Result) series() (s series) {
	var before tick
	for _, t := range r.ticks {
		s.x = append(s.x, t.at)
		s.lost, s.plainLost = append(s.lost, float64(t.lost)), append(s.plainLost, float64(t.plainLost))
		s.rate = append(s.rate, t.rate)
		s.plainRate = append(s.plainRate, float64(t.plainRequests-before.plainRequests)/max(t.at-before.at, 0.001))
		s.p50, s.p99 = append(s.p50, measure.Millis(t.p50)), append(s.p99, measure.Millis(t.p99))
		s.forwarded, s.repeated = append(s.forwarded, t.forwardRate), append(s.repeated, float64(t.retransmissions-before.retransmissions))
		before = t
	}
	s.rate, s.plainRate = r.relative(s.x, s.rate), r.relative(s.x, s.plainRate)
	if last := len(s.x) - 1; last >= 0 { // with what was given up after the last second
		s.lost[last], s.plainLost[last] = float64(r.Lost), float64(r.Plain.Lost)
	}
	return s
}

// relative gives values in percent of their mean before the first event.
func (r *Result) relative(x, values []float64) []float64 {
	sum, n := 0.0, 0.0
	for i, v := range values {
		if len(r.Events) > 0 && x[i] <= r.Events[0].At {
			sum, n = sum+v, n+1
		}
	}
	out := make([]float64, len(values))
	for i, v := range values {
		out[i] = math.NaN()
		if sum > 0 {
			out[i] = 100 * v / (sum / n)
		}
	}
	return out
}

func (r *Result) figures() []plot.Figure {
	s := r.series()
	events := make([]plot.Event, len(r.Events))
	for i, e := range r.Events {
		events[i] = plot.Event{X: e.At, Label: e.Label, Short: e.Kind}
	}
	const with, without = "with connection IDs", "without"
	lost := plot.Chart{
		Title: "Sessions lost", YLabel: "since the start", Events: events, Marks: r.marks(),
		Series: []plot.Series{{Name: with, X: s.x, Y: s.lost}, {Name: without, X: s.x, Y: s.plainLost, Muted: true}},
		Note: fmt.Sprintf("A client without a connection ID waits up to %.1f s for an answer, then gives its session up and makes a new one. A drain alone changes no path.",
			plainGivesUp.Seconds()),
	}
	nodes := plot.Chart{
		Title: "Clients by node", YLabel: "clients that the balancer sends there", Events: events,
		Note: "A rebalance changes the node of two clients in three. After a drain the node keeps its clients until their addresses change: then all go to other nodes, which forward the records of its sessions to it.",
	}
	for i := range r.Nodes {
		line := plot.Series{Name: fmt.Sprintf("node %d", i+1), X: s.x, Steps: true}
		for _, t := range r.ticks {
			line.Y = append(line.Y, float64(t.clients[i]))
		}
		nodes.Series = append(nodes.Series, line)
	}
	return []plot.Figure{
		lost,
		plot.Chart{
			Title: "Requests answered", YLabel: "% of before event 1", Events: events,
			Series: []plot.Series{{Name: with, X: s.x, Y: s.rate, Steps: true}, {Name: without, X: s.x, Y: s.plainRate, Muted: true, Steps: true}},
			Note:   "Each kind of clients compared with its own rate before the first event. With connection IDs the nodes forward records to each other from then on, which costs them processor time.",
		},
		plot.Chart{
			Title: "Round-trip time", YLabel: "ms, logarithmic", Events: events, Log: true,
			Series: []plot.Series{{Name: "p50", X: s.x, Y: s.p50, Steps: true}, {Name: "p99", X: s.x, Y: s.p99, Steps: true}},
			Note:   "Of clients with connection IDs, by the second.",
		},
		r.curve(),
		plot.Chart{
			Title: "Records forwarded", YLabel: "records/s", Events: events, Series: []plot.Series{{Name: "forwarded", X: s.x, Y: s.forwarded, Steps: true}},
			Note: "Each of these reached the node that owns its session through another node, by the connection ID in the record.",
		},
		nodes,
		plot.Chart{
			Title: "Requests sent again", YLabel: "per second", Events: events, Series: []plot.Series{{Name: "sent again", X: s.x, Y: s.repeated, Steps: true}},
			Note: "A clear also loses the answers that are under way. Their clients, with connection IDs, repeat their requests after 2 to 3 s (RFC 7252) in the same session.",
		},
	}
}

// curve is the distribution of round trips over the whole run.
func (r *Result) curve() plot.Figure {
	x, y := r.rtt.CurvePoints()
	return plot.Percentiles("Round-trip time, percentiles of the run", []plot.Series{{Name: "with connection IDs", X: x, Y: y}})
}

// marks says at each step of the grey line how many sessions the event has cost.
func (r *Result) marks() []plot.Mark {
	var marks []plot.Mark
	sum := uint64(0)
	for i, e := range r.Events {
		sum += e.LostPlain
		next := r.Seconds
		if i+1 < len(r.Events) {
			next = r.Events[i+1].At
		}
		if e.LostPlain > 0 {
			marks = append(marks, plot.Mark{X: (max(e.At, next-1) + next) / 2, Y: float64(sum), Text: fmt.Sprintf("+%d", e.LostPlain)})
		}
	}
	return marks
}
