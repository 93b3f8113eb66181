package bench

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/plot"
)

// WriteTurn writes the runs of [Turn] for people: a single load as STUNner's script does, with the direct path first, a
// sweep as tables.
func WriteTurn(w io.Writer, config TurnConfig, runs []*TurnRun) error {
	if len(runs) == 0 || runs[0].Scenario == scenarioTurnSweep {
		return WriteText(w, Results(runs))
	}
	text := config.describe()
	for _, run := range runs {
		text += "Results" + turnTitle(run.Path) + "\n" + turnHeader + "\n"
		for _, row := range run.Connections {
			text += turnLine(&row) + "\n"
		}
		text += turnLine(&run.Sum) + "\n"
		if run.Sum.Reordered > 0 {
			text += fmt.Sprintf("[SUM] %d datagrams received out-of-order\n", run.Sum.Reordered)
		}
		text += turnExtras(run)
	}
	_, err := io.WriteString(w, text+turnMethod(Results(runs))+"\n")
	return err
}

func turnTitle(path string) string {
	server, cat := strings.CutSuffix(path, pathTurnCat)
	switch server {
	case pathTurnDirect:
		return ", direct, without TURN"
	case pathTurnWeir:
		server = "weir turn gateway"
	case pathTurnCluster:
		server = "the gateway of the cluster"
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
	fmt.Fprintf(&b, "  (all of them %.2f)\n", figureOf(run.Result, figureTurnMachine))
	if lost := figureOf(run.Result, figureTurnSink); lost > 0 {
		fmt.Fprintf(&b, "  %.0f of the lost ones arrived and found the sink's own buffer full\n", lost)
	}
	return b.String()
}

// sweepTable is a table of one rate of a sweep: a row for each size, and columns for each path.
func sweepTable(rate string, results []*measure.Result) plot.Table {
	t := plot.Table{Title: turnRateTitle(rate), Header: []string{"bytes"}}
	sizes := groupsOf(results, paramTurnSize)
	paths := pathsOf(sizes)
	for _, path := range paths {
		for _, c := range sweepColumns(rate, path) {
			t.Header = append(t.Header, c.head)
		}
	}
	for _, size := range sizes {
		row := []string{size.keys[0]}
		for _, path := range paths {
			r := size.of(path)
			if r == nil {
				r = &measure.Result{}
			}
			for _, c := range sweepColumns(rate, path) {
				row = append(row, c.cell(r))
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// sweepColumns are those of one path.
func sweepColumns(rate, path string) []column {
	server, cat := numbered("server us", figureTurnServer), numbered("cat us", figureTurnCat)
	switch {
	case rate == paramTurnMax && path == pathTurnDirect:
		return nil
	case rate == paramTurnMax:
		highest := column{path + " pps", func(r *measure.Result) string {
			text := wholeNumber(figureOf(r, figureTurnHighest))
			if limit := r.Parameters["limited_by"]; limit == limitOwn || limit == limitSender {
				text += "+"
			}
			return text
		}}
		return []column{highest, {"Mbit/s", megabits(figureTurnHighest)}, server, cat}
	}
	columns := []column{counted(path+" pps", figureTurnRate), numbered("lost %", figureTurnLoss), {"p99 ms", quantile(.99)}}
	if path == pathTurnDirect {
		return columns
	}
	lowHigh := ranged(figureTurnLow, figureTurnHigh)
	lowHigh.head = "low-high"
	return append(columns, server, lowHigh, cat)
}

// quantile is that of the latency in milliseconds.
func quantile(q float64) func(*measure.Result) string {
	return func(r *measure.Result) string {
		if r.Latency == nil || r.Latency.Count() == 0 {
			return "-"
		}
		return number(measure.Millis(r.Latency.Quantile(q)))
	}
}

// megabits is a figure in packets a second as Mbit/s of user data.
func megabits(figure string) func(*measure.Result) string {
	return func(r *measure.Result) string {
		bytes, _ := strconv.ParseFloat(r.Parameters[paramTurnSize], 64) // digits of ours
		return number(figureOf(r, figure) * bytes * 8 / 1e6)
	}
}

// sweepRates divides the results of a sweep by rate.
func sweepRates(results []*measure.Result) (rates []string, of map[string][]*measure.Result) {
	of = map[string][]*measure.Result{}
	for _, r := range results {
		rate := r.Parameters[paramTurnRate]
		if of[rate] == nil {
			rates = append(rates, rate)
		}
		of[rate] = append(of[rate], r)
	}
	return rates, of
}

// sweepTables are the costs at each rate, and the highest rate.
func sweepTables(results []*measure.Result) (tables []plot.Table) {
	rates, of := sweepRates(results)
	for _, rate := range rates {
		tables = append(tables, sweepTable(rate, of[rate]))
	}
	return tables
}

func turnRateTitle(rate string) string {
	if rate == paramTurnMax {
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
	if p["platform"] == PlatformKubernetes {
		text += "Latency is one-way, and right only as far as the clocks of this host and of the node of the iperf server agree.\n"
	} else {
		text += "Latency is one-way: both ends read the same clock.\n"
	}
	if first.Scenario == scenarioTurnSweep {
		text += "us are CPU microseconds of the process for a packet that arrived (= CPU seconds per million); servers are measured in turns. A rate\nholds when most of up to three tries lost less than 1 %. +: it may carry more, but the generator did not send more (--most, or\ntoo little processor time for it).\n"
	}
	return lines(strings.TrimSuffix(text, "\n"), othersText(results, "trust CPU more than rates"),
		fmt.Sprintf("%s, %d cores, Linux %s.", first.Machine.CPU, first.Machine.Cores, first.Machine.Kernel))
}

// turnTables are the sums of one load.
func turnTables(results []*measure.Result) []plot.Table {
	return []plot.Table{tableOf("Sums", results, nil,
		pathColumn("path"), counted("packets/s", figureTurnRate), column{"Mbit/s", megabits(figureTurnRate)}, numbered("lost %", figureTurnLoss),
		numbered("jitter ms", figureTurnJitter), column{"p50 ms", quantile(.5)}, column{"p99 ms", quantile(.99)},
		numbered("server us", figureTurnServer), numbered("cat us", figureTurnCat))}
}

// turnPictures are the rates and costs of one load.
func turnPictures(results []*measure.Result) []plot.Figure {
	rate := plot.Bars{Title: "Packets that arrived", Unit: "packets/s", Names: []string{"packets/s"}}
	cost := plot.Bars{Title: "CPU for a packet", Unit: "us", Names: []string{"server", "turncat"}, Note: "Less is better."}
	for _, r := range results {
		rate.Groups = append(rate.Groups, plot.Group{Name: r.Path, Values: []float64{figureOf(r, figureTurnRate)}})
		cost.Groups = append(cost.Groups, plot.Group{Name: r.Path, Values: []float64{figureOf(r, figureTurnServer), figureOf(r, figureTurnCat)}})
	}
	return []plot.Figure{rate, cost}
}

// sweepPictures are the highest rate by size, and rates and costs by size at each rate.
func sweepPictures(results []*measure.Result) (pictures []plot.Figure) {
	rates, of := sweepRates(results)
	for _, rate := range rates {
		speeds := plot.Chart{Title: "Packets/s " + turnRateTitle(rate), XLabel: "bytes", YLabel: "packets/s"}
		if rate == paramTurnMax {
			speeds.Title = "Highest packets/s with less than 1 % loss"
		}
		costs := plot.Chart{Title: "CPU of the server for a packet, " + turnRateTitle(rate), XLabel: "bytes", YLabel: "us", Note: "Less is better."}
		sizes := groupsOf(of[rate], paramTurnSize)
		for _, path := range pathsOf(sizes) {
			speed, cost := plot.Series{Name: path}, plot.Series{Name: path}
			for _, size := range sizes {
				x, _ := strconv.ParseFloat(size.keys[0], 64) // digits of ours
				r := size.of(path)
				speed.X, cost.X = append(speed.X, x), append(cost.X, x)
				speed.Y, cost.Y = append(speed.Y, figureOf(r, figureTurnRate)), append(cost.Y, figureOf(r, figureTurnServer))
			}
			speeds.Series = append(speeds.Series, speed)
			if path != pathTurnDirect {
				costs.Series = append(costs.Series, cost)
			}
		}
		pictures = append(pictures, speeds, costs)
	}
	return pictures
}
