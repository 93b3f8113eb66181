package demo

import (
	"fmt"
	"strings"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/terminal"
)

// tick is what one second of a run looked like.
type tick struct {
	at              float64 // seconds since the first request
	rate            float64 // answered requests per second
	p50, p99        time.Duration
	retransmissions uint64 // since the start, as all below
	errors, lost    uint64
	rehandshakes    uint64
	requests        uint64
	sessions        []int    // per node
	forwarded       []uint64 // records per node sent on to their owner
	forwardRate     float64  // forwarded records per second, all nodes
	clients         []int    // that the balancer sends to each node
	drained         int      // the node that gets no new clients; 0: none yet

	// Of the clients without connection ids, since the start.
	plainLost, plainMade, plainRequests uint64
}

// view draws the run: one block redrawn in place on a terminal, a line per second elsewhere.
type view struct {
	live   *terminal.Live
	total  time.Duration
	rates  []float64
	events []string
	last   tick
}

const blocks = "▁▂▃▄▅▆▇█"

func sparkline(values []float64, width int) string {
	if len(values) > width {
		values = values[len(values)-width:]
	}
	top := 0.0
	for _, v := range values {
		top = max(top, v)
	}
	var b strings.Builder
	for _, v := range values {
		i := 0
		if top > 0 {
			i = int(v / top * 7.99)
		}
		b.WriteRune([]rune(blocks)[i])
	}
	return b.String()
}

// event shows a disturbance at once: above the block it would scroll away, so it joins it.
func (v *view) event(e v1.DemoEvent) {
	line := fmt.Sprintf("%5.1f s  %s", e.At, e.Label)
	if e.Error != "" {
		line += ": " + e.Error
	}
	v.events = append(v.events, line)
	if !v.live.IsTerminal() {
		fmt.Fprintln(v.live, "event "+line)
	} else {
		v.draw()
	}
}

func (v *view) tick(t tick) {
	v.rates = append(v.rates, t.rate)
	v.last = t
	if !v.live.IsTerminal() {
		fmt.Fprintf(v.live, "%5.1f s  %7.0f req/s  p50 %s ms  p99 %s ms  lost %d, without CIDs %d  retransmissions %d  errors %d  sessions %s  forwarded %.0f/s\n",
			t.at, t.rate, ms(t.p50), ms(t.p99), t.lost, t.plainLost, t.retransmissions, t.errors, byNode(t.sessions, t.drained), t.forwardRate)
		return
	}
	v.draw()
}

// draw shows the last tick.
func (v *view) draw() {
	t := v.last
	lines := []string{
		fmt.Sprintf("  %s %3.0f of %.0f s", bar(t.at/v.total.Seconds(), 24), t.at, v.total.Seconds()),
		fmt.Sprintf("  requests/s   %8.0f  %s", t.rate, sparkline(v.rates, 40)),
		fmt.Sprintf("  ms           p50 %s  p99 %s", ms(t.p50), ms(t.p99)),
		fmt.Sprintf("  lost         %8d sessions with IDs", t.lost),
		fmt.Sprintf("               %8d of %d without", t.plainLost, t.plainMade),
		fmt.Sprintf("  errors       %8d  sent again %d", t.errors, t.retransmissions),
		fmt.Sprintf("  forwarded    %8.0f records/s", t.forwardRate),
		fmt.Sprintf("  sessions     %s", byNode(t.sessions, t.drained)),
		fmt.Sprintf("  clients      %s", byNode(t.clients, t.drained)),
	}
	if len(v.events) > 0 {
		lines = append(lines, "")
	}
	for _, e := range v.events {
		lines = append(lines, "  "+e)
	}
	v.live.Show(lines...)
}

// end shows what was lost after the last second, too.
func (v *view) end(r *Result) {
	if v.live.IsTerminal() {
		v.last.lost, v.last.plainLost, v.last.plainMade = r.Lost, r.Plain.Lost, r.Plain.Established
		v.draw()
	}
}

func bar(part float64, width int) string {
	full := min(max(int(part*float64(width)), 0), width)
	return strings.Repeat("█", full) + strings.Repeat("░", width-full)
}

func ms(d time.Duration) string {
	if d == 0 {
		return "     –" // no answer in this second
	}
	return fmt.Sprintf("%6.2f", float64(d.Microseconds())/1000)
}

// byNode is a number for each node, with a mark at the drained one.
func byNode(values []int, drained int) string {
	words := make([]string, len(values))
	for i, v := range values {
		words[i] = fmt.Sprint(v)
		if i+1 == drained {
			words[i] += " (drained)"
		}
	}
	return strings.Join(words, " ")
}
