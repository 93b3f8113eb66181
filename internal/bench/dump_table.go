package bench

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/weir-lb/weir/internal/terminal"
	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/plot"
)

// judge holds what was measured against the aim: every flow is listed at least once meanwhile, and no datagram is lost.
func (r *dumpRun) judge(result *measure.Result, flows int, dumping dumpPhase, dumps dumpCounts) {
	var missed []string
	if dumping.lost > 0 {
		missed = append(missed, fmt.Sprintf("%d of %d datagrams lost (%s)", dumping.lost, dumping.sent, strings.Join(dumping.where, ", ")))
	}
	if dumps.listed < flows {
		missed = append(missed, fmt.Sprintf("%d of %d flows listed", dumps.listed, flows))
	}
	result.Parameters[ParamVerdict] = VerdictReached
	if len(missed) > 0 {
		result.Parameters[ParamVerdict], result.Parameters["missed"] = VerdictMissed, strings.Join(missed, "; ")
	}
	if flows < r.config.Flows {
		r.note(fmt.Sprintf("%d flows: each has a descriptor and a port of its own", flows))
	}
	if len(r.notes) > 0 {
		result.Parameters["note"] = strings.Join(r.notes, "; ")
	}
}

// DumpFailed counts the data paths that missed the aim, or could not be measured.
func DumpFailed(results []*measure.Result) (failed int) {
	for _, r := range results {
		if r.Parameters[ParamVerdict] == VerdictMissed || r.Parameters[ParamFailed] != "" {
			failed++
		}
	}
	return failed
}

func dumpRows(results []*measure.Result) [][]string {
	rows := [][]string{{"data path", "flows", "offered/s", "reached/s", "lost without dumps", "dumps", "seconds each", "listed", "scrapes", "lost with dumps", "verdict"}}
	for _, r := range results {
		verdict := r.Parameters[ParamVerdict]
		if why := r.Parameters["missed"]; why != "" {
			verdict += ": " + why
		}
		if why := r.Parameters[ParamFailed]; why != "" {
			verdict = "failed: " + why
		}
		if note := r.Parameters["note"]; note != "" {
			verdict += " (" + note + ")"
		}
		verdict = strings.Join(strings.Fields(verdict), " ")
		if len(r.Figures) == 0 {
			rows = append(rows, []string{r.Road, "-", "-", "-", "-", "-", "-", "-", "-", "-", verdict})
			continue
		}
		number := func(name string) string { return fmt.Sprintf("%.0f", figureOf(r, name)) }
		rows = append(rows, []string{
			r.Road, number(FigureFlows), number(FigureAsked), number(FigureReached), number(FigureQuietLost) + "/" + number(FigureQuietSent),
			number(FigureDumps), fmt.Sprintf("%.2f", figureOf(r, FigureDumpTime)), number(FigureListed), number(FigureScrapes),
			number(FigureDumpingLost) + "/" + number(FigureDumpingSent), verdict,
		})
	}
	return rows
}

// WriteDump writes the results of [Dump] as a table for people.
func WriteDump(w io.Writer, results []*measure.Result) error {
	if len(results) == 0 {
		return nil
	}
	table := terminal.NewTable(w, false)
	for _, row := range dumpRows(results) {
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	return errors.Join(terminal.Prose(w, "\n"+dumpMethod(results)), terminal.Prose(w, dumpVerdict(results)))
}

func dumpVerdict(results []*measure.Result) string {
	return fmt.Sprintf("%d data paths, aim missed by %d", len(results), DumpFailed(results))
}

func dumpMethod(results []*measure.Result) string {
	m := results[0].Machine
	return fmt.Sprintf(`Aim: while all flows are listed (weir lb flows --json) and the metrics are read, no datagram of these flows is lost. A data path that loses
some without a dump is tried at lower rates first. Generator, data path, server and weir lb flows share the machine: %s, %d cores, Linux %s. Started %s.`,
		m.CPU, m.Cores, m.Kernel, results[0].Started.UTC().Format(time.DateTime))
}

// addDump draws the rates, and the table.
func addDump(report *plot.Report, results []*measure.Result) {
	report.Verdict, report.OK = dumpVerdict(results), DumpFailed(results) == 0
	var groups []plot.Group
	for _, r := range results {
		if rate := figureOf(r, FigureReached); !math.IsNaN(rate) {
			groups = append(groups, plot.Group{Name: r.Road, Values: []float64{rate, figureOf(r, FigureDumpingLost)}})
		}
	}
	if len(groups) > 0 {
		report.Figures = append(report.Figures, plot.Bars{Title: "dump: datagrams while all flows are listed", Names: []string{"a second", "lost in all"}, Groups: groups})
	}
	rows := dumpRows(results)
	report.Tables = append(report.Tables, plot.Table{Title: "Dumps", Header: rows[0], Rows: rows[1:]})
}
