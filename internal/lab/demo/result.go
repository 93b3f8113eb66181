package demo

import (
	"fmt"
	"math"
	"time"

	"github.com/weir-lb/weir/internal/lab/measure"
	"github.com/weir-lb/weir/internal/lab/plot"
)

// Result is the end of a run and its JSON form.
type Result struct {
	OK              bool     `json:"ok"`
	Verdict         string   `json:"verdict"`
	Requests        uint64   `json:"requests"`     // answered
	Lost            uint64   `json:"lost"`         // sessions given up by their client
	Rehandshakes    uint64   `json:"rehandshakes"` // handshakes after a client's first
	Errors          uint64   `json:"errors"`       // requests failed or unanswered
	Retransmissions uint64   `json:"retransmissions"`
	Rate            float64  `json:"requests_per_s"`
	P50             float64  `json:"p50_ms"`
	P99             float64  `json:"p99_ms"`
	Max             float64  `json:"max_ms"`
	Forwarded       uint64   `json:"forwarded"` // records that reached their owner through another node
	Sessions        []int    `json:"sessions"`  // per node, at the end
	Clients         int      `json:"clients"`
	Nodes           int      `json:"nodes"`
	Seconds         float64  `json:"seconds"`
	Seed            uint64   `json:"seed"`
	Events          []Event  `json:"events"`
	Report          string   `json:"report,omitempty"`   // where the caller put the page
	Failures        []string `json:"failures,omitempty"` // why OK is false

	asked time.Duration
	ticks []tick
	rtt   *measure.Latency
}

// judge says what the run proved. Each condition can fail on its own.
func (r *Result) judge() {
	fail := func(format string, args ...any) { r.Failures = append(r.Failures, fmt.Sprintf(format, args...)) }
	if r.Lost > 0 {
		fail("%d sessions lost", r.Lost)
	}
	if r.Rehandshakes > 0 {
		fail("%d handshakes after the first", r.Rehandshakes)
	}
	if r.Errors > 0 {
		fail("%d requests failed", r.Errors)
	}
	if r.Requests == 0 {
		fail("no request was answered")
	}
	if r.Nodes > 1 && r.Forwarded == 0 {
		fail("no record reached a node that does not own it, so nothing was tried")
	}
	for _, e := range r.Events {
		if e.Error != "" {
			fail("%s: %s", e.Label, e.Error)
		}
	}
	r.OK = len(r.Failures) == 0
	clears := 0
	for _, e := range r.Events {
		if e.Kind == string(natClear) || e.Kind == string(rebalance) {
			clears++
		}
	}
	r.Verdict = fmt.Sprintf("Sessions lost: %d, handshakes after the first: %d, with %d clients whose path changed %d times and one node drained.",
		r.Lost, r.Rehandshakes, r.Clients, clears)
	if !r.OK {
		r.Verdict = "Not proved: " + r.Failures[0] + "."
	}
}

// report is the page of the run.
func (r *Result) report(when time.Time, method string) plot.Report {
	page := plot.Report{
		Title: "weir demo: sessions outlive their path", When: when, OK: r.OK, Verdict: r.Verdict, Method: method,
		Facts: []plot.Fact{
			{Name: "sessions lost", Value: fmt.Sprint(r.Lost)},
			{Name: "handshakes after the first", Value: fmt.Sprint(r.Rehandshakes)},
			{Name: "requests answered", Value: grouped(r.Requests)},
			{Name: "requests/s", Value: grouped(uint64(r.Rate))},
			{Name: "p50", Value: fmt.Sprintf("%.2f ms", r.P50)},
			{Name: "p99", Value: fmt.Sprintf("%.2f ms", r.P99)},
			{Name: "records forwarded", Value: grouped(r.Forwarded)},
		},
	}
	for _, e := range r.Events {
		page.Events = append(page.Events, plot.Event{X: e.At, Label: e.Label})
	}
	n := len(r.ticks)
	x, rate, p50, p99, forwarded, again := make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)
	var before uint64
	for i, t := range r.ticks {
		x[i], rate[i], forwarded[i] = t.at, t.rate, t.forwardRate
		p50[i], p99[i] = math.NaN(), math.NaN()
		if t.p99 > 0 {
			p50[i], p99[i] = measure.Millis(t.p50), measure.Millis(t.p99)
		}
		again[i] = float64(t.retransmissions - before)
		before = t.retransmissions
	}
	page.Figures = []plot.Figure{
		plot.Chart{Title: "Requests answered", YLabel: "requests/s", Events: page.Events, Series: []plot.Series{{Name: "requests/s", X: x, Y: rate}}},
		plot.Chart{Title: "Round-trip time", YLabel: "ms", Events: page.Events, Series: []plot.Series{{Name: "p50", X: x, Y: p50}, {Name: "p99", X: x, Y: p99}}},
		plot.Chart{
			Title: "Records on the wrong node", YLabel: "records/s", Events: page.Events, Series: []plot.Series{{Name: "forwarded", X: x, Y: forwarded}},
			Note: "Each of these reached the node that owns its session through another node, by the connection ID in the record.",
		},
		plot.Chart{Title: "Retransmissions", YLabel: "requests sent again per second", Events: page.Events, Series: []plot.Series{{Name: "retransmissions", X: x, Y: again}}},
	}
	sessions := plot.Table{Title: "Sessions by node at the end", Header: []string{"node", "sessions"}}
	for i, s := range r.Sessions {
		sessions.Rows = append(sessions.Rows, []string{fmt.Sprint(i + 1), fmt.Sprint(s)})
	}
	page.Tables = []plot.Table{sessions}
	return page
}

// grouped writes n with a comma at each thousand.
func grouped(n uint64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
