package bench

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/weir-lb/weir/internal/lab/measure"
	"github.com/weir-lb/weir/internal/lab/plot"
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

// What zon-lb reached in the reference, in terms of kernel routing of the same run with the sinks used here: 1044 and 1027
// kpps of 64-byte UDP frames of 1024 flows, routing 930.
const (
	zonDSR   = 1.12
	zonNAT   = 1.10
	zonTimes = 2.8 // what is aimed at
)

// liveTargets compares Weir on XDP with zon-lb by way of kernel routing.
func liveTargets(results []*measure.Result) []string {
	grid := gridOf(results)
	busy := others(results) > 0.5 // then rates say little
	var lines []string
	for _, load := range grid.loads {
		for _, family := range grid.families {
			for _, c := range []struct {
				road string
				zon  float64
			}{{"weir-l2dsr-xdp", zonDSR}, {"weir-nat-xdp", zonNAT}} {
				times := figureOf(grid.at(load, c.road, family), FigureRatio)
				if math.IsNaN(times) {
					continue
				}
				own := 1 / figureOf(grid.at(load, c.road, family), FigureOwnRatio)
				verdict, judged := "reached", times
				if busy {
					judged = own
				}
				if judged < zonTimes*c.zon {
					verdict = "not reached"
				}
				lines = append(lines, fmt.Sprintf("  %s, %s flows, %s: %.2f x routing = %.2f x zon-lb: %s (by processor time %s and %s)",
					c.road, strings.TrimPrefix(load, livePrefix), family, times, times/c.zon, verdict, number(own), number(own/c.zon)))
			}
		}
	}
	if lines == nil {
		return nil
	}
	by := "rate"
	if busy {
		by = "processor time, for the machine was busy with others"
	}
	return append([]string{fmt.Sprintf(`target: 64-byte UDP at %.1f x zon-lb. In the reference zon-lb did %.2f (L2-DSR) and %.2f (NAT) x kernel routing of its run, with
1024 flows and these sinks, so that is %.2f and %.2f x the routing of this run. Judged by %s.`, zonTimes, zonDSR, zonNAT, zonTimes*zonDSR, zonTimes*zonNAT, by)}, lines...)
}

// WriteLive writes the results of [Live] as tables for people.
func WriteLive(w io.Writer, results []*measure.Result) error {
	if len(results) == 0 {
		return nil
	}
	if err := writeGrid(w, results, dsrGrid.liveRows); err != nil {
		return err
	}
	for _, line := range liveTargets(results) {
		fmt.Fprintln(w, line)
	}
	_, err := fmt.Fprintf(w, "\n%s\n", liveMethod(results))
	return err
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
