package kubedemo

import (
	"fmt"
	"io"
	"net/netip"
	"time"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/terminal"
)

// Result is what became of a run.
type Result struct {
	Clients  int // DTLS sessions, and as many TURN allocations
	L4, TURN netip.AddrPort
	Prepared float64 // seconds until the traffic began
	Seconds  float64 // of traffic
	Steered  uint64  // packets, by connection id
	Sessions v1.CoAPBenchStats
	Calls    Calls
	Events   []Event
	Failures []string
	OK       bool
	Verdict  string

	ticks []tick
}

// Calls is what became of the TURN allocations.
type Calls struct {
	Alive          int    // at the end
	Up, Down, Lost uint64 // datagrams
	Idle           int    // times that an allocation carried nothing in a round
}

// Event is one, in seconds since the traffic began.
type Event struct {
	At, Took     float64
	Label, Short string
}

// tick is a point of the plots.
type tick struct {
	at                        float64
	requests, datagrams       float64 // per second
	lostSessions, lostPackets uint64  // since the start
	rehandshakes, rebinds     uint64
	p50, p99                  float64 // ms

	answered, arrived uint64 // since the start, at the times below
	answeredAt        float64
	arrivedAt         time.Time
}

// tick adds a point. Its rates are those of the last intervals for which the clients have reported.
func (r *Result) tick(at float64, s *report, c callStats) tick {
	t := tick{
		at: at, answered: s.Stats.Requests, answeredAt: s.At, arrived: c.up + c.down, arrivedAt: c.at,
		lostSessions: s.Stats.LostSessions, lostPackets: c.lost, rehandshakes: s.Stats.Rehandshakes, rebinds: s.Stats.Rebinds, p50: s.P50, p99: s.P99,
	}
	if n := len(r.ticks); n > 0 {
		before := &r.ticks[n-1]
		t.requests, t.datagrams = before.requests, before.datagrams
		if span := t.answeredAt - before.answeredAt; span > 0 {
			t.requests = float64(t.answered-before.answered) / span
		}
		if span := t.arrivedAt.Sub(before.arrivedAt).Seconds(); span > 0 && !before.arrivedAt.IsZero() {
			t.datagrams = float64(t.arrived-before.arrived) / span
		}
	}
	r.ticks = append(r.ticks, t)
	return t
}

// judge says what the run proved. Each condition can fail on its own.
func (r *Result) judge(events int) {
	fail := func(format string, args ...any) { r.Failures = append(r.Failures, fmt.Sprintf(format, args...)) }
	s := &r.Sessions
	if s.LostSessions+s.Lost > 0 {
		fail("%d DTLS sessions and %d requests lost", s.LostSessions, s.Lost)
	}
	if s.Rehandshakes+s.HandshakeErrors > 0 {
		fail("%d new handshakes, %d failed", s.Rehandshakes, s.HandshakeErrors)
	}
	if s.Failed+s.Wrong > 0 {
		fail("%d requests answered with an error", s.Failed+s.Wrong)
	}
	if s.Requests == 0 || s.Rebinds == 0 {
		fail("%d requests answered, %d changes of a port: nothing was tried", s.Requests, s.Rebinds)
	}
	if r.Steered == 0 {
		fail("no packet was steered by its connection id")
	}
	if lost := r.Clients - r.Calls.Alive; lost > 0 {
		fail("%d TURN allocations lost", lost)
	}
	if r.Calls.Lost > 0 || r.Calls.Idle > 0 {
		fail("%d TURN datagrams lost, %d times none of an allocation", r.Calls.Lost, r.Calls.Idle)
	}
	if r.Calls.Up == 0 || r.Calls.Down == 0 {
		fail("no TURN datagram arrived")
	}
	if len(r.Events) != events {
		fail("%d of %d events happened", len(r.Events), events)
	}
	r.OK = len(r.Failures) == 0
	r.Verdict = fmt.Sprintf("Lost: 0 of %d DTLS sessions, 0 of %d TURN allocations, 0 datagrams of calls.", r.Clients, r.Clients)
	if !r.OK {
		r.Verdict = "Not proved: " + r.Failures[0] + "."
	}
}

// rows are the table of what was lost.
func (r *Result) rows() [][]string {
	s := &r.Sessions
	return [][]string{
		{"through", "what", "count", "lost"},
		{"L4 Gateway", "DTLS sessions", fmt.Sprint(r.Clients), fmt.Sprint(s.LostSessions)},
		{"", "requests", fmt.Sprint(s.Requests), fmt.Sprint(s.Lost + s.Failed)},
		{"", "new handshakes", fmt.Sprint(s.Rehandshakes), ""},
		{"", "changed ports", fmt.Sprint(s.Rebinds), ""},
		{"", "packets by CID", fmt.Sprint(r.Steered), ""},
		{"TURN Gateway", "allocations", fmt.Sprint(r.Clients), fmt.Sprint(r.Clients - r.Calls.Alive)},
		{"", "datagrams up", fmt.Sprint(r.Calls.Up), ""},
		{"", "datagrams down", fmt.Sprint(r.Calls.Down), fmt.Sprint(r.Calls.Lost)},
	}
}

// WriteText writes the table of what was lost, and the verdict.
func (r *Result) WriteText(out io.Writer) error {
	fmt.Fprintln(out)
	for _, row := range r.rows() {
		fmt.Fprintf(out, "  %-13s %-15s %9s %6s\n", row[0], row[1], row[2], row[3])
	}
	if err := terminal.Prose(out, "\n"+r.Verdict); err != nil {
		return err
	}
	for _, f := range r.Failures {
		fmt.Fprintln(out, "  not so: "+f)
	}
	return nil
}

// WriteHTML writes the page of the run.
func (r *Result) WriteHTML(w io.Writer, method string) error {
	return r.page(time.Now(), method).WriteHTML(w)
}
