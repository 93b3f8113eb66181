package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/weir-lb/weir/internal/terminal"
	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/plot"
)

// ParseResults reads the JSON form of a list of results, or of a single one.
func ParseResults(text []byte) ([]*measure.Result, error) {
	if trimmed := bytes.TrimSpace(text); len(trimmed) > 0 && trimmed[0] == '{' {
		text = slices.Concat([]byte("["), trimmed, []byte("]"))
	}
	var results []*measure.Result
	if err := json.Unmarshal(text, &results); err != nil {
		return nil, fmt.Errorf("not a result of weir bench --json: %w", err)
	}
	if len(results) == 0 || slices.Contains(results, nil) {
		return nil, errors.New("no results in it")
	}
	return results, nil
}

// part is the results of one scenario.
type part struct {
	Scenario
	results []*measure.Result
}

// partsOf divides results by their scenarios, in the order in which those appear.
func partsOf(results []*measure.Result) (parts []*part) {
	for _, r := range results {
		at := slices.IndexFunc(parts, func(p *part) bool { return p.Name == r.Scenario })
		if at < 0 {
			at = len(parts)
			parts = append(parts, &part{Scenario: scenarioOf(r.Scenario)})
		}
		parts[at].results = append(parts[at].results, r)
	}
	return parts
}

// WriteText writes results for people: tables, what went wrong, and how the numbers came about.
func WriteText(w io.Writer, results []*measure.Result) error {
	for _, p := range partsOf(results) {
		if p.tables != nil {
			for _, t := range p.tables(p.results) {
				if err := writeTable(w, t, p.plain); err != nil {
					return err
				}
			}
		}
		var lines []string
		if p.notes != nil {
			lines = p.notes(p.results)
		}
		lines = append(lines, p.methodOf(p.results))
		if p.verdict != nil {
			lines = append(lines, p.verdict(p.results))
		}
		if err := terminal.Prose(w, strings.Join(lines, "\n")); err != nil {
			return err
		}
	}
	return nil
}

// WriteReport draws results as one HTML page. Those of several runs share its pictures when their paths differ; of two
// results for the same thing the later is drawn.
func WriteReport(w io.Writer, results []*measure.Result) error {
	if len(results) == 0 {
		return errors.New("no results to draw")
	}
	report := plot.Report{When: results[0].Started, OK: true}
	var titles, methods []string
	for _, p := range partsOf(results) {
		titles, methods = append(titles, p.heading()), append(methods, p.methodOf(p.results))
		if p.verdict != nil {
			report.Verdict, report.OK = p.verdict(p.results), missedBy(p.results) == 0
		}
		if p.tables != nil {
			report.Tables = append(report.Tables, p.tables(p.results)...)
		}
		if p.pictures == nil {
			p.pictures = allFigures
		}
		report.Figures = append(report.Figures, p.pictures(p.results)...)
		report.Figures = append(append(report.Figures, curves(p)...), overTime(p)...)
	}
	methods = append(methods, conditions(results)...)
	report.Title = strings.Join(titles, ", ")
	if failed := failures(results); len(failed) > 0 {
		report.OK = false
		report.Verdict = fmt.Sprintf("%d of %d measurements failed", len(failed), len(results))
		methods = append(methods, strings.Join(failed, "\n"))
	}
	report.Method = strings.Join(methods, "\n\n")
	return report.WriteHTML(w)
}

// curves draws the distribution of times of those results of a scenario that have one.
func curves(p *part) []plot.Figure {
	var series []plot.Series
	for _, r := range p.results {
		if x, y := r.Latency.CurvePoints(); len(x) > 0 {
			series = append(series, plot.Series{Name: r.Path, X: x, Y: y})
		}
	}
	if len(series) == 0 {
		return nil
	}
	return []plot.Figure{plot.Percentiles(p.Name+": latency, percentiles of the run", series)}
}

// overTime draws the latency of each interval of those results of a scenario that have several.
func overTime(p *part) (charts []plot.Figure) {
	for _, r := range p.results {
		if len(r.Samples) < 3 {
			continue
		}
		series := []plot.Series{{Name: "p50", Steps: true}, {Name: "p99", Steps: true}, {Name: "max", Steps: true}}
		for _, sample := range r.Samples {
			for i, d := range []time.Duration{sample.P50, sample.P99, sample.Max} {
				y := measure.Millis(d)
				if sample.Max == 0 { // nothing was answered in this time
					y = math.NaN()
				}
				series[i].X, series[i].Y = append(series[i].X, sample.At.Seconds()), append(series[i].Y, y)
			}
		}
		chart := plot.Chart{Title: p.Name + ": latency of each interval, " + r.Path, YLabel: "ms", Series: series}
		for _, e := range r.Events {
			chart.Events = append(chart.Events, plot.Event{X: e.At.Seconds(), Label: e.What})
		}
		charts = append(charts, chart)
	}
	return charts
}

// conditions are the commands that made results, each with the load average of its machine.
func conditions(results []*measure.Result) (lines []string) {
	for _, r := range results {
		line := strings.TrimSpace(fmt.Sprintf("%s\nload average: %s before, %s after", r.Command, r.LoadBefore, r.LoadAfter))
		if r.LoadBefore != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return lines
}

// allFigures draws each figure of a scenario over its paths.
func allFigures(results []*measure.Result) (pictures []plot.Figure) {
	var seen []string
	for _, named := range results {
		for _, f := range named.Figures {
			if slices.Contains(seen, f.Name) {
				continue
			}
			seen = append(seen, f.Name)
			bars := plot.Bars{Title: named.Scenario + ": " + f.Name, Unit: f.Unit, Names: []string{f.Name}}
			for _, r := range results {
				bars.Groups = append(bars.Groups, plot.Group{Name: r.Path, Values: []float64{figureOf(r, f.Name)}})
			}
			pictures = append(pictures, bars)
		}
	}
	return pictures
}
