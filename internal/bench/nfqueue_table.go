package bench

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/plot"
)

// nfqGroup is the roads of one load, setting and family.
type nfqGroup struct {
	load, offload, family, title, unit string
	results                            []*measure.Result
}

// nfqGroups keeps the order in which things were measured.
func nfqGroups(results []*measure.Result) []*nfqGroup {
	var groups []*nfqGroup
	for _, r := range results {
		p := r.Parameters
		at := slices.IndexFunc(groups, func(g *nfqGroup) bool {
			return g.load == p[ParamLoad] && g.offload == p[ParamOffload] && g.family == p[ParamFamily]
		})
		if at < 0 {
			at = len(groups)
			groups = append(groups, &nfqGroup{p[ParamLoad], p[ParamOffload], p[ParamFamily], p[ParamTitle], p[ParamUnit], nil})
		}
		groups[at].results = append(groups[at].results, r)
	}
	return groups
}

func (g *nfqGroup) heading() string {
	return fmt.Sprintf("%s, %s, segmentation offload %s", g.title, g.family, g.offload)
}

func (g *nfqGroup) road(name string) *measure.Result {
	for _, r := range g.results {
		if r.Road == name {
			return r
		}
	}
	return nil
}

// rows are the group's table: header, then a row for each road.
func (g *nfqGroup) rows() [][]string {
	datagrams := slices.ContainsFunc(g.results, func(r *measure.Result) bool { return !math.IsNaN(figureOf(r, FigureDelivered)) })
	trips := slices.ContainsFunc(g.results, func(r *measure.Result) bool { return !math.IsNaN(figureOf(r, FigureBest)) })
	header := []string{"road", g.unit, "lowest-highest", "x direct"}
	names := []string{FigureDirect}
	if g.road(RoadNfqlb) != nil || g.road(RoadNfqlbQueues) != nil {
		header, names = append(header, "x nfqlb"), append(names, FigurePeer)
	}
	if trips {
		header, names = append(header, "best", "p99"), append(names, FigureBest, FigureP99)
	}
	if datagrams {
		if !trips {
			header, names = append(header, "offered"), append(names, FigureOffered)
		}
		header, names = append(header, "delivered %"), append(names, FigureDelivered)
	}
	header = append(header, "machine %", "µs/packet", "queued", "queue drops", "user drops")
	names = append(names, FigureMachine, FigurePacketCost, FigureQueued, FigureQueueDrops, FigureUserDrops)
	rows := [][]string{header}
	for _, r := range g.results {
		state := ""
		if r.Parameters[ParamAbsent] != "" {
			state = "not available"
		} else if r.Parameters[ParamFailed] != "" {
			state = "failed"
		}
		if state != "" {
			row := []string{r.Road, state}
			for range len(header) - 2 {
				row = append(row, "-")
			}
			rows = append(rows, row)
			continue
		}
		row := []string{r.Road, number(figureOf(r, FigureRate)), number(figureOf(r, FigureRateLow)) + "-" + number(figureOf(r, FigureRateHigh))}
		for _, name := range names {
			text := number(figureOf(r, name))
			if v := figureOf(r, name); slices.Contains([]string{FigureQueued, FigureQueueDrops, FigureUserDrops}, name) && !math.IsNaN(v) {
				text = strconv.FormatFloat(v, 'f', 0, 64)
			}
			row = append(row, text)
		}
		rows = append(rows, row)
	}
	return rows
}

// queueLines are the statistics of each road's queues before and after.
func queueLines(results []*measure.Result) []string {
	var lines []string
	seen := map[string]bool{}
	for _, r := range results {
		p := r.Parameters
		if p[ParamBefore] == "" && p[ParamAfter] == "" {
			continue
		}
		line := fmt.Sprintf("%s, before: %s\n%s, after:  %s", p[ParamNetwork], p[ParamBefore], p[ParamNetwork], p[ParamAfter])
		if !seen[line] {
			seen[line] = true
			lines = append(lines, line)
		}
	}
	return lines
}

// nfqRemarks are the lines under the tables.
func nfqRemarks(results []*measure.Result) []string {
	var lines []string
	seen := map[string]bool{}
	for _, r := range results {
		if why := r.Parameters[ParamAbsent]; why != "" && !seen[r.Road] {
			seen[r.Road] = true
			lines = append(lines, fmt.Sprintf("not available: %s: %s", r.Road, why))
		}
	}
	for _, why := range failures(results) {
		lines = append(lines, "failed: "+why)
	}
	return lines
}

// WriteNFQueue writes the results of [NFQueue] as tables for people, and what the aims came to.
func WriteNFQueue(w io.Writer, results []*measure.Result) error {
	if len(results) == 0 {
		return nil
	}
	for _, group := range nfqGroups(results) {
		fmt.Fprintln(w, group.heading())
		if err := writeRows(w, group.rows()); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(w, nfqText(results))
	return err
}

// nfqText is what stands under the tables: queues, what is missing, aims, method.
func nfqText(results []*measure.Result) string {
	var lines []string
	if queues := queueLines(results); len(queues) > 0 {
		lines = append(append(append(lines, "Queues:"), queues...), "")
	}
	if remarks := nfqRemarks(results); len(remarks) > 0 {
		lines = append(append(lines, remarks...), "")
	}
	if aims := nfqAims(results); len(aims) > 0 {
		lines = append(append(append(lines, "Aims:"), aims...), "")
	}
	return strings.Join(append(lines, nfqMethod(results)), "\n")
}

// aim is one thing the issue asks for.
type aim struct {
	text          string
	load, offload string // offload "": as measured
	road, figure  string
	unit          string
	limit         float64
	most          bool // limit is the most, not the least
}

func aims() []aim {
	return []aim{
		{"processor time of weir, saturated", LoadFlood, "", RoadQueue, FigurePacketCost, "µs/packet", 4.5, true},
		{"fast path, one TCP stream, offload on", LoadTCP, "on", RoadFast, FigureDirect, "of direct", .95, false},
		{"fast path, one TCP stream, offload off", LoadTCP, "off", RoadFast, FigureDirect, "of direct", .95, false},
	}
}

// nfqAims says what each aim came to.
func nfqAims(results []*measure.Result) []string {
	var lines []string
	for _, group := range nfqGroups(results) {
		for _, aim := range aims() {
			if group.load != aim.load || aim.offload != "" && aim.offload != group.offload {
				continue
			}
			want := fmt.Sprintf("at least %g", aim.limit)
			if aim.most {
				want = fmt.Sprintf("at most %g", aim.limit)
			}
			r := group.road(aim.road)
			if r == nil {
				continue
			}
			value, verdict := figureOf(r, aim.figure), "not reached"
			switch {
			case math.IsNaN(value):
				verdict = "not measured"
			case (value >= aim.limit) != aim.most || value == aim.limit:
				verdict = "reached"
			}
			lines = append(lines, fmt.Sprintf("  %s, %s: %s %s; here %s: %s", aim.text, group.family, want, aim.unit, number(value), verdict))
		}
	}
	return lines
}

// nfqMethod says how the numbers came about.
func nfqMethod(results []*measure.Result) string {
	first := results[0]
	text := fmt.Sprintf(`Medians of %s rounds of %s s; roads took turns in each round. "x direct": median of the ratios within the rounds, to the same
way without a rule. "machine %%": busy time of all cores, softirqs included, less that of other programs. "µs/packet":
processor time of the balancer's process for each packet of its queues; forwarding is in it, for a verdict's system call does it.
Datagrams are sent by one thread in batches and counted by another; %s, %d cores, Linux %s.`,
		first.Parameters["rounds"], first.Parameters["seconds"], first.Machine.CPU, first.Machine.Cores, first.Machine.Kernel)
	if busy := others(results); busy > 0.1 {
		text += fmt.Sprintf("\nOther programs kept %s cores busy meanwhile: trust the ratios more than the rates.", number(busy))
	}
	if slow := first.Parameters[ParamSlow]; slow != "" {
		text += "\nThe run was not preferred to other programs: " + slow
	}
	return text
}

// addNFQueue draws a picture of each group, and its table.
func addNFQueue(report *plot.Report, results []*measure.Result) {
	for _, group := range nfqGroups(results) {
		rate := plot.Bars{Title: group.heading(), Unit: group.unit, Names: []string{group.unit}, Note: "Median of the rounds; the line spans the lowest and the highest."}
		if group.unit == "µs" {
			rate.Note += " Less is better."
		}
		for _, r := range group.results {
			rate.Groups = append(rate.Groups, plot.Group{
				Name: r.Road, Values: []float64{figureOf(r, FigureRate)},
				Spread: [][2]float64{{orZero(figureOf(r, FigureRateLow)), orZero(figureOf(r, FigureRateHigh))}},
			})
		}
		rows := group.rows()
		report.Figures = append(report.Figures, rate)
		report.Tables = append(report.Tables, plot.Table{Title: group.heading(), Header: rows[0], Rows: rows[1:]})
	}
}
