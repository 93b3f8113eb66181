package scalebench

import (
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strconv"
	"text/tabwriter"

	"github.com/weir-lb/weir/internal/lab/measure"
	"github.com/weir-lb/weir/internal/lab/plot"
)

func processors() string { return strconv.Itoa(runtime.NumCPU()) }

// rows are the figures, by name; those of other variants on another day stand in docs/tcp.md.
func (r *Result) rows() [][2]string {
	rows := [][2]string{
		{"connections", fmt.Sprintf("%d of %d, held %.0f s", r.Held, r.Connections, r.HoldSeconds)},
		{"time to establish", fmt.Sprintf("%.2f s, %.0f/s", r.EstablishSeconds, float64(r.Connections)/max(r.EstablishSeconds, 1e-3))},
		{"lost", fmt.Sprint(r.Lost)},
		{"processes", fmt.Sprintf("%d servers, %d clients", r.Server.Workers, r.Client.Workers)},
		{"kernel memory", memoryText("%.0f B a connection (both ends); available memory fell by %.0f B", r.KernelBytes, r.AvailableBytes)},
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
			rows = append(rows, [2]string{l.name, fmt.Sprintf("p50 %.2f ms, p99 %.2f, most %.2f", measure.Millis(l.latency.Quantile(.5)), measure.Millis(l.latency.Quantile(.99)), measure.Millis(l.latency.Max()))})
		}
	}
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
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range r.rows() {
		fmt.Fprintf(t, "%s\t%s\n", row[0], row[1])
	}
	for _, c := range r.Conditions {
		fmt.Fprintf(t, "%s\t%s\n", c.Name, c.Value)
	}
	fmt.Fprintf(t, "verdict\t%s\n", r.Verdict)
	if err := t.Flush(); err != nil {
		return err
	}
	return r.Via.writeEvents(w)
}

// WriteHTML writes the report: verdict, figures, plots of the run.
func (r *Result) WriteHTML(w io.Writer) error {
	var x, client, server, lost, cpu, rtt []float64
	for _, p := range r.Client.History {
		x = append(x, p.Seconds)
		client, server, lost = append(client, float64(p.Established)), append(server, float64(p.Server)), append(lost, float64(p.Lost))
		cpu, rtt = append(cpu, p.CPU), append(rtt, p.RTT99)
	}
	var events []plot.Event
	if r.EstablishSeconds > 0 {
		events = append(events, plot.Event{X: r.EstablishSeconds, Label: "all are established"})
	}
	events = append(events, r.Via.plotEvents()...)
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
		found.Rows = append(found.Rows, []string{f.Check, f.Level, f.What})
	}
	report := plot.Report{
		Title: fmt.Sprintf("weir tcp bench: %d connections", r.Connections), When: r.At, Verdict: r.Verdict, OK: r.OK,
		Facts: []plot.Fact{
			{Name: "held", Value: fmt.Sprint(r.Held)},
			{Name: "lost", Value: fmt.Sprint(r.Lost)},
			{Name: "to establish", Value: fmt.Sprintf("%.1f s", r.EstablishSeconds)},
			{Name: "server, B a connection", Value: bytesText(r.ServerBytes)},
		},
		Events: events,
		Figures: []plot.Figure{
			plot.Chart{Title: "Connections", YLabel: "connections", Events: events, Series: []plot.Series{{Name: "client", X: x, Y: client}, {Name: "server", X: x, Y: server}, {Name: "lost so far", X: x, Y: lost}}},
			plot.Chart{Title: "Processor time", Note: "Workers of both ends; 100 % is one core.", YLabel: "percent", Events: events, Series: []plot.Series{{Name: "all workers", X: x, Y: cpu}}},
			plot.Chart{Title: "Round trip of heartbeats, 99th percentile so far", YLabel: "ms", Events: events, Series: []plot.Series{{Name: "p99", X: x, Y: rtt}}},
		},
		Tables: []plot.Table{table, conditions, found}, Method: "weir tcp bench --via " + r.Road() + "\n" + r.Machine,
	}
	if v := r.Via; v != nil {
		report.Figures = slices.Insert(report.Figures, 1, plot.Figure(v.sharesChart(events)))
		if len(v.Events) > 0 {
			report.Tables = append(v.eventTables(), report.Tables...)
		}
	}
	return report.WriteHTML(w)
}
