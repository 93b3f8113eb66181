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

// WriteTurn writes the runs of [Turn] for people: a single load as STUNner's script does, with the direct road beside it, a
// sweep as tables.
func WriteTurn(w io.Writer, config TurnConfig, runs []*TurnRun) error {
	if len(runs) == 0 {
		return nil
	}
	if runs[0].Scenario == ScenarioTurnSweep {
		return writeTurnSweep(w, runs)
	}
	text := config.describe()
	for _, run := range runs {
		text += "Results" + turnTitle(run.Road) + "\n" + turnHeader + "\n"
		for _, row := range run.Connections {
			text += row.line() + "\n"
		}
		text += run.Sum.line() + "\n"
		if run.Sum.Reordered > 0 {
			text += fmt.Sprintf("[SUM] %d datagrams received out-of-order\n", run.Sum.Reordered)
		}
		text += turnExtras(run)
	}
	_, err := io.WriteString(w, text+turnMethod(Results(runs))+"\n")
	return err
}

func turnTitle(road string) string {
	server, cat := strings.CutSuffix(road, roadTurnCat)
	switch server {
	case RoadTurnDirect:
		return ", direct, without TURN"
	case RoadTurnWeir:
		server = "weir turn gateway"
	}
	if cat {
		return ", through weir turn cat and " + server
	}
	return ", through " + server
}

// turnExtras are the lines below a load that iperf does not have.
func turnExtras(run *TurnRun) string {
	var b strings.Builder
	if l := run.Latency; l != nil && l.Count() > 0 {
		fmt.Fprintf(&b, "  latency p50 %.3f, p90 %.3f, p99 %.3f, p99.9 %.3f ms\n", measure.Millis(l.Quantile(.5)), measure.Millis(l.Quantile(.9)), measure.Millis(l.Quantile(.99)), measure.Millis(l.Quantile(.999)))
	}
	fmt.Fprint(&b, "  CPU seconds per million packets:")
	for _, p := range run.Processes {
		if cost := run.CPUPerRequest(p.Name); cost > 0 {
			fmt.Fprintf(&b, "  %s %.2f", p.Name, cost.Seconds()*1e6)
		}
	}
	fmt.Fprintf(&b, "  (all of them %.2f)\n", figureOf(run.Result, FigureTurnMachine))
	if lost := figureOf(run.Result, FigureTurnSink); lost > 0 {
		fmt.Fprintf(&b, "  %.0f of the lost ones arrived and found the sink's own buffer full\n", lost)
	}
	return b.String()
}

// turnGrid is the results of a sweep by size, rate and road, in the order they were measured.
type turnGrid struct {
	sizes, rates, roads []string
	cells               map[[3]string]*measure.Result
}

func turnGridOf(results []*measure.Result) turnGrid {
	g := turnGrid{cells: map[[3]string]*measure.Result{}}
	note := func(list *[]string, value string) {
		if !slices.Contains(*list, value) {
			*list = append(*list, value)
		}
	}
	for _, r := range results {
		size, rate := r.Parameters[ParamTurnSize], r.Parameters[ParamTurnRate]
		note(&g.sizes, size)
		note(&g.rates, rate)
		note(&g.roads, r.Road)
		g.cells[[3]string{size, rate, r.Road}] = r
	}
	return g
}

// highest are the rows of the search's table.
func (g turnGrid) highest() [][]string {
	rows := [][]string{{"bytes"}}
	for _, road := range g.roads {
		if road == RoadTurnDirect {
			continue
		}
		rows[0] = append(rows[0], road+" pps", "Mbit/s", "server us", "cat us")
	}
	for _, size := range g.sizes {
		row := []string{size}
		for _, road := range g.roads {
			if road == RoadTurnDirect {
				continue
			}
			r := g.cells[[3]string{size, ParamTurnMax, road}]
			most := figureOf(r, FigureTurnMost)
			mark := ""
			if r != nil && (r.Parameters["limited_by"] == limitOwn || r.Parameters["limited_by"] == limitSender) {
				mark = "+"
			}
			bytes, _ := strconv.ParseFloat(size, 64) // digits of ours
			row = append(row, wholeNumber(most)+mark, number(most*bytes*8/1e6), number(figureOf(r, FigureTurnServer)), number(figureOf(r, FigureTurnCat)))
		}
		rows = append(rows, row)
	}
	return rows
}

// atRate are the rows of one rate's table.
func (g turnGrid) atRate(rate string) [][]string {
	rows := [][]string{{"bytes"}}
	for _, road := range g.roads {
		rows[0] = append(rows[0], road+" pps", "lost %", "p99 ms")
		if road != RoadTurnDirect {
			rows[0] = append(rows[0], "server us", "low-high", "cat us")
		}
	}
	for _, size := range g.sizes {
		row := []string{size}
		for _, road := range g.roads {
			r := g.cells[[3]string{size, rate, road}]
			p99 := "-"
			if r != nil && r.Latency != nil && r.Latency.Count() > 0 {
				p99 = number(measure.Millis(r.Latency.Quantile(.99)))
			}
			row = append(row, wholeNumber(figureOf(r, FigureTurnRate)), number(figureOf(r, FigureTurnLoss)), p99)
			if road != RoadTurnDirect {
				row = append(row, number(figureOf(r, FigureTurnServer)), number(figureOf(r, FigureTurnLow))+"-"+number(figureOf(r, FigureTurnHigh)), number(figureOf(r, FigureTurnCat)))
			}
		}
		rows = append(rows, row)
	}
	return rows
}

func wholeNumber(v float64) string {
	if math.IsNaN(v) {
		return "-"
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}

func writeTurnSweep(w io.Writer, runs []*TurnRun) error {
	results := Results(runs)
	grid := turnGridOf(results)
	for _, rate := range grid.rates {
		title, rows := turnRateTitle(rate), grid.highest()
		if rate != ParamTurnMax {
			rows = grid.atRate(rate)
		}
		fmt.Fprintln(w, title)
		if err := writeRows(w, rows); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(w, turnMethod(results))
	return err
}

func turnRateTitle(rate string) string {
	if rate == ParamTurnMax {
		return "highest packets/s with less than 1 % loss, and CPU there"
	}
	return "at " + rate + " packets/s"
}

// turnMethod says how the numbers came about.
func turnMethod(results []*measure.Result) string {
	first := results[0]
	p := first.Parameters
	text := fmt.Sprintf("%s clients, generator %s, %s; offload of the gateway: %s.\n", p[paramClients], p["generator"], p["network"], p["offload"])
	if burst := p["burst"]; burst != "" {
		text += fmt.Sprintf("A client sends %s datagrams in a row (segmentation offload of the sender: %s). ", burst, p["segmentation"])
	}
	text += "Latency is one-way: both ends read the same clock.\n"
	if first.Scenario == ScenarioTurnSweep {
		text += "us are CPU microseconds of the process for a packet that arrived (= CPU seconds per million); servers are measured in turns. A rate\nholds when most of up to three tries lost less than 1 %. +: it may carry more, but the generator did not send more (--most, or\ntoo little processor time for it).\n"
	}
	var others []float64
	for _, r := range results {
		others = append(others, figureOf(r, FigureTurnOthers))
	}
	if busy := spreadOf(others).median; busy > 0.1 {
		text += fmt.Sprintf("Other programs kept %s cores busy meanwhile: trust CPU more than rates.\n", number(busy))
	}
	return text + fmt.Sprintf("%s, %d cores, Linux %s.", first.Machine.CPU, first.Machine.Cores, first.Machine.Kernel)
}

// addTurn draws one load: its rates, and a table with its sums.
func addTurn(report *plot.Report, results []*measure.Result) {
	loss := plot.Bars{Title: "Packets that arrived", Unit: "packets/s", Names: []string{"packets/s"}}
	cost := plot.Bars{Title: "CPU for a packet", Unit: "us", Names: []string{"server", "turncat"}, Note: "Less is better."}
	table := plot.Table{Title: "Sums", Header: []string{"road", "packets/s", "Mbit/s", "lost %", "jitter ms", "p50 ms", "p99 ms", "server us", "cat us"}}
	for _, r := range results {
		loss.Groups = append(loss.Groups, plot.Group{Name: r.Road, Values: []float64{figureOf(r, FigureTurnRate)}})
		cost.Groups = append(cost.Groups, plot.Group{Name: r.Road, Values: []float64{figureOf(r, FigureTurnServer), figureOf(r, FigureTurnCat)}})
		p50, p99 := "-", "-"
		if r.Latency != nil {
			p50, p99 = number(measure.Millis(r.Latency.Quantile(.5))), number(measure.Millis(r.Latency.Quantile(.99)))
		}
		bytes, _ := strconv.ParseFloat(r.Parameters[ParamTurnSize], 64) // NaN-free: digits of ours
		table.Rows = append(table.Rows, []string{
			r.Road, wholeNumber(figureOf(r, FigureTurnRate)), number(figureOf(r, FigureTurnRate) * bytes * 8 / 1e6),
			number(figureOf(r, FigureTurnLoss)), number(figureOf(r, FigureTurnJitter)), p50, p99, number(figureOf(r, FigureTurnServer)), number(figureOf(r, FigureTurnCat)),
		})
	}
	report.Figures = append(report.Figures, loss, cost)
	report.Tables = append(report.Tables, table)
}

// addTurnSweep draws a sweep: the highest rate by size, and costs by size at each rate.
func addTurnSweep(report *plot.Report, results []*measure.Result) {
	grid := turnGridOf(results)
	for _, rate := range grid.rates {
		rates := plot.Chart{Title: "Packets/s " + turnRateTitle(rate), XLabel: "bytes", YLabel: "packets/s"}
		if rate == ParamTurnMax {
			rates.Title = "Highest packets/s with less than 1 % loss"
		}
		costs := plot.Chart{Title: "CPU of the server for a packet, " + turnRateTitle(rate), XLabel: "bytes", YLabel: "us", Note: "Less is better."}
		rows := grid.highest()
		if rate != ParamTurnMax {
			rows = grid.atRate(rate)
		}
		for _, road := range grid.roads {
			speed, cost := plot.Series{Name: road}, plot.Series{Name: road}
			for _, size := range grid.sizes {
				x, _ := strconv.ParseFloat(size, 64) // digits of ours
				r := grid.cells[[3]string{size, rate, road}]
				speed.X, cost.X = append(speed.X, x), append(cost.X, x)
				speed.Y, cost.Y = append(speed.Y, figureOf(r, FigureTurnRate)), append(cost.Y, figureOf(r, FigureTurnServer))
			}
			if road != RoadTurnDirect {
				costs.Series = append(costs.Series, cost)
			}
			if road != RoadTurnDirect || rate != ParamTurnMax {
				rates.Series = append(rates.Series, speed)
			}
		}
		report.Figures = append(report.Figures, rates, costs)
		report.Tables = append(report.Tables, plot.Table{Title: turnRateTitle(rate), Header: rows[0], Rows: rows[1:]})
	}
}
