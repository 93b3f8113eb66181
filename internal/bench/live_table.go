package bench

import (
	"fmt"
	"io"
	"strings"

	"github.com/weir-lb/weir/internal/terminal"
	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/plot"
)

// liveRows are the table of one load and family: header, then a row for each road.
func (g dsrGrid) liveRows(load, family string) [][]string {
	rows := [][]string{{"road", "Mpps", "lowest-highest", "x routing", "x DNAT", "x floor", "own ns", "x routing", "lost"}}
	for _, road := range g.roads {
		r := g.at(load, road, family)
		if r == nil || r.Parameters[ParamFailed] != "" {
			rows = append(rows, []string{road, "failed", "-", "-", "-", "-", "-", "-", "-"})
			continue
		}
		rate := figureOf(r, FigureRate)
		row := []string{road, number(rate), number(figureOf(r, FigureRateLow)) + "-" + number(figureOf(r, FigureRateHigh))}
		for _, name := range []string{FigureRatio, FigureDNAT, FigureFloor} {
			row = append(row, number(figureOf(r, name)))
		}
		row = append(row, number(figureOf(r, FigureOwn)), number(1/figureOf(r, FigureOwnRatio)))
		lost, _, _ := strings.Cut(r.Parameters[ParamLost], " ")
		if lost == "" {
			lost = "0"
		}
		rows = append(rows, append(row, lost))
	}
	return rows
}

// WriteLive writes the results of [Live] as tables for people.
func WriteLive(w io.Writer, results []*measure.Result) error {
	if len(results) == 0 {
		return nil
	}
	if err := writeGrid(w, results, dsrGrid.liveRows); err != nil {
		return err
	}
	return terminal.Prose(w, "\n"+liveMethod(results))
}

// liveMethod says how the numbers came about.
func liveMethod(results []*measure.Result) string {
	first := results[0]
	text := fmt.Sprintf(`Medians of %s rounds of %s s; roads took turns in each round. Ratios are medians of those within the rounds. A thread on one core
has the kernel write each frame anew and redirect it to a veth; the gateway forwards it to another; a program at the end
counts and drops it. "own" is the processor time of our processes and the kernel threads that carry packets: on an idle machine
it says the same as the rate, beside other work it is what to trust. "lost" is the share that was sent and did not come to
the end: queues between two veths that overflow.
%s, %d cores, Linux %s, offloads as the kernel sets them.`,
		first.Parameters["rounds"], first.Parameters["seconds"], first.Machine.CPU, first.Machine.Cores, first.Machine.Kernel)
	if busy := others(results); busy > 0.1 {
		text += fmt.Sprintf("\nOther programs kept %s cores busy meanwhile: trust own and its ratio more than rates.", number(busy))
	}
	return text
}

// addLive draws the rate of each road and a table for each load.
func addLive(report *plot.Report, results []*measure.Result) {
	grid := gridOf(results)
	for _, load := range grid.loads {
		title, unit, _ := dsrTitle(load)
		rate := plot.Bars{Title: title, Unit: unit, Names: grid.families, Note: "Median of the rounds; the line spans the lowest and the highest."}
		for _, road := range grid.roads {
			rates := plot.Group{Name: road}
			for _, family := range grid.families {
				r := grid.at(load, road, family)
				rates.Values = append(rates.Values, figureOf(r, FigureRate))
				rates.Spread = append(rates.Spread, [2]float64{orZero(figureOf(r, FigureRateLow)), orZero(figureOf(r, FigureRateHigh))})
			}
			rate.Groups = append(rate.Groups, rates)
		}
		report.Figures = append(report.Figures, rate)
		for _, family := range grid.families {
			rows := grid.liveRows(load, family)
			report.Tables = append(report.Tables, plot.Table{Title: title + ", " + family, Header: rows[0], Rows: rows[1:]})
		}
	}
}
