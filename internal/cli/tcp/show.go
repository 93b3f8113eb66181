package tcp

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weir-lb/weir/internal/tcpscale"
	"github.com/weir-lb/weir/internal/terminal"
	"github.com/weir-lb/weir/internal/testbed/measure"
)

// tcpProgress shows reports as rows of a table: on a terminal one row that is redrawn each second, elsewhere a new one
// every five seconds and at each change of the words.
type tcpProgress struct {
	live    *terminal.Live
	started time.Time
	rows    int
	last    time.Time
	before  tcpscale.Report // of the row before
	plateau string
	void    bool
	limited bool
}

func newTCPProgress(out io.Writer) *tcpProgress {
	return &tcpProgress{live: terminal.NewLive(out), started: time.Now()}
}

// tcpColumns fits 80 columns; the failures follow where there is room.
const tcpColumns = "%8s %11s %11s %9s %9s %8s %8s %8s"

func (p *tcpProgress) show(r tcpscale.Report) {
	if r.Plateau != nil && r.Plateau.Ceiling+r.Plateau.Kind != p.plateau { // its counts go on: reported once
		p.plateau = r.Plateau.Ceiling + r.Plateau.Kind
		p.last = time.Time{}
		p.say("%s", r.Plateau.Text)
	}
	if r.RateLimit > 0 && !p.limited {
		p.limited = true
		p.say("rate limit: %s", rateLimitWords(&r))
	}
	if r.Void != "" && !p.void { // reported once
		p.void = true
		p.say("VOID: %s: times and rates are not the path's", r.Void)
	}
	now := time.Now()
	if !p.live.IsTerminal() && now.Sub(p.last) < 5*time.Second {
		return
	}
	p.last = now
	rtt := "-"
	if i := r.Interval; i != nil && i.Count > 0 { // of the last second
		rtt = fmt.Sprintf("%.1fms", i.P99)
	}
	began := p.started
	if !p.before.At.IsZero() {
		began = p.before.At
	}
	since := func(total, before uint64) float64 { // the row before, per second: rows may be seconds apart
		return float64(total-min(before, total)) / max(r.At.Sub(began).Seconds(), 1)
	}
	heading := fmt.Sprintf(tcpColumns, "SECOND", "ESTABLISHED", "CONNECTING", "OPENED/S", "FAILED/S", "LOST", "MISSED", "RTT p99")
	row := fmt.Sprintf(tcpColumns, fmt.Sprintf("%.0f", now.Sub(p.started).Seconds()), fmt.Sprint(r.Connections.Established), fmt.Sprint(r.Connections.Connecting),
		fmt.Sprintf("%.0f", since(r.Totals.Opened, p.before.Totals.Opened)), fmt.Sprintf("%.0f", since(r.Totals.Failed, p.before.Totals.Failed)), fmt.Sprint(r.Totals.Lost), fmt.Sprint(r.Heartbeats.Missed), rtt)
	failures := failureWords(r.Failures)
	switch {
	case p.live.IsTerminal() && failures != "":
		p.live.Show(heading, row, "failures: "+failures)
	case p.live.IsTerminal():
		p.live.Show(heading, row)
	default:
		if p.rows%20 == 0 {
			fmt.Fprintln(p.live, heading+"  FAILURES")
		}
		fmt.Fprintln(p.live, row+"  "+failures)
	}
	p.rows++
	p.before = r
}

// say prints a line between the rows.
func (p *tcpProgress) say(format string, args ...any) {
	fmt.Fprintf(p.live, format+"\n", args...)
}

func (p *tcpProgress) end() { p.live.Keep() }

func rateLimitWords(r *tcpscale.Report) string {
	return fmt.Sprintf("about %.0f new connections a second came through evenly while other SYNs went unanswered: possibly a limit of a firewall, a NAT or a balancer on new connections per second", r.RateLimit)
}

// unsentWords says how many heartbeats were due while this end stood still.
func unsentWords(r *tcpscale.Report) string {
	if r.Heartbeats.Unsent == 0 {
		return ""
	}
	return fmt.Sprintf(", never sent %d (counted as late)", r.Heartbeats.Unsent)
}

func failureWords(failures map[string]uint64) string {
	kinds := slices.SortedFunc(maps.Keys(failures), func(a, b string) int { return cmp.Or(cmp.Compare(failures[b], failures[a]), cmp.Compare(a, b)) })
	var words []string
	for _, kind := range kinds {
		words = append(words, fmt.Sprintf("%s %d", kind, failures[kind]))
	}
	return strings.Join(words, ", ")
}

// writeTCPReport prints a run's end for people.
func writeTCPReport(w io.Writer, r *tcpscale.Report) error {
	t := terminal.NewTable(w, false)
	row := func(name, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	if r.Void != "" {
		row("VOID", "%s: times and rates are not the path's", r.Void)
	}
	if r.Role == tcpscale.RoleClient {
		row("connections", "%d of %d established, %d workers", r.Connections.Established, r.Connections.Target, r.Workers)
	} else {
		row("connections", "%d established, %d that have said nothing, %d workers", r.Connections.Established, r.Connections.Unanswered, r.Workers)
	}
	if !r.FullAt.IsZero() && !r.BeganAt.IsZero() {
		took := r.FullAt.Sub(r.BeganAt)
		row("time to establish", "%.2f s, %.0f/s", took.Seconds(), float64(r.Connections.Target)/max(took.Seconds(), 1e-3))
	}
	row("totals", "opened %d, closed %d, lost %d, reconnected %d, evicted %d", r.Totals.Opened, r.Totals.Closed, r.Totals.Lost, r.Totals.Reconnected, r.Totals.Evicted)
	row("heartbeats", "sent %d, received %d, missed %d%s", r.Heartbeats.Sent, r.Heartbeats.Received, r.Heartbeats.Missed, unsentWords(r))
	for _, l := range []struct {
		name    string
		latency *measure.Latency
	}{{"connect", r.Connect}, {"heartbeat's round trip", r.Heartbeats.RTT}, {"lost, found after", r.Detected}, {"back after", r.Reconnect}} {
		if l.latency != nil && l.latency.Count() > 0 {
			var words []string
			for _, p := range l.latency.Curve() {
				words = append(words, fmt.Sprintf("%s %.1f", p.Name, measure.Millis(p.D)))
			}
			row(l.name+", ms", "%s", strings.Join(words, ", "))
		}
	}
	if n := r.Connections.Established; n > 0 {
		row("user memory", "%.0f B a connection, tables %.0f B", r.BytesPerConnection, float64(r.TableBytes)/float64(n))
	}
	row("processor", "%.2f s", r.CPUSeconds)
	if r.Command != "" {
		row("command", "%s", r.Command)
		row("load average", "%s before, %s after", r.LoadBefore, r.LoadAfter)
	}
	if c := r.Reconciled; c != nil {
		row("both ends", "client %d, server %d %s", c.Client, c.Server, c.Finding)
	}
	if p := r.Replicas; p != nil {
		row("whole replicas", "%d with %d, of %d that want %d each", p.Whole, p.Held, p.Replicas, p.Connections)
	}
	if p := r.Plateau; p != nil {
		row("plateau", "%d for %.0f s: %s", p.Connections, p.Since, p.Ceiling)
		row("", "%s", p.Because)
	}
	if r.RateLimit > 0 {
		row("rate limit", "%s", rateLimitWords(r))
	}
	for _, limit := range r.LimitsHit {
		row("limit hit", "%s", limit)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	writePeers(w, r)
	writeFailures(w, r)
	return nil
}

const shownPeers = 20

func writePeers(w io.Writer, r *tcpscale.Report) {
	if len(r.Peers) == 0 {
		return
	}
	name := "SERVER"
	if r.Role == tcpscale.RoleServer {
		name = "CLIENT"
	}
	t := terminal.NewTable(w, false)
	fmt.Fprintf(t, "\n%s\tZONE\tCONNECTIONS\tSHARE\n", name)
	for _, p := range r.Peers[:min(len(r.Peers), shownPeers)] {
		fmt.Fprintf(t, "%s\t%s\t%d\t%.1f%%\n", p.ID, p.Zone, p.Connections, 100*float64(p.Connections)/float64(max(r.Connections.Established, 1)))
	}
	if more := len(r.Peers) - shownPeers; more > 0 {
		fmt.Fprintf(t, "and %d more (--json)\t\t\t\n", more)
	}
	t.Flush()
}

func writeFailures(w io.Writer, r *tcpscale.Report) {
	if len(r.Failures) == 0 {
		return
	}
	fmt.Fprintln(w, "\nFAILURES")
	for kind := tcpscale.Refused; kind <= tcpscale.OtherError; kind++ {
		if n := r.Failures[kind.String()]; n > 0 {
			fmt.Fprintf(w, "%s %d: %s\n", kind, n, kind.Remedy())
		}
	}
	for i, s := range r.Samples {
		if i == 5 {
			fmt.Fprintf(w, "and %d more samples (--json)\n", len(r.Samples)-i)
			break
		}
		fmt.Fprintf(w, "  %s  %s -> %s  %s after %.0f ms %s\n", s.At.Format("15:04:05.000"), cmp.Or(s.Local, "-"), s.Remote, s.Kind, s.AfterMS, s.Error)
	}
}
