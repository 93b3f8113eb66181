package bench

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/plot"
)

// processResult is what became of one process.
func (s *soak) processResult(w *watched, elapsed time.Duration) *measure.Result {
	r := s.result(w.name, kindProcess, elapsed)
	r.Processes = []measure.Process{{Name: w.name, CPU: w.usage.CPU - w.first, PeakBytes: w.usage.PeakBytes}}
	r.Errors = uint64(w.missed)
	verdict := verdictLevel
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
			verdict = verdictGrows
			r.Parameters["grows"] += fmt.Sprintf("%s by %s over the last third, allowed %s; ", name, gaugeText(l.growth, series.Unit), gaugeText(l.allowed, series.Unit))
		}
	}
	if elapsed.Seconds() < minimumSoak {
		verdict = verdictShort
		delete(r.Parameters, "grows")
	}
	r.Parameters[paramVerdict] = verdict
	if err := w.failure(); err != nil {
		r.Parameters[paramFailed] = err.Error()
	}
	return r
}

const perHour = " per hour"

// loadResult is what became of one kind of clients.
func (s *soak) loadResult(load soakLoad, c soakCounts, elapsed time.Duration) *measure.Result {
	r := s.result(load.name, kindLoad, elapsed)
	r.Requests, r.Errors, r.Figures = c.answered, c.lost, c.figures
	r.Parameters[paramAbout], r.Parameters[paramVerdict] = load.about, verdictOK
	switch {
	case c.failed != nil:
		r.Parameters[paramFailed] = c.failed.Error()
	case c.lost > 0 && s.lapses.count > 0:
		r.Parameters[paramVerdict], r.Parameters["void"] = verdictVoid, s.lapses.why()
	case c.lost > 0:
		r.Parameters[paramVerdict] = verdictLost
	}
	return r
}

func gaugeText(value float64, unit string) string {
	if unit == "bytes" {
		return strconv.FormatFloat(value/1e6, 'f', 1, 64) + " MB"
	}
	return strconv.FormatFloat(value, 'f', 0, 64)
}

// soakTables are a row for each process, for each load, and for each place where packets were lost.
func soakTables(results []*measure.Result) []plot.Table {
	processes := plot.Table{Title: "Processes", Header: []string{"process", "resident", "per hour", "heap", "per hour", "goroutines", "threads", "descriptors", "tables", "% of a core", "verdict"}}
	loads := plot.Table{Title: "Loads", Header: []string{"load", "answered", "lost", "counted", "verdict"}}
	losses := plot.Table{Title: "Losses by place", Header: []string{"counted in the kernel and by weir during the run", "packets"}}
	for _, r := range results {
		if r.Parameters[paramKind] == kindLosses {
			for _, f := range r.Figures {
				losses.Rows = append(losses.Rows, []string{f.Name, fmt.Sprintf("%.0f", f.Value)})
			}
			continue
		}
		verdict := r.Parameters[paramVerdict]
		if why := r.Parameters["grows"]; why != "" {
			verdict += ": " + strings.TrimSuffix(why, "; ")
		}
		if why := r.Parameters["void"]; why != "" {
			verdict += ": " + why
		}
		if why := r.Parameters[paramFailed]; why != "" {
			verdict = why
		}
		if r.Parameters[paramKind] == kindLoad {
			var counted []string
			for _, f := range r.Figures {
				counted = append(counted, fmt.Sprintf("%s %.0f", f.Name, f.Value))
			}
			loads.Rows = append(loads.Rows, []string{r.Path, fmt.Sprint(r.Requests), fmt.Sprint(r.Errors), strings.Join(counted, ", "), verdict})
			continue
		}
		row, tables, shown := []string{r.Path}, []string{}, map[string]string{}
		for _, f := range r.Figures {
			shown[f.Name] = gaugeText(f.Value, f.Unit)
			if !strings.HasSuffix(f.Name, perHour) && !slices.Contains(watchedGauges(), f.Name) {
				tables = append(tables, f.Name+" "+shown[f.Name])
			}
		}
		for _, name := range []string{gaugeResident, gaugeResident + perHour, gaugeHeap, gaugeHeap + perHour, gaugeGoroutines, gaugeThreads, gaugeDescriptors} {
			text, known := shown[name]
			if !known || strings.HasSuffix(name, perHour) && verdict == verdictShort { // a line of minutes says nothing about hours
				text = "-"
			}
			row = append(row, text)
		}
		cpu := 0.0
		for _, p := range r.Processes {
			cpu += p.CPU.Seconds() / max(r.Elapsed.Seconds(), 1e-9)
		}
		processes.Rows = append(processes.Rows, append(row, strings.Join(tables, ", "), fmt.Sprintf("%.1f", 100*cpu), verdict))
	}
	return []plot.Table{processes, loads, losses}
}

// soakVerdict is the run in one sentence.
func soakVerdict(results []*measure.Result) string {
	counts := map[string]int{}
	for _, r := range results {
		if r.Parameters[paramFailed] != "" {
			counts["failed"]++
		} else {
			counts[r.Parameters[paramVerdict]]++
		}
	}
	var parts []string
	for _, name := range []string{verdictLevel, verdictGrows, verdictShort, "failed"} {
		if n := counts[name]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d processes: %s", n, name))
		}
	}
	parts = append(parts, fmt.Sprintf("%d loads: %s", counts[verdictOK], verdictOK))
	if n := counts[verdictLost]; n > 0 {
		parts = append(parts, fmt.Sprintf("%d loads: %s", n, verdictLost))
	}
	if n := counts[verdictVoid]; n > 0 {
		parts = append(parts, fmt.Sprintf("%d loads: %s", n, verdictVoid))
	}
	return strings.Join(parts, "; ")
}

func soakMethod(results []*measure.Result) string {
	r := results[0]
	text := fmt.Sprintf("%v of %s, load %s, %s; %s, %d cores, Linux %s\n", r.Elapsed.Round(time.Second), r.Parameters["duration"], r.Parameters[paramLoad],
		r.Parameters[paramFamily], r.Machine.CPU, r.Machine.Cores, r.Machine.Kernel)
	text += fmt.Sprintf(`A gauge levels off if the line through the last third of the run (Theil-Sen) grows over that third by at most %s %% of its median, or by
2 MiB (memory), 10 (goroutines, descriptors), 2 (threads). Runs below %d minutes are not judged: abandoned TURN allocations live for 10.`,
		r.Parameters["growth"], minimumSoak/60)
	for _, r := range results {
		if about := r.Parameters[paramAbout]; about != "" {
			text += fmt.Sprintf("\n  %-12s %s", r.Path, about)
		}
	}
	return text
}

// soakPictures are each gauge of every process over time.
func soakPictures(results []*measure.Result) (pictures []plot.Figure) {
	for _, gauge := range watchedGauges() {
		chart := plot.Chart{Title: "soak: " + gauge, XLabel: "minutes", YLabel: gauge, Note: "Every process; the last third is judged."}
		for _, r := range results {
			for _, series := range r.Series {
				if series.Name == gauge {
					chart.Series = append(chart.Series, soakSeries(&series, r.Path))
					if series.Unit == "bytes" {
						chart.YLabel = "MB"
					}
				}
			}
		}
		pictures = append(pictures, chart)
	}
	for _, r := range results {
		chart := plot.Chart{Title: "soak: tables of " + r.Path, XLabel: "minutes", YLabel: "entries"}
		for _, series := range r.Series {
			if !slices.Contains(watchedGauges(), series.Name) {
				chart.Series = append(chart.Series, soakSeries(&series, series.Name))
			}
		}
		if len(chart.Series) > 0 {
			pictures = append(pictures, chart)
		}
	}
	return pictures
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
