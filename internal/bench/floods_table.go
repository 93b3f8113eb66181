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

// The aims: real clients during a flood.
const (
	aimNew    = 0.95      // share of the new handshakes, flows, allocations and probes that succeed
	aimMoves  = 0.7       // of the moves that are due: a client moves between two requests, so one that gets no answer stands still
	aimMemory = 256 << 20 // bytes of growth
	aimSetups = 3000      // allocations a second of one address
	aimQuick  = 0.05      // share of the fragmented datagrams in order that --quick may lose to a busy machine; else none
)

// Verdicts on a flood.
const (
	VerdictReached = "reached"
	VerdictMissed  = "missed"
	VerdictPeer    = "peer"
)

// judge holds the figures of a result against the aims. What belongs to a peer has none.
func (r *floodRun) judge(result *measure.Result) {
	missed := floodMissed(result, r.config.Quick)
	if len(missed) > 0 {
		result.Parameters["missed"] = strings.Join(missed, "; ")
	}
	if len(r.clients.why) > 0 {
		result.Parameters["why"] = strings.Join(firstReasons(r.clients.why), "; ")
	}
	switch {
	case r.target.peer:
		result.Parameters[ParamVerdict] = VerdictPeer
	case len(missed) > 0:
		result.Parameters[ParamVerdict] = VerdictMissed
	default:
		result.Parameters[ParamVerdict] = VerdictReached
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
	if all, ok := value(FigureNew), value(FigureNewOK); ok < aimNew*all {
		missed = append(missed, fmt.Sprintf("new clients %.0f of %.0f", ok, all))
	}
	if n := value(FigureMovedLost); n > 0 {
		missed = append(missed, fmt.Sprintf("%.0f requests or sessions of moved clients lost", n))
	}
	if all, moves := value(FigureMovesDue), value(FigureMoves); moves < aimMoves*all {
		missed = append(missed, fmt.Sprintf("moved clients stood still: %.0f of %.0f moves", moves, all))
	}
	if all, kept := value(FigureAsleep), value(FigureKept); kept < all {
		missed = append(missed, fmt.Sprintf("sleeping sessions %.0f of %.0f", kept, all))
	}
	if n := value(FigureLost); n > 0 {
		missed = append(missed, fmt.Sprintf("%.0f of %.0f established lost", n, value(FigureEstablished)))
	}
	spared := 0.0
	if quick {
		spared = aimQuick
	}
	if n := value(FigureWholeLost); n > spared*value(FigureSent) {
		missed = append(missed, fmt.Sprintf("%.0f of %.0f whole datagrams lost", n, value(FigureSent)))
	}
	if n := value(FigureFragmentsLost); n > spared*value(FigureFragmented) {
		missed = append(missed, fmt.Sprintf("%.0f of %.0f fragmented datagrams lost", n, value(FigureFragmented)))
	}
	if grown := value(FigureResidentMax) - value(FigureResidentBefore); grown > aimMemory {
		missed = append(missed, fmt.Sprintf("memory grew by %.0f MB", grown/1e6))
	}
	if rate := value(FigureReached); r.Parameters[ParamLoad] == AttackSetUp && rate < aimSetups && !quick {
		missed = append(missed, fmt.Sprintf("%.0f set-ups/s", rate))
	}
	return missed
}

// FloodsFailed counts the floods in which Weir missed an aim, or that could not be run.
func FloodsFailed(results []*measure.Result) (failed int) {
	for _, r := range results {
		if r.Parameters[ParamVerdict] == VerdictMissed || r.Parameters[ParamFailed] != "" {
			failed++
		}
	}
	return failed
}

// floodRows are the table: header, then a row for each flood and target.
func floodRows(results []*measure.Result) [][]string {
	rows := [][]string{{"flood", "target", "offered/s", "reached/s", "new ok", "moved lost", "sleepers", "established lost", "fragmented lost", "RSS MB before, max, after", "CPU s", "verdict"}}
	for _, r := range results {
		row := []string{r.Parameters[ParamLoad], r.Road}
		of := func(part, all string) string {
			if n := figureOf(r, all); n > 0 {
				return fmt.Sprintf("%.0f/%.0f", figureOf(r, part), n)
			}
			return "-"
		}
		verdict := r.Parameters[ParamVerdict]
		if why := r.Parameters["missed"]; why != "" {
			verdict += ": " + why
		}
		if why := r.Parameters[ParamFailed]; why != "" {
			verdict = "failed: " + why
		}
		for _, name := range []string{"short", "note"} {
			if text := r.Parameters[name]; text != "" {
				verdict += " (" + text + ")"
			}
		}
		verdict = strings.Join(strings.Fields(verdict), " ")
		if len(r.Figures) == 0 {
			rows = append(rows, append(row, "-", "-", "-", "-", "-", "-", "-", "-", "-", verdict))
			continue
		}
		megabytes := func(name string) float64 { return figureOf(r, name) / 1e6 }
		memory := fmt.Sprintf("%.0f, %.0f, %.0f", megabytes(FigureResidentBefore), megabytes(FigureResidentMax), megabytes(FigureResidentAfter))
		if figureOf(r, FigureResidentMax) == 0 {
			memory = "-"
		}
		rows = append(rows, append(row, fmt.Sprintf("%.0f", figureOf(r, FigureAsked)), fmt.Sprintf("%.0f", figureOf(r, FigureReached)),
			of(FigureNewOK, FigureNew), of(FigureMovedLost, FigureMoves), of(FigureKept, FigureAsleep), of(FigureLost, FigureEstablished),
			of(FigureFragmentsLost, FigureFragmented), memory, fmt.Sprintf("%.1f", figureOf(r, FigureFloodCPU)), verdict))
	}
	return rows
}

// WriteFloods writes the results of [Floods] as a table for people.
func WriteFloods(w io.Writer, results []*measure.Result) error {
	if len(results) == 0 {
		return nil
	}
	table := terminal.NewTable(w, false)
	for _, row := range floodRows(results) {
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, r := range results {
		if why := r.Parameters["why"]; why != "" {
			if err := terminal.Prose(w, fmt.Sprintf("\n%s against %s, the first losses: %s", r.Parameters[ParamLoad], r.Road, strings.TrimSuffix(why, "\n"))); err != nil {
				return err
			}
		}
	}
	return errors.Join(terminal.Prose(w, "\n"+floodsMethod(results)), terminal.Prose(w, floodsVerdict(results)))
}

func floodsVerdict(results []*measure.Result) string {
	counts := map[string]int{}
	for _, r := range results {
		switch {
		case r.Parameters[ParamFailed] != "":
			counts["could not be run"]++
		default:
			verdict, _, _ := strings.Cut(r.Parameters[ParamVerdict], ":")
			counts[verdict]++
		}
	}
	var parts []string
	for _, name := range []string{VerdictReached, VerdictMissed, VerdictPeer, "skipped", "could not be run"} {
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

// addFloods draws how many real clients got through, and the table.
func addFloods(report *plot.Report, results []*measure.Result) {
	report.Verdict, report.OK = floodsVerdict(results), FloodsFailed(results) == 0
	share := func(ok, all float64) float64 {
		if all > 0 {
			return 100 * ok / all
		}
		return math.NaN()
	}
	var floods []string
	groups := map[string][]plot.Group{}
	for _, r := range results {
		if len(r.Figures) == 0 {
			continue
		}
		name := r.Parameters[ParamLoad]
		if groups[name] == nil {
			floods = append(floods, name)
		}
		groups[name] = append(groups[name], plot.Group{Name: r.Road, Values: []float64{
			share(figureOf(r, FigureNewOK), figureOf(r, FigureNew)), share(figureOf(r, FigureKept), figureOf(r, FigureAsleep)),
			share(figureOf(r, FigureEstablished)-figureOf(r, FigureLost), figureOf(r, FigureEstablished)),
		}})
	}
	for _, name := range floods {
		report.Figures = append(report.Figures, plot.Bars{
			Title: "flood " + name + ": real clients that got through", Unit: "%",
			Names: []string{"new", "sleeping", "established"}, Groups: groups[name],
		})
	}
	rows := floodRows(results)
	report.Tables = append(report.Tables, plot.Table{Title: "Floods", Header: rows[0], Rows: rows[1:]})
}
