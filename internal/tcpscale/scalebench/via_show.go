package scalebench

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/tcpscale"
	"github.com/weir-lb/weir/internal/terminal"
	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/plot"
)

// unexplained are losses that no event explains.
func (r *Result) unexplained() uint64 {
	if r.Via == nil {
		return r.Lost
	}
	return r.Via.Unexplained
}

// besides is what a verdict adds where events cost connections.
func (r *Result) besides() string {
	if r.Via == nil || r.Lost == r.Via.Unexplained {
		return ""
	}
	return fmt.Sprintf(" besides the %d of the events", r.Lost-r.Via.Unexplained)
}

// Path is the name of the result's path.
func (r *Result) Path() string {
	if r.Via == nil {
		return PathLoopback
	}
	return r.Via.Path
}

// Compare gives each result its ratio to the direct path's, if that is among them.
func Compare(results []*Result) {
	i := slices.IndexFunc(results, func(r *Result) bool { return r.Path() == PathDirect })
	if i < 0 {
		return
	}
	direct := results[i]
	for _, r := range results {
		if r.Via != nil && r != direct {
			r.Via.Ratio = &v1.TCPRatio{
				Establish: over(r.EstablishSeconds, direct.EstablishSeconds), RTT50: over(r.rtt(.5), direct.rtt(.5)), RTT99: over(r.rtt(.99), direct.rtt(.99)),
				Machine: over(busy(r.Via), busy(direct.Via)),
			}
		}
	}
}

// over is 0 where there is nothing to divide, or to divide by.
func over(a, b float64) float64 {
	if math.IsNaN(a) || math.IsNaN(b) || b <= 0 {
		return 0
	}
	return math.Round(1000*a/b) / 1000
}

// rtt is a quantile of the heartbeats' round trip in milliseconds.
func (r *Result) rtt(q float64) float64 {
	if l := r.Client.Heartbeats.RTT; l != nil && l.Count() > 0 {
		return measure.Millis(l.Quantile(q))
	}
	return 0
}

// viaRows are a path's own figures.
func (r *Result) viaRows() [][2]string {
	v := r.Via
	if v == nil {
		return nil
	}
	rows := [][2]string{
		{"path", fmt.Sprintf("%s, %d backends, %d source addresses", v.Path, v.Backends, v.Sources)},
		{"machine in the hold", notMeasured},
	}
	if v.Machine != nil && v.Others != nil && v.Softirq != nil {
		rows[1][1] = fmt.Sprintf("%.1f %% of one core, of that other programs %.1f, softirqs %.1f", *v.Machine, *v.Others, *v.Softirq)
	}
	if b := v.Balancer; b != nil && b.FlowsMax > 0 {
		rows = append(rows,
			[2]string{"balancer", fmt.Sprintf("%d flows of %d; %d found the table full, %d packets a queue full", b.Flows, b.FlowsMax, b.TableFull, b.QueueFull)})
		if b.RSS > 0 {
			rows = append(rows, [2]string{"balancer's process", fmt.Sprintf("%s of one core, %d MB", percentText(orNaN(b.CPU)), b.RSS>>20)})
		}
		if len(b.Packets) > 0 {
			var words []string
			for _, reason := range slices.Sorted(maps.Keys(b.Packets)) {
				words = append(words, fmt.Sprintf("%s %d", reason, b.Packets[reason]))
			}
			rows = append(rows, [2]string{"balancer's packets", strings.Join(words, ", ")})
		}
	}
	if q := v.Ratio; q != nil {
		rows = append(rows, [2]string{"times direct", fmt.Sprintf("establish %.2f, round trip p50 %.2f, p99 %.2f, processor %.2f", q.Establish, q.RTT50, q.RTT99, q.Machine)})
	}
	return rows
}

// eventNames are the lines of the table of events.
var eventNames = []string{"at", "held", "lost", "others lost", "moved", "balancer back after", "lost after, p50/p99/most", "back after, p50/p99/most", "all back after"}

// name is the event and the backend that it took.
func eventName(e *Event) string {
	return strings.TrimSpace(e.Kind + " " + e.Target)
}

// cells are the values of eventNames.
func eventCells(e *Event) []string {
	seconds := func(v float64, is bool) string {
		if !is {
			return "-"
		}
		return fmt.Sprintf("%.1f s", v)
	}
	back := seconds(e.TookSeconds, e.Target == "")
	if e.Skipped != "" {
		back = e.Skipped
	}
	return []string{
		fmt.Sprintf("%.0f s", e.AtSeconds), fmt.Sprint(e.Held), fmt.Sprint(e.Lost), fmt.Sprint(e.LostOthers), fmt.Sprint(e.Moved),
		back, threeTimes(e.LostAfter), threeTimes(e.BackAfter), seconds(e.AllBack, e.AllBack > 0),
	}
}

func threeTimes(l *measure.Latency) string {
	if l == nil || l.Count() == 0 {
		return "-"
	}
	s := func(d time.Duration) string { return fmt.Sprintf("%.2f", d.Seconds()) }
	return s(l.Quantile(.5)) + "/" + s(l.Quantile(.99)) + "/" + s(l.Max()) + " s"
}

// eventTables are the events, a column each, and the distribution between them: a page is as wide as few columns.
func eventTables(v *Via) []plot.Table {
	if v == nil || len(v.Events) == 0 {
		return nil
	}
	events := plot.Table{Title: "What the events did", Header: []string{"connections"}}
	shares := plot.Table{Title: "Distribution", Header: []string{"backend"}}
	for _, name := range eventNames {
		events.Rows = append(events.Rows, []string{name})
	}
	for i := range v.Backends {
		shares.Rows = append(shares.Rows, []string{backendName(i)})
	}
	column := func(name string, peers []tcpscale.Peer) {
		shares.Header = append(shares.Header, name)
		for i, row := range shares.Rows {
			shares.Rows[i] = append(row, fmt.Sprint(connectionsOf(peers, row[0])))
		}
	}
	for i := range v.Events {
		e := &v.Events[i]
		events.Header = append(events.Header, eventName(e))
		for j, cell := range eventCells(e) {
			events.Rows[j] = append(events.Rows[j], cell)
		}
		column("before "+eventName(e), e.Before)
	}
	column("at the end", v.Events[len(v.Events)-1].After)
	return []plot.Table{events, shares}
}

// writeEvents prints them as tables.
func writeEvents(w io.Writer, v *Via) error {
	for _, t := range eventTables(v) {
		fmt.Fprintln(w)
		if err := writeTable(w, t.Header, t.Rows); err != nil {
			return err
		}
	}
	return nil
}

func writeTable(w io.Writer, header []string, rows [][]string) error {
	t := terminal.NewTable(w, false)
	fmt.Fprintln(t, strings.ToUpper(strings.Join(header, "\t")))
	for _, row := range rows {
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	return t.Flush()
}

// sharesChart is the distribution over time.
func sharesChart(v *Via, events []plot.Event) plot.Chart {
	const maximum = 8 // colours; more are too many to distinguish
	chart := plot.Chart{Title: "Connections of each backend", Note: "As the clients count them.", YLabel: "connections", Events: events}
	for i := range min(v.Backends, maximum) {
		series := plot.Series{Name: backendName(i)}
		for _, p := range v.Shares {
			series.X, series.Y = append(series.X, p.Seconds), append(series.Y, float64(p.Connections[series.Name]))
		}
		chart.Series = append(chart.Series, series)
	}
	if v.Backends > maximum {
		chart.Note += fmt.Sprintf(" The first %d of %d.", maximum, v.Backends)
	}
	return chart
}

// comparison is a table of several paths, a column each.
func comparison(results []*Result) (header []string, rows [][]string) {
	header = []string{"path"}
	for _, name := range []string{
		"held", "established in", "rate", "lost", "unexplained", "kernel B/connection", "server B/connection", "client B/connection",
		"servers' processor", "clients' processor", "balancer's processor", "machine's processor", "round trip p50", "round trip p99", "times direct", "verdict",
	} {
		rows = append(rows, []string{name})
	}
	for _, r := range results {
		balancer, machine, ratio := "-", "-", "-"
		if v := r.Via; v != nil {
			machine = percentText(busy(v))
			if v.Balancer != nil && v.Balancer.RSS > 0 {
				balancer = percentText(orNaN(v.Balancer.CPU))
			}
			if q := v.Ratio; q != nil {
				ratio = fmt.Sprintf("%.2f / %.2f / %.2f / %.2f", q.Establish, q.RTT50, q.RTT99, q.Machine)
			}
		}
		ok := "ok"
		switch {
		case r.Void != "":
			ok = "VOID"
		case !r.OK:
			ok = "FAILED"
		}
		header = append(header, r.Path())
		for i, cell := range []string{
			fmt.Sprint(r.Held), fmt.Sprintf("%.2f s", r.EstablishSeconds), fmt.Sprintf("%.0f/s", float64(r.Connections)/max(r.EstablishSeconds, 1e-3)),
			fmt.Sprint(r.Lost), fmt.Sprint(r.unexplained()), bytesText(r.KernelBytes), bytesText(r.ServerBytes), bytesText(r.ClientBytes),
			percentText(orNaN(r.ServerCPU)), percentText(orNaN(r.ClientCPU)), balancer, machine,
			fmt.Sprintf("%.2f ms", r.rtt(.5)), fmt.Sprintf("%.2f ms", r.rtt(.99)), ratio, ok,
		} {
			rows[i] = append(rows[i], cell)
		}
	}
	return header, rows
}

const comparisonNote = "Times direct: establish / round trip p50 / p99 / processor. Processor figures are percent of one core in the idle hold; the kernel data path runs in softirqs and shows in the machine's only, from which other programs are taken off."

// WriteAll prints several results: each, then the comparison.
func WriteAll(w io.Writer, results []*Result) error {
	for _, r := range results {
		if err := r.Write(w); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	header, rows := comparison(results)
	if err := writeTable(w, header, rows); err != nil {
		return err
	}
	return terminal.Prose(w, comparisonNote)
}

// WriteAllHTML is the report of several results; of one it is that result's own.
func WriteAllHTML(w io.Writer, results []*Result) error {
	if len(results) == 1 {
		return results[0].WriteHTML(w)
	}
	header, rows := comparison(results)
	report := plot.Report{Title: "weir tcp bench: paths compared", OK: true, Tables: []plot.Table{{Title: "Paths", Header: header, Rows: rows}}}
	established := plot.Chart{Title: "Connections of the clients", YLabel: "connections"}
	bars := plot.Bars{Title: "Round trip of heartbeats", Unit: "ms", Names: []string{"p50", "p99"}}
	cpu := plot.Bars{Title: "Processor time of the idle hold", Unit: "% of one core", Names: []string{"servers", "clients", "balancer's process", "machine"}, Note: "The machine's is without other programs."}
	var failed, loads []string
	for _, r := range results {
		if !r.OK {
			failed = append(failed, r.Path()+": "+r.Verdict)
		}
		report.When, report.Method = r.At, r.Command+"\n"+r.Machine+"\n"+comparisonNote
		loads = append(loads, fmt.Sprintf("load average, %s: %s before, %s after", r.Path(), r.LoadBefore, r.LoadAfter))
		series := plot.Series{Name: r.Path()}
		for _, p := range r.Client.History {
			series.X, series.Y = append(series.X, p.Seconds), append(series.Y, float64(p.Established))
		}
		established.Series = append(established.Series, series)
		bars.Groups = append(bars.Groups, plot.Group{Name: r.Path(), Values: []float64{r.rtt(.5), r.rtt(.99)}})
		values := []float64{orNaN(r.ServerCPU), orNaN(r.ClientCPU), math.NaN(), math.NaN()}
		if v := r.Via; v != nil {
			values[3] = busy(v)
			if v.Balancer != nil && v.Balancer.RSS > 0 {
				values[2] = orNaN(v.Balancer.CPU)
			}
			if len(v.Events) > 0 {
				for _, t := range eventTables(v) {
					t.Title = v.Path + ": " + strings.ToLower(t.Title[:1]) + t.Title[1:]
					report.Tables = append(report.Tables, t)
				}
				report.Figures = append(report.Figures, sharesFigure(v))
			}
		}
		cpu.Groups = append(cpu.Groups, plot.Group{Name: r.Path(), Values: values})
	}
	report.OK = len(failed) == 0
	report.Method += "\n" + strings.Join(loads, "\n")
	report.Verdict = cmp.Or(strings.Join(failed, "; "), fmt.Sprintf("%d paths, 0 connections lost besides those of events", len(results)))
	report.Figures = append([]plot.Figure{established, bars, curveChart(results), cpu}, report.Figures...)
	return report.WriteHTML(w)
}

// plotEvents are the events of a path for its charts.
func plotEvents(v *Via) (all []plot.Event) {
	if v == nil {
		return nil
	}
	for i := range v.Events {
		e := &v.Events[i]
		all = append(all, plot.Event{X: e.AtSeconds, Label: eventName(e)})
	}
	return all
}

func sharesFigure(v *Via) plot.Chart {
	chart := sharesChart(v, plotEvents(v))
	chart.Title = v.Path + ": " + strings.ToLower(chart.Title[:1]) + chart.Title[1:]
	return chart
}
