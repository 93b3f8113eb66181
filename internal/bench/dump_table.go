package bench

import (
	"fmt"
	"math"
	"strings"
	"time"

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
	result.Parameters[paramVerdict] = verdictReached
	if len(missed) > 0 {
		result.Parameters[paramVerdict], result.Parameters[paramMissed] = verdictMissed, strings.Join(missed, "; ")
	}
	if flows < r.config.Flows {
		r.note(fmt.Sprintf("%d flows: each has a descriptor and a port of its own", flows))
	}
	if len(r.notes) > 0 {
		result.Parameters[paramNote] = strings.Join(r.notes, "; ")
	}
}

// dumpTables are one: a row for each data path.
func dumpTables(results []*measure.Result) []plot.Table {
	return []plot.Table{tableOf("Dumps", results, nil,
		pathColumn("data path"), counted("flows", figureFlows), counted("offered/s", figureAsked), counted("reached/s", figureReached),
		counts("lost without dumps", "/", figureQuietLost, figureQuietSent), counted("dumps", figureDumps),
		formatted("seconds each", "%.2f", figureDumpTime), counted("listed", figureListed), counted("scrapes", figureScrapes),
		counts("lost with dumps", "/", figureDumpingLost, figureDumpingSent),
		column{"verdict", func(r *measure.Result) string { return verdictOf(r, paramNote) }})}
}

func dumpVerdict(results []*measure.Result) string {
	return fmt.Sprintf("%d data paths, aim missed by %d", len(results), missedBy(results))
}

func dumpMethod(results []*measure.Result) string {
	m := results[0].Machine
	return fmt.Sprintf(`Aim: while all flows are listed (weir lb flows --json) and the metrics are read, no datagram of these flows is lost. A data path that loses
some without a dump is tried at lower rates first. Generator, data path, server and weir lb flows share the machine: %s, %d cores, Linux %s. Started %s.`,
		m.CPU, m.Cores, m.Kernel, results[0].Started.UTC().Format(time.DateTime))
}

// dumpPictures are the rates and the losses.
func dumpPictures(results []*measure.Result) []plot.Figure {
	bars := plot.Bars{Title: "dump: datagrams while all flows are listed", Names: []string{"a second", "lost in all"}}
	for _, r := range results {
		if rate := figureOf(r, figureReached); !math.IsNaN(rate) {
			bars.Groups = append(bars.Groups, plot.Group{Name: r.Path, Values: []float64{rate, figureOf(r, figureDumpingLost)}})
		}
	}
	if len(bars.Groups) == 0 {
		return nil
	}
	return []plot.Figure{bars}
}
