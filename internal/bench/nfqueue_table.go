package bench

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/plot"
)

// nfqHeading names a group: load, offload and family.
func nfqHeading(g *group) string {
	return fmt.Sprintf("%s, %s, segmentation offload %s", g.results[0].Parameters[paramTitle], g.keys[2], g.keys[1])
}

func nfqGroups(results []*measure.Result) []*group {
	return groupsOf(results, paramLoad, paramOffload, paramFamily)
}

// nfqColumns are those that have something in this group.
func nfqColumns(g *group) []column {
	has := func(figure string) bool {
		return slices.ContainsFunc(g.results, func(r *measure.Result) bool { return !math.IsNaN(figureOf(r, figure)) })
	}
	unit := g.results[0].Parameters[paramUnit]
	columns := []column{pathColumn("path"), numbered(unit, figureRate), ranged(figureRateLow, figureRateHigh), numbered("x direct", figureDirect)}
	if g.of(pathNfqlb) != nil || g.of(pathNfqlbQueues) != nil {
		columns = append(columns, numbered("x nfqlb", figurePeer))
	}
	trips := has(figureBest)
	if trips {
		columns = append(columns, numbered("best", figureBest), numbered("p99", figureP99))
	}
	if has(figureDelivered) {
		if !trips {
			columns = append(columns, numbered("offered", figureOffered))
		}
		columns = append(columns, numbered("delivered %", figureDelivered))
	}
	return append(columns, numbered("machine %", figureMachine), numbered("µs/packet", figurePacketCost),
		counted("queued", figureQueued), counted("queue drops", figureQueueDrops), counted("user drops", figureUserDrops))
}

// nfqTables are a table for each load, setting and family.
func nfqTables(results []*measure.Result) (tables []plot.Table) {
	for _, g := range nfqGroups(results) {
		tables = append(tables, tableOf(nfqHeading(g), g.results, stateOf, nfqColumns(g)...))
	}
	return tables
}

// nfqPictures are the rates of each load, setting and family.
func nfqPictures(results []*measure.Result) (pictures []plot.Figure) {
	for _, g := range nfqGroups(results) {
		unit := g.results[0].Parameters[paramUnit]
		rate := plot.Bars{Title: nfqHeading(g), Unit: unit, Names: []string{unit}, Note: medianNote}
		if unit == "µs" {
			rate.Note += " Less is better."
		}
		pictures = append(pictures, comparedBars(rate, []*group{g}, figureRate, figureRateLow, figureRateHigh))
	}
	return pictures
}

// queueLines are the statistics of each path's queues before and after.
func queueLines(results []*measure.Result) []string {
	var lines []string
	seen := map[string]bool{}
	for _, r := range results {
		p := r.Parameters
		if p[paramBefore] == "" && p[paramAfter] == "" {
			continue
		}
		line := fmt.Sprintf("%s, before: %s\n%s, after:  %s", p[paramNetwork], p[paramBefore], p[paramNetwork], p[paramAfter])
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
		if why := r.Parameters[paramAbsent]; why != "" && !seen[r.Path] {
			seen[r.Path] = true
			lines = append(lines, fmt.Sprintf("not available: %s: %s", r.Path, why))
		}
	}
	return append(lines, failures(results)...)
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

// aim is one thing the issue requires.
type aim struct {
	text          string
	load, offload string // offload "": as measured
	path, figure  string
	unit          string
	limit         float64
	upper         bool // the limit is a maximum, not a minimum
}

func aims() []aim {
	return []aim{
		{"processor time of weir, saturated", loadFlood, "", pathQueue, figurePacketCost, "µs/packet", 4.5, true},
		{"fast path, one TCP stream, offload on", loadTCP, "on", pathFast, figureDirect, "of direct", .95, false},
		{"fast path, one TCP stream, offload off", loadTCP, "off", pathFast, figureDirect, "of direct", .95, false},
	}
}

// nfqAims says what each aim came to.
func nfqAims(results []*measure.Result) []string {
	var lines []string
	for _, group := range nfqGroups(results) {
		for _, aim := range aims() {
			if group.keys[0] != aim.load || aim.offload != "" && aim.offload != group.keys[1] {
				continue
			}
			want := fmt.Sprintf("at least %g", aim.limit)
			if aim.upper {
				want = fmt.Sprintf("at most %g", aim.limit)
			}
			r := group.of(aim.path)
			if r == nil {
				continue
			}
			value, verdict := figureOf(r, aim.figure), "not reached"
			switch {
			case math.IsNaN(value):
				verdict = "not measured"
			case (value >= aim.limit) != aim.upper || value == aim.limit:
				verdict = "reached"
			}
			lines = append(lines, fmt.Sprintf("  %s, %s: %s %s; here %s: %s", aim.text, group.keys[2], want, aim.unit, number(value), verdict))
		}
	}
	return lines
}

// nfqMethod says how the numbers came about.
func nfqMethod(results []*measure.Result) string {
	first := results[0]
	text := fmt.Sprintf(`Medians of %s rounds of %s s; the paths took turns in each round. "x direct": median of the ratios within the rounds, to the same
path without a rule. "machine %%": busy time of all cores, softirqs included, less that of other programs. "µs/packet":
processor time of the balancer's process for each packet of its queues; forwarding is in it, for a verdict's system call does it.
Datagrams are sent by one thread in batches and counted by another; %s, %d cores, Linux %s.`,
		first.Parameters["rounds"], first.Parameters["seconds"], first.Machine.CPU, first.Machine.Cores, first.Machine.Kernel)
	if slow := first.Parameters[paramSlow]; slow != "" {
		slow = "The run was not preferred to other programs: " + slow
		return lines(text, othersText(results, "trust the ratios more than the rates"), slow)
	}
	return lines(text, othersText(results, "trust the ratios more than the rates"))
}
