package bench

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-lb/weir/internal/terminal"
	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/plot"
)

// processResult is what became of one process.
func (s *soak) processResult(w *watched, elapsed time.Duration) *measure.Result {
	r := s.result(w.name, KindProcess, elapsed)
	r.Processes = []measure.Process{{Name: w.name, CPU: w.usage.CPU - w.first, PeakBytes: w.usage.PeakBytes}}
	r.Errors = uint64(w.missed)
	verdict := VerdictLevel
	for _, name := range slices.Concat(watchedGauges(), slices.Sorted(maps.Keys(w.gauges))) {
		series := w.gauges[name]
		if series == nil || slices.ContainsFunc(r.Series, func(o measure.Series) bool { return o.Name == name }) {
			continue
		}
		r.Series = append(r.Series, *series)
		l := levelOf(series, s.config.Growth/100)
		r.Figures = append(r.Figures,
			measure.Figure{Name: name, Value: l.last, Unit: series.Unit},
			measure.Figure{Name: name + perHour, Value: l.perHour, Unit: series.Unit})
		if slices.Contains(watchedGauges(), name) && !l.levelled {
			verdict = VerdictGrows
			r.Parameters["grows"] += fmt.Sprintf("%s by %s over the last third, allowed %s; ", name, gaugeText(l.growth, series.Unit), gaugeText(l.allowed, series.Unit))
		}
	}
	if elapsed.Seconds() < minimumSoak {
		verdict = VerdictShort
		delete(r.Parameters, "grows")
	}
	r.Parameters[ParamVerdict] = verdict
	if err := w.failure(); err != nil {
		r.Parameters[ParamFailed] = err.Error()
	}
	return r
}

const perHour = " per hour"

// loadResult is what became of one kind of clients.
func (s *soak) loadResult(load soakLoad, c soakCounts, elapsed time.Duration) *measure.Result {
	r := s.result(load.name, KindLoad, elapsed)
	r.Requests, r.Errors, r.Figures = c.answered, c.lost, c.figures
	r.Parameters["about"], r.Parameters[ParamVerdict] = load.about, VerdictOK
	switch {
	case c.failed != nil:
		r.Parameters[ParamFailed] = c.failed.Error()
	case c.lost > 0 && s.lapses.count > 0:
		r.Parameters[ParamVerdict], r.Parameters["void"] = VerdictVoid, s.lapses.why()
	case c.lost > 0:
		r.Parameters[ParamVerdict] = VerdictLost
	}
	return r
}

// SoakFailed counts the processes that grow or ended, and the loads that lost something, also where that is void: nothing is proven then.
func SoakFailed(results []*measure.Result) (failed int) {
	for _, r := range results {
		if v := r.Parameters[ParamVerdict]; v == VerdictGrows || v == VerdictLost || v == VerdictVoid || r.Parameters[ParamFailed] != "" {
			failed++
		}
	}
	return failed
}

func gaugeText(value float64, unit string) string {
	if unit == "bytes" {
		return strconv.FormatFloat(value/1e6, 'f', 1, 64) + " MB"
	}
	return strconv.FormatFloat(value, 'f', 0, 64)
}

// soakRows are the three tables: header, then a row for each process, for each load, and for each place where packets were lost.
func soakRows(results []*measure.Result) (processes, loads, losses [][]string) {
	processes = [][]string{{"process", "resident", "per hour", "heap", "per hour", "goroutines", "threads", "descriptors", "tables", "% of a core", "verdict"}}
	loads = [][]string{{"load", "answered", "lost", "counted", "verdict"}}
	losses = [][]string{{"counted in the kernel and by weir during the run", "packets"}}
	for _, r := range results {
		if r.Parameters[ParamKind] == KindLosses {
			for _, f := range r.Figures {
				losses = append(losses, []string{f.Name, fmt.Sprintf("%.0f", f.Value)})
			}
			continue
		}
		verdict := r.Parameters[ParamVerdict]
		if why := r.Parameters["grows"]; why != "" {
			verdict += ": " + strings.TrimSuffix(why, "; ")
		}
		if why := r.Parameters["void"]; why != "" {
			verdict += ": " + why
		}
		if why := r.Parameters[ParamFailed]; why != "" {
			verdict = why
		}
		if r.Parameters[ParamKind] == KindLoad {
			var counted []string
			for _, f := range r.Figures {
				counted = append(counted, fmt.Sprintf("%s %.0f", f.Name, f.Value))
			}
			loads = append(loads, []string{r.Road, fmt.Sprint(r.Requests), fmt.Sprint(r.Errors), strings.Join(counted, ", "), verdict})
			continue
		}
		row, tables, shown := []string{r.Road}, []string{}, map[string]string{}
		for _, f := range r.Figures {
			shown[f.Name] = gaugeText(f.Value, f.Unit)
			if !strings.HasSuffix(f.Name, perHour) && !slices.Contains(watchedGauges(), f.Name) {
				tables = append(tables, f.Name+" "+shown[f.Name])
			}
		}
		for _, name := range []string{gaugeResident, gaugeResident + perHour, gaugeHeap, gaugeHeap + perHour, gaugeGoroutines, gaugeThreads, gaugeDescriptors} {
			text, known := shown[name]
			if !known || strings.HasSuffix(name, perHour) && verdict == VerdictShort { // a line of minutes says nothing about hours
				text = "-"
			}
			row = append(row, text)
		}
		cpu := 0.0
		for _, p := range r.Processes {
			cpu += p.CPU.Seconds() / max(r.Elapsed.Seconds(), 1e-9)
		}
		processes = append(processes, append(row, strings.Join(tables, ", "), fmt.Sprintf("%.1f", 100*cpu), verdict))
	}
	return processes, loads, losses
}

// WriteSoak writes the results of [Soak] as tables for people.
func WriteSoak(w io.Writer, results []*measure.Result) error {
	if len(results) == 0 {
		return nil
	}
	if err := terminal.Prose(w, soakMethod(results)+"\n"); err != nil {
		return err
	}
	processes, loads, losses := soakRows(results)
	for _, rows := range [][][]string{processes, loads, losses} {
		if len(rows) == 1 { // of a run of an earlier version
			continue
		}
		table := terminal.NewTable(w, false)
		for _, row := range rows {
			fmt.Fprintln(table, strings.Join(row, "\t"))
		}
		if err := table.Flush(); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	return terminal.Prose(w, soakVerdict(results))
}

// soakVerdict is the run in one sentence.
func soakVerdict(results []*measure.Result) string {
	counts := map[string]int{}
	for _, r := range results {
		if r.Parameters[ParamFailed] != "" {
			counts["failed"]++
		} else {
			counts[r.Parameters[ParamVerdict]]++
		}
	}
	var parts []string
	for _, name := range []string{VerdictLevel, VerdictGrows, VerdictShort, "failed"} {
		if n := counts[name]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d processes: %s", n, name))
		}
	}
	parts = append(parts, fmt.Sprintf("%d loads: %s", counts[VerdictOK], VerdictOK))
	if n := counts[VerdictLost]; n > 0 {
		parts = append(parts, fmt.Sprintf("%d loads: %s", n, VerdictLost))
	}
	if n := counts[VerdictVoid]; n > 0 {
		parts = append(parts, fmt.Sprintf("%d loads: %s", n, VerdictVoid))
	}
	return strings.Join(parts, "; ")
}

func soakMethod(results []*measure.Result) string {
	r := results[0]
	text := fmt.Sprintf("%v of %s, load %s, %s; %s, %d cores, Linux %s\n", r.Elapsed.Round(time.Second), r.Parameters["duration"], r.Parameters[ParamLoad],
		r.Parameters[ParamFamily], r.Machine.CPU, r.Machine.Cores, r.Machine.Kernel)
	text += fmt.Sprintf(`A gauge levels off if the line through the last third of the run (Theil-Sen) grows over that third by at most %s %% of its median, or by
2 MiB (memory), 10 (goroutines, descriptors), 2 (threads). Runs below %d minutes are not judged: abandoned TURN allocations live for 10.`,
		r.Parameters["growth"], minimumSoak/60)
	for _, r := range results {
		if about := r.Parameters["about"]; about != "" {
			text += fmt.Sprintf("\n  %-12s %s", r.Road, about)
		}
	}
	return text
}

// addSoak draws each gauge of every process over time.
func addSoak(report *plot.Report, results []*measure.Result) {
	report.Verdict, report.OK = soakVerdict(results), SoakFailed(results) == 0
	processes, loads, losses := soakRows(results)
	report.Tables = append(report.Tables, plot.Table{Title: "Processes", Header: processes[0], Rows: processes[1:]},
		plot.Table{Title: "Loads", Header: loads[0], Rows: loads[1:]},
		plot.Table{Title: "Losses by place", Header: losses[0], Rows: losses[1:]})
	for _, gauge := range watchedGauges() {
		chart := plot.Chart{Title: "soak: " + gauge, XLabel: "minutes", YLabel: gauge, Note: "Every process; the last third is judged."}
		for _, r := range results {
			for _, series := range r.Series {
				if series.Name == gauge {
					chart.Series = append(chart.Series, soakSeries(&series, r.Road))
					if series.Unit == "bytes" {
						chart.YLabel = "MB"
					}
				}
			}
		}
		report.Figures = append(report.Figures, chart)
	}
	for _, r := range results {
		chart := plot.Chart{Title: "soak: tables of " + r.Road, XLabel: "minutes", YLabel: "entries"}
		for _, series := range r.Series {
			if !slices.Contains(watchedGauges(), series.Name) {
				chart.Series = append(chart.Series, soakSeries(&series, series.Name))
			}
		}
		if len(chart.Series) > 0 {
			report.Figures = append(report.Figures, chart)
		}
	}
}

func soakSeries(s *measure.Series, name string) plot.Series {
	line := plot.Series{Name: name}
	for i := range s.At {
		value := s.Values[i]
		if s.Unit == "bytes" {
			value /= 1e6
		}
		line.X, line.Y = append(line.X, s.At[i]/60), append(line.Y, value)
	}
	return line
}
