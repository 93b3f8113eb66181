package bench

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/testbed/measure"
)

// TurnRun is one result of [Turn] with its connections. Its JSON is that of its Result and two more keys, "connections" and
// "sum", so `weir bench report` reads it as any other.
type TurnRun struct {
	*measure.Result
	Connections []v1.TurnBenchConnection
	Sum         v1.TurnBenchConnection
	Search      []v1.TurnBenchTry
}

// MarshalJSON implements [json.Marshaler].
func (r *TurnRun) MarshalJSON() ([]byte, error) {
	return json.Marshal(v1.TurnBench{BenchResult: *r.Form(), Connections: r.Connections, Sum: r.Sum, Search: r.Search})
}

// Results are the plain results.
func Results(runs []*TurnRun) (list []*measure.Result) {
	for _, run := range runs {
		list = append(list, run.Result)
	}
	return list
}

// Names of the figures of [Turn].
const (
	figureTurnRate    = "packets/s"         // that arrived
	figureTurnLoss    = "loss"              // % of what was sent
	figureTurnJitter  = "jitter"            // ms
	figureTurnHighest = "highest packets/s" // with less than 1 % loss
	figureTurnServer  = "server CPU"        // us for a packet that arrived
	figureTurnLow     = "server CPU, lowest"
	figureTurnHigh    = "server CPU, highest"
	figureTurnCat     = "turncat CPU"
	figureTurnMachine = "machine CPU, ours" // all our processes and the kernel threads that carry packets
	figureTurnSink    = "lost at the sink"  // found the sink's own buffer full
)

// Keys of Result.Parameters.
const (
	paramTurnSize = "packet_bytes"
	paramTurnRate = "rate" // packets/s, or paramTurnMax
	paramTurnMax  = "highest"
	paramClients  = "clients"
)

// base is what all results of a run share.
func (s *turnStage) base(scenario string, path *turnPath, size int, phase *turnPhase) *measure.Result {
	generator := s.config.generator()
	parameters := map[string]string{
		paramTurnSize: strconv.Itoa(size), paramClients: strconv.Itoa(s.config.Clients), "generator": generator, "network": s.network,
		"platform": s.config.Platform, "offload": s.offload, "latency": "one-way, one clock", "with": s.config.with(),
		"transport": s.config.Transport, "direction": s.config.Direction,
	}
	if generator == GeneratorBuiltin {
		parameters["burst"] = strconv.Itoa(s.config.burst())
		parameters["segmentation"] = strconv.FormatBool(s.config.segment())
	}
	if s.config.Cluster != nil {
		parameters["latency"], parameters["transport"] = "one-way, two clocks", "as of the listener"
	}
	return &measure.Result{
		Scenario: scenario, Path: path.name, Parameters: parameters, Machine: machine(), Started: s.started,
		Elapsed: time.Duration(phase.sum.Seconds * float64(time.Second)), Requests: phase.received(), Errors: phase.sum.Lost,
		Bytes: uint64(phase.sum.Bytes), Latency: phase.latency, Samples: phase.samples, Processes: phase.processes, Figures: phase.figures(),
	}
}

func (p *turnPhase) figures() []measure.Figure {
	figures := []measure.Figure{
		{Name: figureTurnRate, Value: p.sum.Rate, Unit: "1/s"},
		{Name: figureTurnLoss, Value: 100 * turnLoss(&p.sum), Unit: "%"},
		{Name: figureTurnJitter, Value: p.sum.Jitter, Unit: "ms"},
		{Name: figureTurnSink, Value: float64(p.overflowed)},
	}
	n := float64(p.received())
	if n == 0 {
		return figures
	}
	cost := func(name string, spent time.Duration) {
		figures = append(figures, measure.Figure{Name: name, Value: float64(spent) / float64(time.Microsecond) / n, Unit: "us/packet"})
	}
	for _, process := range p.processes {
		switch process.Name {
		case partGateway, peerCoturn, peerStunner:
			cost(figureTurnServer, process.CPU)
		case partCat:
			cost(figureTurnCat, process.CPU)
		}
	}
	cost(figureTurnMachine, p.machine.Ours)
	return append(figures, measure.Figure{Name: figureOthers, Value: p.others()})
}

// others is how many cores other programs kept busy. The processes' times are read one after the other, so their sum may
// exceed what the machine spent, which is the upper bound.
func (p *turnPhase) others() float64 {
	return min(max(p.machine.Others, 0), p.machine.Busy).Seconds() / max(p.window.Seconds(), 0.001)
}

// result is one load's.
func (s *turnStage) result(scenario string, path *turnPath, phase turnPhase) *TurnRun {
	r := s.base(scenario, path, phase.load.size, &phase)
	r.Parameters["bits_per_s"] = strconv.FormatFloat(s.config.Bandwidth, 'f', 0, 64)
	r.Parameters["seconds"] = strconv.FormatFloat(s.config.Duration.Seconds(), 'f', -1, 64)
	return &TurnRun{Result: r, Connections: phase.rows, Sum: phase.sum}
}

// cellResults are a result for each rate and one for the highest.
func (s *turnStage) cellResults(cell *turnCell) (runs []*TurnRun) {
	for j, rate := range s.config.Rates {
		phase := addUp(cell.rates[j])
		r := s.base(scenarioTurnSweep, cell.path, cell.size, &phase)
		r.Parameters[paramTurnRate] = strconv.FormatFloat(rate, 'f', -1, 64)
		r.Parameters["rounds"] = strconv.Itoa(s.config.Rounds)
		r.Parameters["seconds"] = strconv.FormatFloat(s.config.Duration.Seconds(), 'f', -1, 64)
		if spread := spreadOf(serverCosts(cell.rates[j])); cell.search != nil && spread.low == spread.low {
			r.Figures = append(r.Figures, measure.Figure{Name: figureTurnLow, Value: spread.low, Unit: "us/packet"}, measure.Figure{Name: figureTurnHigh, Value: spread.high, Unit: "us/packet"})
		}
		runs = append(runs, &TurnRun{Result: r, Sum: phase.sum})
	}
	if cell.search == nil {
		return runs
	}
	phase := cell.best
	if phase == nil {
		phase = &turnPhase{}
	}
	r := s.base(scenarioTurnSweep, cell.path, cell.size, phase)
	r.Parameters[paramTurnRate], r.Parameters["limited_by"] = paramTurnMax, cell.limitedBy()
	r.Parameters["try_seconds"] = strconv.FormatFloat(s.config.Probe.Seconds(), 'f', -1, 64)
	r.Samples = nil // the tries are too short to have any
	r.Figures = append(r.Figures, measure.Figure{Name: figureTurnHighest, Value: phase.sum.Rate, Unit: "1/s"})
	return append(runs, &TurnRun{Result: r, Connections: phase.rows, Sum: phase.sum, Search: cell.search.trace})
}

// with names the peers of the run.
func (c *TurnConfig) with() string {
	if len(c.peers()) == 0 {
		return withNone
	}
	return strings.Join(c.With, ",")
}

// describe is the header of a report, as STUNner's script prints it and more.
func (c *TurnConfig) describe() string {
	return fmt.Sprintf("Number of concurrent turncat clients: %d\nEvaluation time: %s sec\nPacket size: %d bytes\nBandwidth: %s Kbits/sec or %s Mbits/sec per turncat client\nPlatform: %s\n",
		c.Clients, strconv.FormatFloat(c.Duration.Seconds(), 'f', -1, 64), c.Size, strconv.FormatFloat(c.Bandwidth/1e3, 'f', -1, 64), strconv.FormatFloat(c.Bandwidth/1e6, 'f', -1, 64), c.Platform)
}
