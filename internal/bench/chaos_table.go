package bench

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/plot"
)

// Figures of a [Chaos] result besides those of [Restart].
const (
	figureChaosAnswered    = "answered"
	figureChaosWrong       = "wrong answers"
	figureChaosExecuted    = "executed"
	figureChaosTwice       = "executed twice"
	figureChaosInterrupted = "interrupted by a kill"
	figureChaosRecords     = "records audited"
	figureChaosFrames      = "of them between nodes"
	figureChaosReused      = "nonces used twice"
	figureChaosDropped     = "records not captured"
	figureChaosRefused     = "steps refused"
	paramSeed              = "seed"
	paramChaosRefused      = "refused steps"
)

// result is what the run has found.
func (c *chaos) result(started time.Time, samples []v1.CoAPBenchSample, total *v1.CoAPBench, executed executions, dropped uint64) *measure.Result {
	r := &measure.Result{
		Scenario: scenarioChaos, Path: "weir nat", Machine: machine(), Started: started, Elapsed: time.Since(started),
		Parameters: map[string]string{
			paramSeed: strconv.FormatUint(c.config.Seed, 10), "nodes": strconv.Itoa(c.config.Nodes), "clients": strconv.Itoa(c.config.Clients), "interval": c.config.Interval.String(),
			"duration": c.config.Duration.String(), "every": c.config.Every.String(), "events": strings.Join(namesOf(c.config.events()), ","), "follow": strconv.FormatBool(c.config.Follow), "replicate": strconv.FormatBool(c.config.Etcd != ""),
			paramChaosRefused: strings.Join(c.refused, "; "),
		},
	}
	r.Latency, _ = measure.LatencyOf(total.Result.Latency) // of this very binary
	r.Samples = samplesSince(started, samples, measure.SamplesOf(total.Result.Samples))
	stats := &total.Stats
	lost := stats.Lost + stats.Failed + stats.LostSessions + stats.HandshakeErrors
	r.Requests, r.Errors = stats.Requests, lost+stats.Wrong
	var wait, late time.Duration
	for i := range samples {
		wait, late = max(wait, millis(max(samples[i].Max, samples[i].Waiting))), max(late, millis(samples[i].Late))
	}
	r.Figures = []measure.Figure{
		{Name: figureRestartSent, Value: float64(stats.Sent)},
		{Name: figureChaosAnswered, Value: float64(stats.Requests)},
		{Name: figureRestartLost, Value: float64(lost)},
		{Name: figureRehandshakes, Value: float64(stats.Rehandshakes)},
		{Name: figureChaosWrong, Value: float64(stats.Wrong)},
		{Name: figureChaosExecuted, Value: float64(executed.requests)},
		{Name: figureChaosTwice, Value: float64(executed.twice - executed.interrupted)},
		{Name: figureChaosInterrupted, Value: float64(executed.interrupted)},
		{Name: figureRepeated, Value: float64(stats.Retransmissions)},
		{Name: figureLongestWait, Value: measure.Millis(wait), Unit: "ms"},
		{Name: figureLate, Value: measure.Millis(late), Unit: "ms"},
		{Name: figureChaosRecords, Value: float64(c.audit.records)},
		{Name: figureChaosFrames, Value: float64(c.links.records)},
		{Name: figureChaosReused, Value: float64(c.audit.reused + c.links.reused)},
		{Name: figureChaosDropped, Value: float64(dropped)},
		{Name: figureChaosRefused, Value: float64(len(c.refused))},
	}
	r.Parameters[paramVerdict], r.Parameters[paramMissed] = c.judge(r, executed.example)
	r.Series = append(r.Series, waitsOf(started, samples))
	c.describe(r, samples)
	return r
}

// describe adds what happened, and what the clients saw until the next event.
func (c *chaos) describe(r *measure.Result, samples []v1.CoAPBenchSample) {
	windows := windowsOf(c.steps, samples)
	for _, f := range []struct {
		name string
		of   func(*restartWindow) float64
	}{
		{figureRestartSent, func(w *restartWindow) float64 { return float64(w.sent) }},
		{figureRestartLost, func(w *restartWindow) float64 { return float64(w.lost) }},
		{figureRehandshakes, func(w *restartWindow) float64 { return float64(w.handshakes) }},
		{figureRepeated, func(w *restartWindow) float64 { return float64(w.repeated) }},
		{figureLongestWait, func(w *restartWindow) float64 { return measure.Millis(w.wait) }},
		{figureLoadAverage, func(w *restartWindow) float64 { return w.load }},
	} {
		s := measure.Series{Name: f.name}
		for i := range windows {
			s.At, s.Values = append(s.At, windows[i].at.Sub(r.Started).Seconds()), append(s.Values, f.of(&windows[i]))
		}
		r.Series = append(r.Series, s)
	}
	for i := range windows {
		r.Events = append(r.Events, measure.Event{At: windows[i].at.Sub(r.Started), What: c.names[i]})
	}
}

// judge says whether the aims are reached, and which are not. Sessions may end where a node lost its memory.
func (c *chaos) judge(r *measure.Result, example string) (verdict, why string) {
	figure := func(name string) float64 { return figureOf(r, name) }
	var missed []string
	miss := func(name, more string) {
		if v := figure(name); v > 0 {
			missed = append(missed, strings.TrimSpace(fmt.Sprintf("%s %s %s", wholeNumber(v), name, more)))
		}
	}
	miss(figureChaosWrong, "")
	miss(figureChaosTwice, "("+example+")")
	if example := c.audit.example + c.links.example; example != "" {
		miss(figureChaosReused, fmt.Sprintf("(connection id %x)", example))
	}
	if c.config.Etcd != "" || !slices.ContainsFunc(c.config.events(), func(e chaosEvent) bool { return e.name == "crash" }) {
		miss(figureRestartLost, "")
		miss(figureRehandshakes, "")
	}
	if a, e := figure(figureChaosAnswered), figure(figureChaosExecuted); a > e {
		missed = append(missed, wholeNumber(a-e)+" answered without an execution")
	}
	switch {
	case figure(figureChaosAnswered) == 0 || figure(figureChaosRecords) < figure(figureChaosAnswered):
		return verdictVoid, "too few answers or records to judge"
	case len(missed) > 0:
		return verdictMissed, strings.Join(missed, ", ")
	case figure(figureChaosDropped) > 0:
		return verdictVoid, wholeNumber(figure(figureChaosDropped)) + " packets found no room in the capture: the audit has gaps"
	}
	return verdictReached, ""
}

// chaosTables are the run, and each of its events.
func chaosTables(results []*measure.Result) []plot.Table {
	sums := tableOf("Chaos", results, stateOf,
		column{"seed", func(r *measure.Result) string { return r.Parameters[paramSeed] }},
		counted("answered", figureChaosAnswered), counted("lost", figureRestartLost), counted("new handshakes", figureRehandshakes), counted("wrong", figureChaosWrong),
		counted("executed twice", figureChaosTwice), counted("interrupted", figureChaosInterrupted), counted("repeated", figureRepeated), counted("longest wait ms", figureLongestWait),
		counted("records audited", figureChaosRecords), counted("between nodes", figureChaosFrames), counted("nonces twice", figureChaosReused), counted("steps refused", figureChaosRefused),
		column{"verdict", func(r *measure.Result) string { return verdictOf(r) }})
	single := plot.Table{Title: "Each event", Header: []string{"seed", "number", "second", "event", "requests sent", "lost", "new handshakes", "repeated", "longest wait ms", "load average"}}
	for _, r := range results {
		for i, e := range r.Events {
			row := []string{r.Parameters[paramSeed], strconv.Itoa(i + 1), fmt.Sprintf("%.1f", e.At.Seconds()), e.What}
			for _, name := range []string{figureRestartSent, figureRestartLost, figureRehandshakes, figureRepeated, figureLongestWait, figureLoadAverage} {
				if s := seriesOf(r, name); s != nil && i < len(s.Values) {
					row = append(row, wholeNumber(s.Values[i]))
				} else {
					row = append(row, "-")
				}
			}
			single.Rows = append(single.Rows, row)
		}
	}
	return []plot.Table{sums, single}
}

// chaosNotes are the steps that were refused.
func chaosNotes(results []*measure.Result) (lines []string) {
	for _, r := range results {
		if text := r.Parameters[paramChaosRefused]; text != "" {
			lines = append(lines, "refused with seed "+r.Parameters[paramSeed]+": "+text)
		}
	}
	return lines
}

func chaosVerdict(results []*measure.Result) string {
	return fmt.Sprintf("%d runs, aims missed or not proven by %d; the same script again: --seed %s", len(results), missedBy(results), results[0].Parameters[paramSeed])
}

func chaosMethod(results []*measure.Result) string {
	r, m := results[0], results[0].Machine
	text := fmt.Sprintf(`Aims: no wrong answer, no request executed twice, no nonce used twice in any record on the links, and, where no node loses its memory or sessions are replicated, nothing lost
and no new handshake. %s nodes, %s clients with a pause of %s, events %s on average, drawn from the seed: %s. "interrupted" are requests whose process was killed between
execution and answer: they are executed again. A wait counts from when the request was intended to be sent. All share the machine: %s, %d cores, Linux %s. Started %s.`,
		r.Parameters["nodes"], r.Parameters["clients"], r.Parameters["interval"], r.Parameters["every"], r.Parameters["events"], m.CPU, m.Cores, m.Kernel, r.Started.UTC().Format(time.DateTime))
	for _, line := range chaosNotes(results) {
		text += "\n" + line
	}
	return text
}

// chaosPictures are the longest waits over time with the events.
func chaosPictures(results []*measure.Result) (pictures []plot.Figure) {
	for _, r := range results {
		waits := seriesOf(r, seriesWaits)
		if waits == nil {
			continue
		}
		chart := plot.Chart{Title: "chaos: longest wait, seed " + r.Parameters[paramSeed], YLabel: "ms", Series: []plot.Series{{Name: "longest wait", X: waits.At, Y: waits.Values}}}
		for _, e := range r.Events {
			chart.Events = append(chart.Events, plot.Event{X: e.At.Seconds(), Label: e.What})
		}
		pictures = append(pictures, chart)
	}
	return pictures
}
