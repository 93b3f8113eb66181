package bench

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/weir-lb/weir/internal/terminal"
	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/plot"
)

// figureOf is one figure of a result; NaN when it has none of that name.
func figureOf(r *measure.Result, name string) float64 {
	if r != nil {
		for _, f := range r.Figures {
			if f.Name == name {
				return f.Value
			}
		}
	}
	return math.NaN()
}

// column is one column of a table: its heading, and its cell in the row of a result.
type column struct {
	head string
	cell func(*measure.Result) string
}

// numbered is a figure with three digits.
func numbered(head, figure string) column {
	return column{head, func(r *measure.Result) string { return number(figureOf(r, figure)) }}
}

// counted is a figure without decimals.
func counted(head, figure string) column {
	return column{head, func(r *measure.Result) string { return wholeNumber(figureOf(r, figure)) }}
}

// formatted is a figure in a format of its own.
func formatted(head, format, figure string) column {
	return column{head, func(r *measure.Result) string {
		if v := figureOf(r, figure); !math.IsNaN(v) {
			return fmt.Sprintf(format, v)
		}
		return "-"
	}}
}

// counts is several figures without decimals, with something between them.
func counts(head, between string, figures ...string) column {
	return column{head, func(r *measure.Result) string {
		var all []string
		for _, figure := range figures {
			all = append(all, wholeNumber(figureOf(r, figure)))
		}
		if !slices.ContainsFunc(all, func(text string) bool { return text != "-" }) {
			return "-"
		}
		return strings.Join(all, between)
	}}
}

// ranged is the lowest and the highest of the rounds.
func ranged(low, high string) column {
	return column{"lowest-highest", func(r *measure.Result) string {
		return number(figureOf(r, low)) + "-" + number(figureOf(r, high))
	}}
}

// pathColumn names the path of a result.
func pathColumn(head string) column {
	return column{head, func(r *measure.Result) string { return r.Path }}
}

// tableOf has a row for each result. state says why a result has no figures, in the second column; nil: the cells say it.
func tableOf(title string, results []*measure.Result, state func(*measure.Result) string, columns ...column) plot.Table {
	t := plot.Table{Title: title}
	for _, c := range columns {
		t.Header = append(t.Header, c.head)
	}
	for _, r := range results {
		row, missing := make([]string, len(columns)), ""
		if state != nil {
			missing = state(r)
		}
		for i, c := range columns {
			switch {
			case i == 0 || missing == "":
				row[i] = c.cell(r)
			case i == 1:
				row[i] = missing
			default:
				row[i] = "-"
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// stateOf says why a result has no figures; empty if it has.
func stateOf(r *measure.Result) string {
	switch {
	case r.Parameters[paramAbsent] != "":
		return "not available"
	case r.Parameters[paramFailed] != "":
		return "failed"
	}
	return ""
}

// verdictOf is the verdict on a result with what it missed and what is to be noted, in one line.
func verdictOf(r *measure.Result, notes ...string) string {
	verdict := r.Parameters[paramVerdict]
	if why := r.Parameters[paramMissed]; why != "" {
		verdict += ": " + why
	}
	if why := r.Parameters[paramFailed]; why != "" {
		verdict = "failed: " + why
	}
	for _, name := range notes {
		if text := r.Parameters[name]; text != "" {
			verdict += " (" + text + ")"
		}
	}
	return strings.Join(strings.Fields(verdict), " ")
}

// group is the results that are compared with each other: those with the same values of some parameters.
type group struct {
	keys    []string
	results []*measure.Result
}

// groupsOf keeps the order in which things were measured. Of two results of one path in a group the later is kept.
func groupsOf(results []*measure.Result, parameters ...string) (groups []*group) {
	for _, r := range results {
		var keys []string
		for _, name := range parameters {
			keys = append(keys, r.Parameters[name])
		}
		at := slices.IndexFunc(groups, func(g *group) bool { return slices.Equal(g.keys, keys) })
		if at < 0 {
			at = len(groups)
			groups = append(groups, &group{keys: keys})
		}
		g := groups[at]
		if i := slices.IndexFunc(g.results, func(o *measure.Result) bool { return o.Path == r.Path }); i >= 0 {
			g.results[i] = r
		} else {
			g.results = append(g.results, r)
		}
	}
	return groups
}

// of is the result of a path; nil if it was not measured.
func (g *group) of(path string) *measure.Result {
	for _, r := range g.results {
		if r.Path == path {
			return r
		}
	}
	return nil
}

// pathsOf are the paths of the groups in the order of their rows.
func pathsOf(groups []*group) (paths []string) {
	for _, g := range groups {
		for _, r := range g.results {
			if !slices.Contains(paths, r.Path) {
				paths = append(paths, r.Path)
			}
		}
	}
	return paths
}

// comparedBars draws a figure of each path, in each of the groups, with the lowest and highest of the rounds.
func comparedBars(bars plot.Bars, groups []*group, figure, low, high string) plot.Bars {
	for _, path := range pathsOf(groups) {
		compared := plot.Group{Name: path}
		for _, g := range groups {
			r := g.of(path)
			compared.Values = append(compared.Values, figureOf(r, figure))
			compared.Spread = append(compared.Spread, [2]float64{orZero(figureOf(r, low)), orZero(figureOf(r, high))})
		}
		bars.Groups = append(bars.Groups, compared)
	}
	return bars
}

func orZero(v float64) float64 {
	if math.IsNaN(v) { // not measured: its bar says so
		return 0
	}
	return v
}

// number writes three digits: what such a measurement can claim.
func number(v float64) string {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "-"
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

func wholeNumber(v float64) string {
	if math.IsNaN(v) {
		return "-"
	}
	return fmt.Sprintf("%.0f", v)
}

// failures are lines that say what could not be measured, and why.
func failures(results []*measure.Result) []string { return remarks("failed", results, paramFailed) }

// remarks are lines with what a parameter says, for the results that have it.
func remarks(what string, results []*measure.Result, parameter string) (all []string) {
	for _, r := range results {
		if why := r.Parameters[parameter]; why != "" {
			all = append(all, fmt.Sprintf("%s: %s, %s, %s: %s", what, r.Path, r.Parameters[paramLoad], r.Parameters[paramFamily], why))
		}
	}
	return all
}

// lines joins the lines that are not empty.
func lines(all ...string) string {
	return strings.Join(slices.DeleteFunc(all, func(line string) bool { return line == "" }), "\n")
}

// othersText warns of what other programs took meanwhile; empty if that was next to nothing.
func othersText(results []*measure.Result, advice string) string {
	var all []float64
	for _, r := range results {
		all = append(all, figureOf(r, figureOthers))
	}
	busy := spreadOf(all).median
	if !(busy > 0.1) {
		return ""
	}
	return fmt.Sprintf("Other programs kept %s cores busy meanwhile: %s.", number(busy), advice)
}

// writeTable writes a table and an empty line; one without rows is left out. In a plain one all columns are words.
func writeTable(w io.Writer, t plot.Table, plain bool) error {
	if len(t.Rows) == 0 {
		return nil
	}
	if !plain {
		fmt.Fprintln(w, t.Title)
	}
	rows := append([][]string{t.Header}, t.Rows...)
	table := terminal.NewTable(w, !plain)
	widest := 0
	for _, row := range rows {
		widest = max(widest, len(row[0]))
	}
	for _, row := range rows {
		if plain {
			fmt.Fprintln(table, strings.Join(row, "\t"))
		} else { // the first column is words
			fmt.Fprintf(table, "%-*s\t%s\t\n", widest, row[0], strings.Join(row[1:], "\t"))
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w)
	return err
}
