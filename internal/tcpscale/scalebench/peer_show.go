package scalebench

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/weir-lb/weir/internal/terminal"
	"github.com/weir-lb/weir/internal/testbed/plot"
)

// peerRow is a figure of the table; less is better where a ratio makes sense.
type peerRow struct {
	name, format string
	ratio        bool
	server       bool // of the server: no ratio where that is Weir's
	value        func(*PeerRun) float64
}

var peerRows = [...]peerRow{
	{"established at the end", "%.0f", false, false, func(r *PeerRun) float64 { return float64(r.Held) }},
	{"accepted by the server", "%.0f", false, false, func(r *PeerRun) float64 { return float64(r.Accepted) }},
	{"lost in the hold", "%.0f", false, false, func(r *PeerRun) float64 { return float64(r.Lost) }},
	{"time to establish, s", "%.2f", true, false, func(r *PeerRun) float64 { return r.EstablishSeconds }},
	{"kernel, B a connection, both ends", "%.0f", true, false, func(r *PeerRun) float64 { return valueOf(r.KernelBytes) }},
	{"server's memory, B a connection", "%.0f", true, true, func(r *PeerRun) float64 { return r.ServerBytes }},
	{"client's memory, B a connection", "%.0f", true, false, func(r *PeerRun) float64 { return r.ClientBytes }},
	{"memory of all processes, MB", "%.0f", true, true, func(r *PeerRun) float64 { return r.UserBytes / 1e6 }},
	{"server's processor, % of a core", "%.1f", true, true, func(r *PeerRun) float64 { return r.ServerCPU }},
	{"client's processor, % of a core", "%.1f", true, false, func(r *PeerRun) float64 { return r.ClientCPU }},
	{"TCP segments/s with data meanwhile", "%.0f", false, false, func(r *PeerRun) float64 { return r.DataSegments }},
	{"processor of both ends, us a data segment", "%.1f", true, true, func(r *PeerRun) float64 { return r.DataCPU }},
	{"TCP segments/s meanwhile", "%.0f", false, false, func(r *PeerRun) float64 { return r.Segments }},
}

// valueOf is a figure, 0 where it was too small to measure.
func valueOf(v *float64) float64 {
	if v == nil {
		return 0
	}
	return *v
}

// line is a run's figures in the order of the table: an interrupt later does not take them away.
func runLine(r *PeerRun) string {
	var words []string
	for _, row := range peerRows {
		words = append(words, row.name+" "+fmt.Sprintf(row.format, row.value(r)))
	}
	return strings.Join(words, "; ")
}

// failure says why a run came to no figures.
func runFailure(r *PeerRun) string {
	return fmt.Sprintf("failed with %d connections established: %s", r.Reached, r.Failed)
}

// names are the programs, Weir first.
func (r *PeerResult) names() (names []string) {
	for i := range r.Runs {
		if !slices.Contains(names, r.Runs[i].Program) {
			names = append(names, r.Runs[i].Program)
		}
	}
	if i := slices.Index(names, weirName); i > 0 { // another one failed before its first round
		names = slices.Insert(slices.Delete(names, i, i+1), 0, weirName)
	}
	return names
}

// mean is a figure over the rounds that came to figures; n is how many did.
func (r *PeerResult) mean(program string, value func(*PeerRun) float64) (mean, low, high, n float64) {
	for i := range r.Runs {
		if r.Runs[i].Program != program || r.Runs[i].Failed != "" {
			continue
		}
		v := value(&r.Runs[i])
		if n == 0 || v < low {
			low = v
		}
		if n == 0 || v > high {
			high = v
		}
		mean += v
		n++
	}
	return mean / max(n, 1), low, high, n
}

// table has a column for each program and one for its ratio to Weir.
func (r *PeerResult) table() plot.Table {
	t := plot.Table{Title: fmt.Sprintf("%d connections, mean of the rounds (lowest–highest)", r.Connections), Header: []string{"figure"}}
	names := r.names()
	servers := map[string]string{}
	first := []string{"server"}
	for _, name := range names {
		t.Header = append(t.Header, name)
		if name != weirName {
			t.Header = append(t.Header, "× weir")
		}
		for i := range r.Runs {
			if r.Runs[i].Program == name {
				servers[name] = r.Runs[i].Server
			}
		}
		if first = append(first, servers[name]); name != weirName {
			first = append(first, "")
		}
	}
	t.Rows = append(t.Rows, first)
	if slices.ContainsFunc(r.Runs, func(run PeerRun) bool { return run.Failed != "" }) {
		t.Rows = append(t.Rows, r.failures(names))
	}
	for _, row := range peerRows {
		line := []string{row.name}
		ours, _, _, _ := r.mean(weirName, row.value)
		for _, name := range names {
			mean, low, high, n := r.mean(name, row.value)
			cell := fmt.Sprintf(row.format, mean)
			if a, b := fmt.Sprintf(row.format, low), fmt.Sprintf(row.format, high); a != b {
				cell += " (" + a + "–" + b + ")"
			}
			if n == 0 || low <= 0 && row.ratio { // in a round at least it came short
				mean, cell = 0, "-"
			}
			line = append(line, cell)
			if name == weirName {
				continue
			}
			ratio := ""
			if row.ratio && ours > 0 && mean > 0 && !(row.server && strings.HasPrefix(servers[name], weirName)) {
				ratio = fmt.Sprintf("%.2g", mean/ours)
			}
			line = append(line, ratio)
		}
		t.Rows = append(t.Rows, line)
	}
	return t
}

// failures counts rounds without figures.
func (r *PeerResult) failures(names []string) []string {
	line := []string{"rounds that failed (not in the means)"}
	for _, name := range names {
		n := 0
		for i := range r.Runs {
			if r.Runs[i].Program == name && r.Runs[i].Failed != "" {
				n++
			}
		}
		if line = append(line, fmt.Sprint(n)); name != weirName {
			line = append(line, "")
		}
	}
	return line
}

// method says how the figures came about.
func (r *PeerResult) method() string {
	processes, text := 0, "Each run in a network namespace of its own, connections counted by its kernel. Bytes a connection: more than the same processes take with one connection each.\n"
	for i := range r.Runs {
		processes = r.Runs[i].Processes
	}
	text += fmt.Sprintf("Processes of each program at each end: %d, as one may not open more files. In the hold, on each connection: weir %s", processes, weirPeer().beats)
	for _, name := range r.names() {
		if p := peerNamed(name); p != nil {
			text += "; " + name + " " + p.beats
		}
	}
	return text + ".\n" + r.Machine
}

// Write prints the comparison for people.
func (r *PeerResult) Write(w io.Writer) error {
	table := r.table()
	t := terminal.NewTable(w, false)
	for _, row := range append([][]string{table.Header}, table.Rows...) {
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	fmt.Fprintf(t, "verdict\t%s\n", r.Verdict)
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%s\n%s\n", table.Title, r.method())
	return err
}

// WriteHTML writes the comparison as a page.
func (r *PeerResult) WriteHTML(w io.Writer) error {
	report := plot.Report{
		Title: fmt.Sprintf("weir tcp bench: %d connections compared with %s", r.Connections, strings.Join(slices.DeleteFunc(r.names(), func(name string) bool { return name == weirName }), ", ")), When: r.At, Verdict: r.Verdict, OK: r.OK,
		Tables: []plot.Table{r.table()}, Method: r.method(),
	}
	for _, row := range peerRows {
		if !row.ratio {
			continue
		}
		bars := plot.Bars{Title: row.name, Note: "Less is better.", Names: []string{"mean"}}
		for _, name := range r.names() {
			mean, low, high, _ := r.mean(name, row.value)
			bars.Groups = append(bars.Groups, plot.Group{Name: name, Values: []float64{mean}, Spread: [][2]float64{{low, high}}})
		}
		report.Figures = append(report.Figures, bars)
	}
	return report.WriteHTML(w)
}
