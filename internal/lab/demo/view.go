package demo

import (
	"fmt"
	"io"
	"strings"
	"time"
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
}

// view draws the run: one block redrawn in place on a terminal, a line per second elsewhere.
type view struct {
	out      io.Writer
	terminal bool
	total    time.Duration
	drawn    int // lines to go back up
	rates    []float64
	events   []string
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
func (v *view) event(e Event) {
	line := fmt.Sprintf("%5.1f s  %s", e.At, e.Label)
	if e.Error != "" {
		line += ": " + e.Error
	}
	v.events = append(v.events, line)
	if !v.terminal {
		fmt.Fprintln(v.out, "event "+line)
	}
}

func (v *view) tick(t tick) {
	v.rates = append(v.rates, t.rate)
	if !v.terminal {
		fmt.Fprintf(v.out, "%5.1f s  %7.0f req/s  p50 %s  p99 %s  retransmissions %d  errors %d  sessions %s  forwarded %.0f/s\n",
			t.at, t.rate, ms(t.p50), ms(t.p99), t.retransmissions, t.errors, list(t.sessions), t.forwardRate)
		return
	}
	lines := []string{
		fmt.Sprintf("  %s  %4.0f of %.0f s", bar(t.at/v.total.Seconds(), 40), t.at, v.total.Seconds()),
		fmt.Sprintf("  rate             %9.0f req/s   %s", t.rate, sparkline(v.rates, 40)),
		fmt.Sprintf("  latency          p50 %s   p99 %s", ms(t.p50), ms(t.p99)),
		fmt.Sprintf("  requests         %9d", t.requests),
		fmt.Sprintf("  retransmissions  %9d   errors %d", t.retransmissions, t.errors),
		fmt.Sprintf("  sessions lost    %9d   handshakes after the first %d", t.lost, t.rehandshakes),
		fmt.Sprintf("  sessions by node %9s", list(t.sessions)),
		fmt.Sprintf("  forwarded        %9.0f records/s   by node %s", t.forwardRate, list(t.forwarded)),
		"",
	}
	for _, e := range v.events {
		lines = append(lines, "  "+e)
	}
	var b strings.Builder
	if v.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", v.drawn)
	}
	for _, l := range lines {
		b.WriteString("\r\x1b[K" + l + "\n")
	}
	v.drawn = len(lines)
	io.WriteString(v.out, b.String()) //nolint:errcheck // a closed terminal does not stop the run
}

func bar(part float64, width int) string {
	full := min(max(int(part*float64(width)), 0), width)
	return strings.Repeat("█", full) + strings.Repeat("░", width-full)
}

func ms(d time.Duration) string {
	if d == 0 {
		return "     – ms" // no answer in this second
	}
	return fmt.Sprintf("%6.2f ms", float64(d.Microseconds())/1000)
}

func list[T int | uint64](values []T) string {
	words := make([]string, len(values))
	for i, v := range values {
		words[i] = fmt.Sprint(v)
	}
	return strings.Join(words, " ")
}
