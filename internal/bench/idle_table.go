package bench

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/plot"
)

// Figures of an [IdleCrash] result.
const (
	figureIdleSessions = "sessions"
	figureIdleClients  = "clients of the node"
	figureIdleServed   = "served again"
	figureIdleHalf     = "half of them after"
	figureIdleMost     = "99 % after"
	figureIdleLast     = "the last one after"
	figureIdleFailed   = "failed handshakes"
	seriesServed       = "served again"
)

func idleResult(config *IdleConfig, path idlePath, started time.Time) *measure.Result {
	return &measure.Result{
		Scenario: scenarioIdle, Path: path.name, Machine: machine(), Started: started,
		Parameters: map[string]string{
			paramAbout: path.about, "sessions": strconv.Itoa(config.Sessions), "nodes": strconv.Itoa(config.Nodes), "within": config.Within.String(), "down": config.Down.String(),
		},
	}
}

// fillIdle computes when the clients of the node that crashed were served again.
func fillIdle(r *measure.Result, path idlePath, crashed time.Time, clients int, samples []v1.CoAPBenchSample) {
	r.Elapsed = time.Since(crashed)
	var total v1.CoAPBenchStats
	served := measure.Series{Name: seriesServed}
	for i := range samples {
		if total = samples[i].Total; samples[i].At.After(crashed) {
			served.At, served.Values = append(served.At, samples[i].At.Sub(crashed).Seconds()), append(served.Values, float64(total.Requests))
		}
	}
	r.Requests, r.Errors = total.Requests, uint64(clients)-min(total.Requests, uint64(clients))
	r.Series = append(r.Series, served)
	r.Events = append(r.Events, measure.Event{What: "crash"})
	r.Figures = []measure.Figure{
		{Name: figureIdleSessions, Value: float64(clients * number64(r.Parameters["nodes"]))},
		{Name: figureIdleClients, Value: float64(clients)},
		{Name: figureIdleServed, Value: float64(total.Requests)},
		{Name: figureRehandshakes, Value: float64(total.Rehandshakes)},
		{Name: figureRepeated, Value: float64(total.Retransmissions)},
		{Name: figureIdleFailed, Value: float64(total.HandshakeErrors)},
	}
	for name, share := range map[string]float64{figureIdleHalf: .5, figureIdleMost: .99, figureIdleLast: 1} {
		if at := servedAfter(share, crashed, clients, samples); !math.IsNaN(at) {
			r.Figures = append(r.Figures, measure.Figure{Name: name, Value: at, Unit: "s"})
		}
	}
	r.Parameters[paramVerdict] = verdictReached
	switch {
	case r.Errors > 0:
		r.Parameters[paramVerdict], r.Parameters[paramMissed] = verdictMissed, fmt.Sprintf("%d clients are not served again", r.Errors)
	case path.keeps && total.Rehandshakes > 0:
		r.Parameters[paramVerdict], r.Parameters[paramMissed] = verdictMissed, fmt.Sprintf("%d new handshakes", total.Rehandshakes)
	}
}

func number64(text string) int {
	n, _ := strconv.Atoi(text) // of a parameter that this program wrote
	return n
}

func idleTables(results []*measure.Result) []plot.Table {
	return []plot.Table{tableOf("A node with idle sessions crashes", results, stateOf,
		pathColumn("what ends"), counted("sessions", figureIdleSessions), counted("clients of the node", figureIdleClients), counted("served again", figureIdleServed),
		formatted("p50 s", "%.1f", figureIdleHalf), formatted("p99 s", "%.1f", figureIdleMost), formatted("last s", "%.1f", figureIdleLast),
		counted("new handshakes", figureRehandshakes), counted("failed", figureIdleFailed), counted("repeated", figureRepeated), column{"verdict", func(r *measure.Result) string { return verdictOf(r) }})}
}

func idleMethod(results []*measure.Result) string {
	r, m := results[0], results[0].Machine
	text := fmt.Sprintf(`%s idle DTLS sessions with connection ids on %s nodes; one node crashes. From then on each of its clients sends one request, evenly within %s. p50, p99 and last are the
times since the crash until so many of these clients were served again, to 0.1 s; without a crash they would be half of %s, 99 %% of it and all of it. Where the node's memory is lost, it starts again after %s. All share the
machine: %s, %d cores, Linux %s. Started %s.`,
		r.Parameters["sessions"], r.Parameters["nodes"], r.Parameters["within"], r.Parameters["within"], r.Parameters["down"], m.CPU, m.Cores, m.Kernel, r.Started.UTC().Format(time.DateTime))
	for _, r := range results {
		text += fmt.Sprintf("\n  %-10s %s", r.Path, r.Parameters[paramAbout])
	}
	return text
}

func idleVerdict(results []*measure.Result) string {
	return fmt.Sprintf("%d paths, aims missed by %d", len(results), missedBy(results))
}

// idlePictures are how many clients were served again over time.
func idlePictures(results []*measure.Result) []plot.Figure {
	chart := plot.Chart{Title: "idle-crash: clients served again since the crash", YLabel: "clients"}
	for _, r := range results {
		if s := seriesOf(r, seriesServed); s != nil {
			chart.Series = append(chart.Series, plot.Series{Name: r.Path, X: s.At, Y: s.Values})
		}
	}
	if len(chart.Series) == 0 {
		return nil
	}
	return []plot.Figure{chart}
}
