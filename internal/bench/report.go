package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/plot"
)

// Scenario is something that can be measured.
type Scenario struct {
	Name    string `json:"name"`
	Command string `json:"command"`
	About   string `json:"about"`
	Needs   string `json:"needs"`
}

// Scenarios lists what there is.
func Scenarios() []Scenario {
	return []Scenario{
		{ScenarioDSR, "weir bench run dsr", "TCP throughput, packet rate and CPU of the kernel data path beside routing and DNAT", "root; iperf, iperf3, iptables, nftables"},
		{ScenarioNFQueue, "weir bench run nfqueue", "TCP, UDP, fragments, latency and CPU of the NFQUEUE data path beside the same way without it", "root; iperf, iptables, ethtool"},
		{ScenarioFloods, "weir bench run floods", "real clients while every part is flooded: who gets through, what is lost, memory and CPU, beside Scandium, conntrack and coturn", "root; iptables; for the peers java, turnserver"},
		{ScenarioDump, "weir bench run dump", "datagrams through a full flow table while weir lb flows lists it: how many are lost, and where", "root; iptables"},
		{ScenarioSoak, "weir bench run soak", "memory, goroutines, descriptors and tables of every part under a long mixed load: do they level off?", "nothing; with root a network of its own and the kernel data path"},
		{"ebpf", "weir bench ebpf", "nanoseconds per packet of the kernel data path, by BPF_PROG_TEST_RUN", "root"},
		{ScenarioLive, "weir bench ebpf --live", "packets per second of one core through the kernel data path, routing and DNAT", "root; iptables"},
		{"coap", "weir bench coap", "CPU of a CoAP/DTLS request at its servers, forwarded between nodes or not", "nothing"},
		{ScenarioTurn, "weir turn bench", "packets/s, loss, jitter, latency and CPU of the TURN gateway and turncat, beside direct and coturn", "nothing; with root a network of its own; iperf, turnserver"},
		{"nat", "weir bench nat", "CPU of a datagram forwarded in user space beside socat and iptables", "nothing; with root also iptables"},
		{"tcp", "weir tcp bench", "TCP connections held: time to establish, memory and CPU of each, losses; by --via through balancers, --with beside other testers", "nothing; with root a network of its own, --via, --with"},
		{"snat", "weir snat lab", "connections that a path of NAT lets through, beside the plan's", "root; nftables"},
	}
}

// ParseResults reads the JSON form of a list of results, or of a single one.
func ParseResults(text []byte) ([]*measure.Result, error) {
	if trimmed := bytes.TrimSpace(text); len(trimmed) > 0 && trimmed[0] == '{' {
		text = slices.Concat([]byte("["), trimmed, []byte("]"))
	}
	var results []*measure.Result
	if err := json.Unmarshal(text, &results); err != nil {
		return nil, fmt.Errorf("not a result of weir bench --json: %w", err)
	}
	if len(results) == 0 || slices.Contains(results, nil) {
		return nil, errors.New("no results in it")
	}
	return results, nil
}

// WriteReport draws results as one HTML page. Those of several runs of dsr share its pictures when their roads differ; of two
// results for the same thing the later is drawn.
func WriteReport(w io.Writer, results []*measure.Result) error {
	if len(results) == 0 {
		return errors.New("no results to draw")
	}
	report := plot.Report{Title: "weir bench", When: results[0].Started, OK: true}
	byScenario := map[string][]*measure.Result{}
	var names []string
	for _, r := range results {
		if byScenario[r.Scenario] == nil {
			names = append(names, r.Scenario)
		}
		byScenario[r.Scenario] = append(byScenario[r.Scenario], r)
	}
	report.Title += " " + strings.Join(names, ", ")
	var methods []string
	for _, name := range names {
		switch name {
		case ScenarioDSR:
			addDSR(&report, byScenario[name])
			methods = append(methods, dsrMethod(byScenario[name]))
			continue
		case ScenarioNFQueue:
			addNFQueue(&report, byScenario[name])
			methods = append(methods, nfqText(byScenario[name]))
			continue
		case ScenarioTurn:
			addTurn(&report, byScenario[name])
			methods = append(methods, turnMethod(byScenario[name]))
			continue
		case ScenarioTurnSweep:
			addTurnSweep(&report, byScenario[name])
			methods = append(methods, turnMethod(byScenario[name]))
			continue
		case ScenarioLive:
			addLive(&report, byScenario[name])
			methods = append(methods, liveMethod(byScenario[name]))
			continue
		case ScenarioFloods:
			addFloods(&report, byScenario[name])
			methods = append(methods, floodsMethod(byScenario[name]))
			continue
		case ScenarioDump:
			addDump(&report, byScenario[name])
			methods = append(methods, dumpMethod(byScenario[name]))
			continue
		case ScenarioSoak:
			addSoak(&report, byScenario[name])
			methods = append(methods, soakMethod(byScenario[name]))
			continue
		}
		addFigures(&report, name, byScenario[name])
		m := byScenario[name][0].Machine
		methods = append(methods, fmt.Sprintf("%s: %s, %d cores, Linux %s", name, m.CPU, m.Cores, m.Kernel))
	}
	if failed := failures(results); len(failed) > 0 {
		report.OK = false
		report.Verdict = fmt.Sprintf("%d of %d measurements failed", len(failed), len(results))
		methods = append(methods, "failed:\n"+strings.Join(failed, "\n"))
	}
	report.Method = strings.Join(methods, "\n\n")
	return report.WriteHTML(w)
}

// addDSR draws throughput, cost and a table for each load.
func addDSR(report *plot.Report, results []*measure.Result) {
	grid := gridOf(results)
	for _, load := range grid.loads {
		title, unit, costUnit := dsrTitle(load)
		rate := plot.Bars{Title: title, Unit: unit, Names: grid.families, Note: "Median of the rounds; the line spans the lowest and the highest."}
		cost := plot.Bars{Title: title + ": processor time of the machine", Unit: costUnit, Names: grid.families, Note: "Less is better. Client, gateway and server together, what other programs spent subtracted."}
		for _, road := range grid.roads {
			rates, costs := plot.Group{Name: road}, plot.Group{Name: road}
			for _, family := range grid.families {
				r := grid.at(load, road, family)
				rates.Values = append(rates.Values, figureOf(r, FigureRate))
				rates.Spread = append(rates.Spread, [2]float64{orZero(figureOf(r, FigureRateLow)), orZero(figureOf(r, FigureRateHigh))})
				costs.Values = append(costs.Values, figureOf(r, FigureCost))
				costs.Spread = append(costs.Spread, [2]float64{orZero(figureOf(r, FigureCostLow)), orZero(figureOf(r, FigureCostHigh))})
			}
			rate.Groups = append(rate.Groups, rates)
			cost.Groups = append(cost.Groups, costs)
		}
		report.Figures = append(report.Figures, rate, cost)
		for _, family := range grid.families {
			rows := grid.rows(load, family)
			report.Tables = append(report.Tables, plot.Table{Title: title + ", " + family, Header: rows[0], Rows: rows[1:]})
		}
	}
}

func orZero(v float64) float64 {
	if v != v { // not measured: its bar says so
		return 0
	}
	return v
}

// addFigures draws each figure of any other scenario over its roads.
func addFigures(report *plot.Report, scenario string, results []*measure.Result) {
	var names []string
	units := map[string]string{}
	for _, r := range results {
		for _, f := range r.Figures {
			if _, seen := units[f.Name]; !seen {
				names = append(names, f.Name)
				units[f.Name] = f.Unit
			}
		}
	}
	for _, name := range names {
		bars := plot.Bars{Title: scenario + ": " + name, Unit: units[name], Names: []string{name}}
		for _, r := range results {
			bars.Groups = append(bars.Groups, plot.Group{Name: r.Road, Values: []float64{figureOf(r, name)}})
		}
		report.Figures = append(report.Figures, bars)
	}
}
