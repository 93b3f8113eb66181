package snatlab

import (
	"fmt"
	"io"
	"math"

	"github.com/weir-lb/weir/internal/snat"
	"github.com/weir-lb/weir/internal/terminal"
	"github.com/weir-lb/weir/internal/testbed/plot"
)

func count(c Column) string {
	switch {
	case c.SNATMeasured != nil:
		return snat.Group(int64(c.Held))
	case c.NotRun != "":
		return "not run"
	case len(c.Errors) > 0:
		return "failed"
	}
	return "–"
}

// broken is whether no attempt came to a count.
func broken(c *Column) bool { return c.SNATMeasured == nil && len(c.Errors) > 0 }

// held is a count for a bar: none is no bar.
func held(c Column) float64 {
	if c.SNATMeasured == nil {
		return math.NaN()
	}
	return float64(c.Held)
}

// cellName is the cell's with its table's.
func cellName(c *Cell) string {
	if c.Table == "" {
		return c.Scenario
	}
	return c.Table + ": " + c.Scenario
}

func expected(c *Cell) string {
	if c.Expect == nil {
		return "open"
	}
	if c.Kind == string(snat.Transient) {
		return "~" + snat.Group(*c.Expect)
	}
	return snat.Group(*c.Expect)
}

func planned(c *Cell) string {
	text := snat.Group(c.Plan.Holds)
	if c.Kind == string(snat.Ceiling) && c.Plan.Whole > 0 && c.Plan.Whole < c.Plan.Holds {
		text += fmt.Sprintf(" (whole replicas: %s)", snat.Group(c.Plan.Whole))
	}
	return text
}

func verdict(c *Cell) string {
	switch {
	case !c.Agree:
		return "DIFFERS"
	case broken(&c.Kernel) || broken(&c.Weir):
		return "FAILED"
	case c.Kernel.SNATMeasured == nil && c.Weir.SNATMeasured == nil:
		return "not run"
	}
	return "agrees"
}

// ceiling is what the tester called the plateau, without knowing the plan.
func ceiling(c *Cell) string {
	for _, column := range []Column{c.Kernel, c.Weir} {
		if column.SNATMeasured != nil && column.Ceiling != "" {
			return column.Ceiling
		}
	}
	return ""
}

// Write prints the table and the reasons for people.
func Write(w io.Writer, r *Result) error {
	t := terminal.NewTable(w, false)
	fmt.Fprintln(t, "SCENARIO\tDOCUMENT\tPLAN\tKERNEL\tWEIR\t\tTHE TESTER CALLS IT")
	for i := range r.Cells {
		c := &r.Cells[i]
		if i == 0 && c.Table != "" || i > 0 && c.Table != r.Cells[i-1].Table {
			fmt.Fprintf(t, "%s\t\t\t\t\t\t\n", c.Table)
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%s\t%s\t%s\n", c.Scenario, expected(c), planned(c), count(c.Kernel), count(c.Weir), verdict(c), ceiling(c))
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("print the table: %w", err)
	}
	notes := notesOf(r)
	if len(notes) > 0 {
		fmt.Fprintln(w)
	}
	for _, note := range notes {
		fmt.Fprintln(w, note)
	}
	_, err := fmt.Fprintf(w, "\n%s %.0f s.\n", r.Verdict, r.Took)
	return err
}

// notesOf are differences, what was not run, and what Weir's NAT counted.
func notesOf(r *Result) []string {
	var all []string
	for i := range r.Cells {
		c := &r.Cells[i]
		name := cellName(c)
		if !c.Agree {
			all = append(all, name+": "+c.Reason)
		}
		for _, column := range []struct {
			name string
			of   Column
		}{{Kernel, c.Kernel}, {Weir, c.Weir}} {
			if column.of.NotRun != "" {
				all = append(all, fmt.Sprintf("%s: not run with %s's NAT: %s", name, column.name, column.of.NotRun))
			}
			for i, why := range column.of.Errors {
				all = append(all, fmt.Sprintf("%s: attempt %d with %s's NAT failed: %s", name, i+1, column.name, why))
			}
		}
		if m := c.Weir.SNATMeasured; m != nil && m.Exhausted > 0 {
			all = append(all, fmt.Sprintf("%s: Weir counted %s packets as snat_exhausted", name, snat.Group(int64(m.Exhausted))))
		}
	}
	return all
}

// WriteHTML writes a page with the table and how the connections came; method is the command.
func WriteHTML(w io.Writer, r *Result, method string) error {
	table := plot.Table{Title: "Scenarios", Header: []string{"scenario", "document", "plan", "kernel's NAT", "Weir's NAT", "", "the tester calls it"}}
	names := []string{"plan", "kernel's NAT", "Weir's NAT"} // of one colour each, on all figures
	var bars, charts []plot.Figure
	for i := range r.Cells {
		c := &r.Cells[i]
		table.Rows = append(table.Rows, []string{cellName(c), expected(c), planned(c), count(c.Kernel), count(c.Weir), verdict(c), ceiling(c)})
		group := plot.Group{Name: short(c.Scenario), Values: []float64{float64(c.Plan.Holds), held(c.Kernel), held(c.Weir)}}
		if i == 0 || c.Table != r.Cells[i-1].Table {
			bars = append(bars, plot.Bars{Title: "Connections held: " + c.Table, Unit: "connections", Names: names})
		}
		last := bars[len(bars)-1].(plot.Bars)
		last.Groups = append(last.Groups, group)
		bars[len(bars)-1] = last
		if c.Kernel.SNATMeasured != nil || c.Weir.SNATMeasured != nil {
			charts = append(charts, cellChart(c, names))
		}
	}
	notes := plot.Table{Title: "Notes", Header: []string{"note"}}
	for _, note := range notesOf(r) {
		notes.Rows = append(notes.Rows, []string{note})
	}
	tables := []plot.Table{table}
	if len(notes.Rows) > 0 {
		tables = append(tables, notes)
	}
	return plot.Report{
		Title: "SNAT: plan, kernel and Weir", When: r.At, Verdict: r.Verdict, OK: OK(r),
		Facts: []plot.Fact{
			{Name: "scenarios", Value: fmt.Sprint(len(r.Cells))},
			{Name: "runs", Value: fmt.Sprint(r.Runs)},
			{Name: "differ", Value: fmt.Sprint(r.Differ)},
			{Name: "took", Value: fmt.Sprintf("%.0f s", r.Took)},
		},
		Figures: append(bars, charts...), Tables: tables, Method: method,
	}.WriteHTML(w)
}

// chart is how the connections of one cell came.
func cellChart(c *Cell, names []string) plot.Chart {
	chart := plot.Chart{Title: cellName(c), YLabel: "connections", Note: c.Reason, Series: []plot.Series{{Name: names[0]}}}
	last := 0.0
	for i, column := range []Column{c.Kernel, c.Weir} {
		s := plot.Series{Name: names[1+i]}
		if column.SNATMeasured != nil {
			for _, p := range column.History {
				s.X, s.Y = append(s.X, p.Seconds), append(s.Y, float64(p.Held))
				last = max(last, p.Seconds)
			}
		}
		chart.Series = append(chart.Series, s)
	}
	chart.Series[0].X, chart.Series[0].Y = []float64{0, last}, []float64{float64(c.Plan.Holds), float64(c.Plan.Holds)}
	return chart
}

// short is a name as long as the room left of a bar.
func short(name string) string {
	const room = 36
	letters := []rune(name)
	if len(letters) <= room {
		return name
	}
	return string(letters[:room-1]) + "…"
}
