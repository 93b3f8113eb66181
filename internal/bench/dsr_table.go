package bench

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/weir-lb/weir/internal/terminal"
	"github.com/weir-lb/weir/internal/testbed/measure"
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

// dsrGrid is dsr results by load, road and family, in the order they were measured.
type dsrGrid struct {
	loads, families, roads []string
	cells                  map[[3]string]*measure.Result
}

func gridOf(results []*measure.Result) dsrGrid {
	g := dsrGrid{cells: map[[3]string]*measure.Result{}}
	add := func(list *[]string, name string) {
		if !slices.Contains(*list, name) {
			*list = append(*list, name)
		}
	}
	for _, r := range results {
		load, family := r.Parameters[ParamLoad], r.Parameters[ParamFamily]
		add(&g.loads, load)
		add(&g.families, family)
		add(&g.roads, r.Road)
		g.cells[[3]string{load, r.Road, family}] = r
	}
	return g
}

func (g dsrGrid) at(load, road, family string) *measure.Result {
	return g.cells[[3]string{load, road, family}]
}

// dsrTitle names a load and its unit.
func dsrTitle(load string) (title, unit, costUnit string) {
	switch load {
	case "iperf2":
		return "TCP, iperf 2, window 64 KB", "Gbit/s", "ms/Gbit"
	case "iperf3":
		return "TCP, iperf3", "Gbit/s", "ms/Gbit"
	case LoadUDP:
		return fmt.Sprintf("UDP, %d bytes of payload, 1024 flows, one thread at a packet socket", floodPayload), "Mpps", "ns/packet"
	case LoadFrames:
		return fmt.Sprintf("UDP, %d bytes of payload, 1024 flows, bare frames of one thread in the kernel", floodPayload), "Mpps", "ns/packet"
	}
	if flows, ok := strings.CutPrefix(load, livePrefix); ok {
		return fmt.Sprintf("UDP frames of 64 bytes (IPv6: 84), %s flows, one core", flows), "Mpps", "ns/packet"
	}
	return load, "", ""
}

// rows are the table of one load and family: header, then a row for each road.
func (g dsrGrid) rows(load, family string) [][]string {
	_, unit, cost := dsrTitle(load)
	rows := [][]string{{"road", unit, "lowest-highest", "x routing", "x DNAT", "CPU " + cost, "own " + cost, "x routing"}}
	for _, road := range g.roads {
		r := g.at(load, road, family)
		if r == nil || r.Parameters[ParamFailed] != "" {
			rows = append(rows, []string{road, "failed", "-", "-", "-", "-", "-", "-"})
			continue
		}
		row := []string{road, number(figureOf(r, FigureRate)), number(figureOf(r, FigureRateLow)) + "-" + number(figureOf(r, FigureRateHigh))}
		for _, name := range []string{FigureRatio, FigureDNAT, FigureCost, FigureOwn, FigureOwnRatio} {
			row = append(row, number(figureOf(r, name)))
		}
		rows = append(rows, row)
	}
	return rows
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

// failures lists what could not be measured, and why.
func failures(results []*measure.Result) []string { return remarks(results, ParamFailed) }

// remarks lists the results that have that parameter, with what it says.
func remarks(results []*measure.Result, parameter string) []string {
	var all []string
	for _, r := range results {
		if why := r.Parameters[parameter]; why != "" {
			all = append(all, fmt.Sprintf("%s, %s, %s: %s", r.Road, r.Parameters[ParamLoad], r.Parameters[ParamFamily], why))
		}
	}
	return all
}

// Failed counts the results that hold no figures because their road or load failed.
func Failed(results []*measure.Result) int { return len(failures(results)) }

// others is the median of what other programs took, in cores, over all results.
func others(results []*measure.Result) float64 {
	var all []float64
	for _, r := range results {
		all = append(all, figureOf(r, FigureOthers))
	}
	return spreadOf(all).median
}

// WriteDSR writes the results of [DSR] as tables for people.
func WriteDSR(w io.Writer, results []*measure.Result) error {
	if len(results) == 0 {
		return nil
	}
	if err := writeGrid(w, results, dsrGrid.rows); err != nil {
		return err
	}
	for _, share := range remarks(results, ParamLost) {
		if err := terminal.Prose(w, "lost: "+share); err != nil {
			return err
		}
	}
	return terminal.Prose(w, dsrMethod(results))
}

// writeGrid writes a table for each load and family, and what failed.
func writeGrid(w io.Writer, results []*measure.Result, rows func(g dsrGrid, load, family string) [][]string) error {
	grid := gridOf(results)
	for _, load := range grid.loads {
		title, _, _ := dsrTitle(load)
		for _, family := range grid.families {
			fmt.Fprintf(w, "%s, %s\n", title, family)
			if err := writeRows(w, rows(grid, load, family)); err != nil {
				return err
			}
		}
	}
	for _, why := range failures(results) {
		if err := terminal.Prose(w, "failed: "+why); err != nil {
			return err
		}
	}
	return nil
}

// writeRows writes a table whose first column is words, and an empty line.
func writeRows(w io.Writer, rows [][]string) error {
	table := terminal.NewTable(w, true)
	widest := 0
	for _, row := range rows {
		widest = max(widest, len(row[0]))
	}
	for _, row := range rows {
		fmt.Fprintf(table, "%-*s\t%s\t\n", widest, row[0], strings.Join(row[1:], "\t"))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w)
	return err
}

// dsrMethod says how the numbers came about.
func dsrMethod(results []*measure.Result) string {
	first := results[0]
	text := fmt.Sprintf(`Medians of %s rounds of %s s; roads took turns in each round. "x routing" and "x DNAT" are medians of the ratios within
the rounds, to plain routing and to iptables-dnat. CPU: processor time of the whole machine, softirqs included, less that
of other programs; own: of our processes and the kernel threads that carry packets.
%s, %d cores, Linux %s, TCP %s, offloads as the kernel sets them.`,
		first.Parameters["rounds"], first.Parameters["seconds"], first.Machine.CPU, first.Machine.Cores, first.Machine.Kernel, first.Parameters["tcp"])
	if busy := others(results); busy > 0.1 {
		text += fmt.Sprintf("\nOther programs kept %s cores busy meanwhile: trust the ratios more than the rates, and own more than CPU.", number(busy))
	}
	return text
}
