package bench

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/plot"
)

// The aims: real clients during a flood.
const (
	aimNew    = 0.95      // share of the new handshakes, flows, allocations and probes that succeed
	aimMoves  = 0.7       // of the moves that are due: a client moves between two requests, so one that gets no answer stands still
	aimMemory = 256 << 20 // bytes of growth
	aimSetups = 3000      // allocations a second of one address
	aimQuick  = 0.05      // share of the fragmented datagrams in order that --quick may lose to a busy machine; else none
)

// judge holds the figures of a result against the aims. What belongs to a peer has none.
func (r *floodRun) judge(result *measure.Result) {
	missed := floodMissed(result, r.config.Quick)
	if len(missed) > 0 {
		result.Parameters[paramMissed] = strings.Join(missed, "; ")
	}
	if len(r.clients.why) > 0 {
		result.Parameters["why"] = strings.Join(firstReasons(r.clients.why), "; ")
	}
	switch {
	case r.target.peer:
		result.Parameters[paramVerdict] = verdictPeer
	case len(missed) > 0:
		result.Parameters[paramVerdict] = verdictMissed
	default:
		result.Parameters[paramVerdict] = verdictReached
	}
}

// floodMissed lists the aims that were missed.
func floodMissed(r *measure.Result, quick bool) (missed []string) {
	value := func(name string) float64 {
		if v := figureOf(r, name); !math.IsNaN(v) {
			return v
		}
		return 0
	}
	if all, ok := value(figureNew), value(figureNewOK); ok < aimNew*all {
		missed = append(missed, fmt.Sprintf("new clients %.0f of %.0f", ok, all))
	}
	if n := value(figureMovedLost); n > 0 {
		missed = append(missed, fmt.Sprintf("%.0f requests or sessions of moved clients lost", n))
	}
	if all, moves := value(figureMovesDue), value(figureMoves); moves < aimMoves*all {
		missed = append(missed, fmt.Sprintf("moved clients stood still: %.0f of %.0f moves", moves, all))
	}
	if all, kept := value(figureAsleep), value(figureKept); kept < all {
		missed = append(missed, fmt.Sprintf("sleeping sessions %.0f of %.0f", kept, all))
	}
	if n := value(figureLost); n > 0 {
		missed = append(missed, fmt.Sprintf("%.0f of %.0f established lost", n, value(figureEstablished)))
	}
	spared := 0.0
	if quick {
		spared = aimQuick
	}
	if n := value(figureWholeLost); n > spared*value(figureSent) {
		missed = append(missed, fmt.Sprintf("%.0f of %.0f whole datagrams lost", n, value(figureSent)))
	}
	if n := value(figureFragmentsLost); n > spared*value(figureFragmented) {
		missed = append(missed, fmt.Sprintf("%.0f of %.0f fragmented datagrams lost", n, value(figureFragmented)))
	}
	if cookies, made := value(figureReturned), value(figureSignatures); made > cookies {
		missed = append(missed, fmt.Sprintf("%.0f signatures for %.0f returned cookies", made, cookies))
	} else if made < cookies/2 {
		missed = append(missed, fmt.Sprintf("only %.0f signatures for %.0f returned cookies: not a flood of handshakes with certificates", made, cookies))
	}
	if grown := value(figureResidentMax) - value(figureResidentBefore); grown > aimMemory {
		missed = append(missed, fmt.Sprintf("memory grew by %.0f MB", grown/1e6))
	}
	if rate := value(figureReached); r.Parameters[paramLoad] == attackSetUp && rate < aimSetups && !quick {
		missed = append(missed, fmt.Sprintf("%.0f set-ups/s", rate))
	}
	return missed
}

// shareOf is a count of how many, such as 3/40; "-" when there were none.
func shareOf(head, part, all string) column {
	return column{head, func(r *measure.Result) string {
		if n := figureOf(r, all); n > 0 {
			return fmt.Sprintf("%.0f/%.0f", figureOf(r, part), n)
		}
		return "-"
	}}
}

// floodTables are one: a row for each flood and target.
func floodTables(results []*measure.Result) []plot.Table {
	memory := column{"RSS MB before, max, after", func(r *measure.Result) string {
		megabytes := func(name string) float64 { return figureOf(r, name) / 1e6 }
		if !(figureOf(r, figureResidentMax) > 0) {
			return "-"
		}
		return fmt.Sprintf("%.0f, %.0f, %.0f", megabytes(figureResidentBefore), megabytes(figureResidentMax), megabytes(figureResidentAfter))
	}}
	return []plot.Table{tableOf("Floods", results, nil,
		column{"flood", func(r *measure.Result) string { return r.Parameters[paramLoad] }}, pathColumn("target"),
		counted("offered/s", figureAsked), counted("reached/s", figureReached), shareOf("new ok", figureNewOK, figureNew),
		shareOf("moved lost", figureMovedLost, figureMoves), shareOf("sleepers", figureKept, figureAsleep),
		shareOf("established lost", figureLost, figureEstablished), shareOf("fragmented lost", figureFragmentsLost, figureFragmented),
		memory, formatted("CPU s", "%.1f", figureFloodCPU),
		column{"verdict", func(r *measure.Result) string { return verdictOf(r, "short", paramNote) }})}
}

// floodNotes are the first losses of each flood.
func floodNotes(results []*measure.Result) (notes []string) {
	for _, r := range results {
		if why := r.Parameters["why"]; why != "" {
			notes = append(notes, fmt.Sprintf("%s against %s, the first losses: %s", r.Parameters[paramLoad], r.Path, why))
		}
	}
	return notes
}

func floodsVerdict(results []*measure.Result) string {
	counts := map[string]int{}
	for _, r := range results {
		switch {
		case r.Parameters[paramFailed] != "":
			counts["could not be run"]++
		default:
			verdict, _, _ := strings.Cut(r.Parameters[paramVerdict], ":")
			counts[verdict]++
		}
	}
	var parts []string
	for _, name := range []string{verdictReached, verdictMissed, verdictPeer, "skipped", "could not be run"} {
		if n := counts[name]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", name, n))
		}
	}
	return strings.Join(parts, ", ")
}

func floodsMethod(results []*measure.Result) string {
	m := results[0].Machine
	return fmt.Sprintf(`Aims: %.0f %% of the new handshakes, flows, allocations and probes succeed; no request and no session of a client that moved is lost; every
sleeping session and every established flow or allocation is kept; no fragmented datagram in order is lost; memory grows by at most %d MiB. Peers have no aims. Generator, clients and target share the machine: %s, %d cores,
Linux %s. Started %s.`, 100*aimNew, aimMemory>>20, m.CPU, m.Cores, m.Kernel, results[0].Started.UTC().Format(time.DateTime))
}

// floodPictures are how many real clients got through each flood.
func floodPictures(results []*measure.Result) (pictures []plot.Figure) {
	share := func(ok, all float64) float64 {
		if all > 0 {
			return 100 * ok / all
		}
		return math.NaN()
	}
	measured := slices.DeleteFunc(slices.Clone(results), func(r *measure.Result) bool { return len(r.Figures) == 0 })
	for _, g := range groupsOf(measured, paramLoad) {
		bars := plot.Bars{Title: "flood " + g.keys[0] + ": real clients that got through", Unit: "%", Names: []string{"new", "sleeping", "established"}}
		for _, r := range g.results {
			bars.Groups = append(bars.Groups, plot.Group{Name: r.Path, Values: []float64{
				share(figureOf(r, figureNewOK), figureOf(r, figureNew)), share(figureOf(r, figureKept), figureOf(r, figureAsleep)),
				share(figureOf(r, figureEstablished)-figureOf(r, figureLost), figureOf(r, figureEstablished)),
			}})
		}
		pictures = append(pictures, bars)
	}
	return pictures
}
