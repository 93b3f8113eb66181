package scalebench

import (
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-lb/weir/internal/terminal"
	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/plot"
)

func processors() string { return strconv.Itoa(runtime.NumCPU()) }

// rows are the figures, by name; those of other variants on another day stand in docs/tcp-compare.md.
func (r *Result) rows() [][2]string {
	rows := [][2]string{
		{"connections", fmt.Sprintf("%d of %d, held %.0f s", r.Held, r.Connections, r.HoldSeconds)},
		{"time to establish", fmt.Sprintf("%.2f s, %.0f/s", r.EstablishSeconds, float64(r.Connections)/max(r.EstablishSeconds, 1e-3))},
		{"lost", fmt.Sprint(r.Lost)},
		{"processes", fmt.Sprintf("%d servers, %d clients", r.Server.Workers, r.Client.Workers)},
		{"kernel memory", r.kernelMemory()},
		{"user memory, server", memoryText("%.0f B a connection, of which tables %.0f B", r.ServerBytes, r.ServerTable)},
		{"user memory, client", memoryText("%.0f B a connection, of which tables %.0f B", r.ClientBytes, r.ClientTable)},
		{"processor in the hold", r.processor()},
		{"heartbeats", fmt.Sprintf("sent %d, answered %d, missed %d, due and never sent %d", r.Client.Heartbeats.Sent, r.Client.Heartbeats.Received, r.Client.Heartbeats.Missed, r.Client.Heartbeats.Unsent)},
	}
	for _, l := range []struct {
		name    string
		latency *measure.Latency
	}{{"connect", r.Client.Connect}, {"heartbeat's round trip", r.Client.Heartbeats.RTT}} {
		if l.latency != nil && l.latency.Count() > 0 {
			var words []string
			for _, p := range l.latency.Curve() {
				words = append(words, fmt.Sprintf("%s %.2f", p.Name, measure.Millis(p.D)))
			}
			rows = append(rows, [2]string{l.name + ", ms", strings.Join(words, ", ")})
		}
	}
	rows = append(rows, [2]string{"load average", fmt.Sprintf("%s before, %s after", r.LoadBefore, r.LoadAfter)})
	rows = append(rows, r.viaRows()...)
	if frozen := max(r.Client.Frozen, r.Server.Frozen); frozen > 0 {
		rows = append(rows, [2]string{"not scheduled", fmt.Sprintf("a worker for %.1f s in all", frozen)})
	}
	if c := r.Client.Reconciled; c != nil {
		rows = append(rows, [2]string{"both ends", fmt.Sprintf("client %d, server %d %s", c.Client, c.Server, c.Finding)})
	}
	return rows
}

// processor is what both ends needed in the idle hold.
func (r *Result) processor() string {
	if r.ServerCPU == nil || r.ClientCPU == nil || r.Beats == nil {
		return notMeasured
	}
	return fmt.Sprintf("server %.1f %%, client %.1f %% of one core, at %.0f heartbeats/s", *r.ServerCPU, *r.ClientCPU, *r.Beats)
}

const notMeasured = "- (not measured: it needs 4 s of hold before the first event)"

func memoryText(format string, a, b *float64) string {
	if a == nil || b == nil {
		return notMeasured
	}
	return fmt.Sprintf(format, *a, *b)
}

// kernelMemory is both figures of the machine's memory, where they were large enough to be seen.
func (r *Result) kernelMemory() string {
	if r.ClientBytes == nil {
		return notMeasured
	}
	kernel, available := "too small to measure", "did not fall"
	if r.KernelBytes != nil {
		kernel = fmt.Sprintf("%.0f B a connection (both ends)", *r.KernelBytes)
	}
	if r.AvailableBytes != nil {
		available = fmt.Sprintf("fell by %.0f B", *r.AvailableBytes)
	}
	return kernel + "; available memory " + available
}

// bytesText is a cell; "-" where nothing was measured.
func bytesText(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.0f", *v)
}

// percentText is a cell; "-" where nothing was measured.
func percentText(v float64) string {
	if math.IsNaN(v) {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", v)
}

// orNaN is what plots take for a figure that was not measured.
func orNaN(v *float64) float64 {
	if v == nil {
		return math.NaN()
	}
	return *v
}

// Write prints the result for people.
func (r *Result) Write(w io.Writer) error {
	t := terminal.NewTable(w, false)
	for _, row := range r.rows() {
		t.Pair(row[0], "%s", row[1])
	}
	for _, c := range r.Conditions {
		t.Pair(c.Name, "%s", c.Value)
	}
	t.Pair("verdict", "%s", r.Verdict)
	if err := t.Flush(); err != nil {
		return err
	}
	return writeEvents(w, r.Via)
}

// method is how to measure it again.
func (r *Result) method() string {
	return strings.TrimSpace(fmt.Sprintf("%s\n%s\nload average: %s before, %s after", r.Command, r.Machine, r.LoadBefore, r.LoadAfter))
}

// curveChart is the distribution of round trips.
func curveChart(results []*Result) plot.Chart {
	var series []plot.Series
	for _, r := range results {
		x, y := r.Client.Heartbeats.RTT.CurvePoints()
		series = append(series, plot.Series{Name: r.Path(), X: x, Y: y})
	}
	return plot.Percentiles("Round trip of heartbeats, percentiles of the run", series)
}

// WriteHTML writes the report: verdict, figures, plots of the run.
func (r *Result) WriteHTML(w io.Writer) error {
	var x, client, server, lost, cpu, rtt50, rtt99, rttMax []float64
	for _, p := range r.Client.History {
		x = append(x, p.Seconds)
		client, server, lost = append(client, float64(p.Established)), append(server, float64(p.Server)), append(lost, float64(p.Lost))
		cpu = append(cpu, p.CPU)
		if p.RTTMax == 0 { // no heartbeat was answered in this time
			p.RTT50, p.RTT99, p.RTTMax = math.NaN(), math.NaN(), math.NaN()
		}
		rtt50, rtt99, rttMax = append(rtt50, p.RTT50), append(rtt99, p.RTT99), append(rttMax, p.RTTMax)
	}
	var events []plot.Event
	if r.EstablishSeconds > 0 {
		events = append(events, plot.Event{X: r.EstablishSeconds, Label: "all are established"})
	}
	events = append(events, plotEvents(r.Via)...)
	table := plot.Table{Title: "Figures", Header: []string{"what", "value"}}
	for _, row := range r.rows() {
		table.Rows = append(table.Rows, row[:])
	}
	conditions := plot.Table{Title: "Conditions", Header: []string{"what", "value"}}
	for _, c := range r.Conditions {
		conditions.Rows = append(conditions.Rows, []string{c.Name, c.Value})
	}
	found := plot.Table{Title: "Limits before the run", Header: []string{"limit", "level", "finding"}}
	for _, f := range r.Findings {
		found.Rows = append(found.Rows, []string{f.Check, f.Level.String(), f.What})
	}
	report := plot.Report{
		Title: fmt.Sprintf("weir tcp bench: %d connections", r.Connections), When: r.At, Verdict: r.Verdict, OK: r.OK,
		Facts: []plot.Fact{
			{Name: "connections held", Value: fmt.Sprint(r.Held)},
			{Name: "connections lost", Value: fmt.Sprint(r.Lost)},
			{Name: "until all were established", Value: fmt.Sprintf("%.3g s", r.EstablishSeconds)},
			{Name: "memory of the server, B a connection", Value: bytesText(r.ServerBytes)},
		},
		Events: events,
		Figures: []plot.Figure{
			plot.Chart{Title: "Connections", YLabel: "connections", Events: events, Series: []plot.Series{{Name: "client", X: x, Y: client}, {Name: "server", X: x, Y: server}, {Name: "lost so far", X: x, Y: lost}}},
			plot.Chart{Title: "Processor time", Note: "Workers of both ends; 100 % is one core.", YLabel: "percent", Events: events, Series: []plot.Series{{Name: "all workers", X: x, Y: cpu}}},
			plot.Chart{Title: "Round trip of heartbeats, of each interval", Note: "From the time that a heartbeat was due.", YLabel: "ms", Events: events, Series: []plot.Series{{Name: "p50", X: x, Y: rtt50}, {Name: "p99", X: x, Y: rtt99}, {Name: "max", X: x, Y: rttMax}}},
			curveChart([]*Result{r}),
		},
		Tables: []plot.Table{table, conditions, found}, Method: r.method(),
	}
	if v := r.Via; v != nil {
		report.Figures = slices.Insert(report.Figures, 1, plot.Figure(sharesChart(v, events)))
		if len(v.Events) > 0 {
			report.Tables = append(eventTables(v), report.Tables...)
		}
	}
	return report.WriteHTML(w)
}
