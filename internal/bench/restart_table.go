package bench

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/plot"
)

// Figures of a [Restart] result, and the series of the single events, by the same names.
const (
	figureRestartSent  = "sent"
	figureRestartLost  = "lost"
	figureRehandshakes = "new handshakes"
	figureLongestWait  = "longest wait"
	figureSilence      = "no answer"
	figureServing      = "serving after"
	figureLate         = "clients late"
	figureLoadAverage  = "load average"
	figureMoving       = "forwarded while moving" // datagrams between cluster nodes; events that roll alone
	figureAfterMove    = "forwarded after"        // and while nothing moved
	figureTaken        = "taken over"             // sessions that other nodes have taken over; where they are replicated, as the next ones
	figureDropped      = "dropped"                // sessions that go on at no node, or at another one than that which dropped them
	figureBehind       = "behind"                 // sessions of which no other node has a copy at the end of the window
)

const paramReplicate = "replicate" // the store in which the nodes agree; absent: sessions are not replicated

const (
	seriesVerdict = "aims reached" // 1, 0, or 0.5: void
	seriesWaits   = "waits"        // of every sample
)

// result is the frame of the event's result.
func (r *restart) result(started time.Time) *measure.Result {
	result := &measure.Result{
		Scenario: scenarioRestart, Path: r.event.name, Machine: machine(), Started: started,
		Parameters: map[string]string{
			paramAbout: r.event.about, "clients": strconv.Itoa(r.config.Clients), "interval": r.config.Interval.String(),
			"times": strconv.Itoa(r.config.Times), "every": r.config.Every.String(),
		},
	}
	if r.config.Replicate != "" {
		result.Parameters[paramReplicate] = r.config.Replicate
	}
	return result
}

// restartFigure is a figure of each event, and how those of several become one.
type restartFigure struct {
	name, unit string
	of         func(*restartWindow) float64
	sum        func([]float64) float64
}

// figures are those of the event, in the order of the result.
func (r *restart) figures() []restartFigure {
	milliseconds := func(of func(*restartWindow) time.Duration) func(*restartWindow) float64 {
		return func(w *restartWindow) float64 { return measure.Millis(of(w)) }
	}
	count := func(of func(*restartWindow) uint64) func(*restartWindow) float64 {
		return func(w *restartWindow) float64 { return float64(of(w)) }
	}
	all := []restartFigure{
		{figureRestartSent, "", count(func(w *restartWindow) uint64 { return w.sent }), sumOf},
		{figureRestartLost, "", count(func(w *restartWindow) uint64 { return w.lost }), sumOf},
		{figureRehandshakes, "", count(func(w *restartWindow) uint64 { return w.handshakes }), sumOf},
		{figureRepeated, "", count(func(w *restartWindow) uint64 { return w.repeated }), sumOf},
		{figureLongestWait, "ms", milliseconds(func(w *restartWindow) time.Duration { return w.wait }), slices.Max[[]float64]},
		{figureSilence, "ms", milliseconds(func(w *restartWindow) time.Duration { return w.silence }), median},
		{figureServing, "ms", milliseconds(func(w *restartWindow) time.Duration { return w.served }), median},
		{figureLate, "ms", milliseconds(func(w *restartWindow) time.Duration { return w.late }), slices.Max[[]float64]},
		{figureLoadAverage, "", func(w *restartWindow) float64 { return w.load }, median},
	}
	if r.event.roll != "" {
		all = append(all, restartFigure{figureMoving, "", count(func(w *restartWindow) uint64 { return w.moving }), sumOf},
			restartFigure{figureAfterMove, "", count(func(w *restartWindow) uint64 { return w.forwarded }), sumOf})
	}
	if r.config.Replicate != "" {
		all = append(all, restartFigure{figureTaken, "", count(func(w *restartWindow) uint64 { return w.taken }), sumOf},
			restartFigure{figureDropped, "", count(func(w *restartWindow) uint64 { return w.dropped }), sumOf},
			restartFigure{figureBehind, "", func(w *restartWindow) float64 { return float64(w.behind) }, slices.Max[[]float64]})
	}
	return all
}

// fill sums the events up.
func (r *restart) fill(result *measure.Result, windows []restartWindow, samples []v1.CoAPBenchSample, total *v1.CoAPBench) {
	result.Elapsed = time.Since(result.Started)
	result.Latency, _ = measure.LatencyOf(total.Result.Latency) // of this very binary
	result.Samples = samplesSince(windows[0].at, samples, measure.SamplesOf(total.Result.Samples))
	values := func(of func(*restartWindow) float64) (all []float64) {
		for i := range windows {
			all = append(all, of(&windows[i]))
		}
		return all
	}
	for _, f := range r.figures() {
		all := values(f.of)
		result.Figures = append(result.Figures, measure.Figure{Name: f.name, Value: f.sum(all), Unit: f.unit})
		result.Series = append(result.Series, measure.Series{Name: f.name, Unit: f.unit, At: r.times(windows), Values: all})
	}
	result.Series = append(result.Series, measure.Series{Name: seriesVerdict, At: r.times(windows), Values: values(r.note(result))}, waitsOf(windows[0].at, samples))
	for i := range windows {
		result.Requests += windows[i].answered
		result.Errors += windows[i].lost
		result.Events = append(result.Events, measure.Event{At: windows[i].at.Sub(windows[0].at), What: r.event.name})
	}
}

func sumOf(values []float64) (sum float64) {
	for _, v := range values {
		sum += v
	}
	return sum
}

// times are those of the events, in seconds since the first one.
func (r *restart) times(windows []restartWindow) (all []float64) {
	for i := range windows {
		all = append(all, windows[i].at.Sub(windows[0].at).Seconds())
	}
	return all
}

// note judges one event after the other, and writes the verdict on all into the result: one missed aim outweighs what is void, and that
// what is reached.
func (r *restart) note(result *measure.Result) func(*restartWindow) float64 {
	counts, number := map[string]int{}, 0
	result.Parameters[paramVerdict] = verdictReached
	return func(w *restartWindow) float64 {
		number++
		verdict, why := w.judge()
		counts[verdict]++
		if why != "" {
			result.Parameters[paramMissed] += fmt.Sprintf("event %d %s: %s; ", number, strings.ToLower(verdict), why)
		}
		switch {
		case counts[verdictMissed] > 0:
			result.Parameters[paramVerdict] = verdictMissed
		case counts[verdictVoid] > 0:
			result.Parameters[paramVerdict] = verdictVoid
		}
		return map[string]float64{verdictReached: 1, verdictVoid: 0.5}[verdict]
	}
}

// waitsOf is the longest wait in each sample since the first event.
func waitsOf(start time.Time, samples []v1.CoAPBenchSample) measure.Series {
	all := measure.Series{Name: seriesWaits, Unit: "ms"}
	for i := range samples {
		if at := samples[i].At.Sub(start); at >= -time.Second {
			all.At, all.Values = append(all.At, at.Seconds()), append(all.Values, max(samples[i].Max, samples[i].Waiting))
		}
	}
	return all
}

// samplesSince are the clients' own samples since the first event. Theirs count from their first request.
func samplesSince(start time.Time, live []v1.CoAPBenchSample, own []measure.Sample) (since []measure.Sample) {
	if len(live) == 0 {
		return nil
	}
	begun := live[0].At.Add(-time.Duration(live[0].Period * float64(time.Second)))
	for _, s := range own {
		if s.At += begun.Sub(start); s.At > 0 {
			since = append(since, s)
		}
	}
	return since
}

// seriesOf is one series of a result; nil when it has none of that name.
func seriesOf(r *measure.Result, name string) *measure.Series {
	for i := range r.Series {
		if r.Series[i].Name == name {
			return &r.Series[i]
		}
	}
	return nil
}

// eventOf is the event of a result, and that sessions were replicated.
func eventOf(r *measure.Result) string {
	if r.Parameters[paramReplicate] != "" {
		return r.Path + ", replicated"
	}
	return r.Path
}

func replicated(results []*measure.Result) bool {
	return slices.ContainsFunc(results, func(r *measure.Result) bool { return r.Parameters[paramReplicate] != "" })
}

// restartColumns are the figures of the tables: the heading of each, and its name.
func restartColumns(results []*measure.Result) [][2]string {
	all := [][2]string{
		{"requests sent", figureRestartSent},
		{"lost", figureRestartLost},
		{"new handshakes", figureRehandshakes},
		{"repeated", figureRepeated},
		{"longest wait ms", figureLongestWait},
		{"no answer for ms", figureSilence},
		{"serving after ms", figureServing},
		{"forwarded after", figureAfterMove},
	}
	if replicated(results) {
		all = append(all, [2]string{"taken over", figureTaken}, [2]string{"dropped", figureDropped}, [2]string{"behind", figureBehind})
	}
	return append(all, [2]string{"clients late ms", figureLate}, [2]string{"load average", figureLoadAverage})
}

// restartTables are all events of a kind together, and each by itself.
func restartTables(results []*measure.Result) []plot.Table {
	parameter := func(name string) column {
		return column{name, func(r *measure.Result) string { return cmp.Or(r.Parameters[name], "-") }}
	}
	columns := []column{pathColumn("event"), parameter("times")}
	if replicated(results) {
		columns = append(columns, parameter(paramReplicate))
	}
	single := plot.Table{Title: "Each event", Header: []string{"event", "number"}}
	figures := restartColumns(results)
	for _, f := range figures {
		single.Header = append(single.Header, f[0])
		if f[1] == figureLoadAverage {
			columns = append(columns, numbered(f[0], f[1]))
		} else {
			columns = append(columns, counted(f[0], f[1]))
		}
	}
	single.Header = append(single.Header, "aims")
	columns = append(columns, column{"verdict", func(r *measure.Result) string { return verdictOf(r) }})
	for _, r := range results {
		verdicts := seriesOf(r, seriesVerdict)
		if verdicts == nil {
			continue
		}
		for i, reached := range verdicts.Values {
			row := []string{eventOf(r), strconv.Itoa(i + 1)}
			for _, f := range figures {
				if s := seriesOf(r, f[1]); s != nil && i < len(s.Values) {
					row = append(row, wholeNumber(s.Values[i]))
				} else {
					row = append(row, "-")
				}
			}
			single.Rows = append(single.Rows, append(row, map[float64]string{1: verdictReached, 0.5: verdictVoid, 0: verdictMissed}[reached]))
		}
	}
	return []plot.Table{tableOf("Restarts", results, stateOf, columns...), single}
}

func restartVerdict(results []*measure.Result) string {
	return fmt.Sprintf("%d kinds of events, aims missed or not proven by %d", len(results), missedBy(results))
}

func restartMethod(results []*measure.Result) string {
	r, m := results[0], results[0].Machine
	text := fmt.Sprintf(`Aims of each event: 0 requests lost, 0 new handshakes, no client waits more than %v for its answer. %s clients over DTLS with connection ids, pause %s, each
event %s times, every %s. A wait counts from when the request was intended to be sent. "No answer for" and "serving after" (until another process answers at the admin
socket; of a cluster node, until its sessions are back), in the first table, are medians; "clients late" is the longest time that the clients' program was behind its own timers. Events that it cannot
judge because of that are VOID. Clients and server share the machine: %s, %d cores, Linux %s. Started %s.`,
		restartLimit, r.Parameters["clients"], r.Parameters["interval"], r.Parameters["times"], r.Parameters["every"], m.CPU, m.Cores, m.Kernel, r.Started.UTC().Format(time.DateTime))
	if replicated(results) {
		text += fmt.Sprintf(`
Where sessions are replicated, the server is one of %d cluster nodes on this machine, which copy their sessions to each other, and the
events begin when all are copied. Sessions "taken over" by other nodes, those "dropped" by the server or for want of room at the others,
and those "behind", of which no other node has a copy at the end, are no aims by themselves.`, replicaNodes)
	}
	for _, r := range results {
		text += fmt.Sprintf("\n  %-10s %s", r.Path, r.Parameters[paramAbout])
	}
	return text
}

// restartPictures are the longest waits over time, and those of each event.
func restartPictures(results []*measure.Result) (pictures []plot.Figure) {
	limit := []plot.Level{{Y: float64(restartLimit.Milliseconds()), Label: "aim"}}
	for _, r := range results {
		waits := seriesOf(r, seriesWaits)
		if waits == nil {
			continue
		}
		chart := plot.Chart{
			Title: "restart: longest wait while " + eventOf(r) + " happens", YLabel: "ms", Levels: limit,
			Series: []plot.Series{{Name: "longest wait", X: waits.At, Y: waits.Values}},
		}
		for _, e := range r.Events {
			chart.Events = append(chart.Events, plot.Event{X: e.At.Seconds(), Label: e.What})
		}
		pictures = append(pictures, chart)
	}
	bars := plot.Bars{Title: "restart: longest wait and time without an answer", Unit: "ms", Names: []string{figureLongestWait, figureSilence}}
	for _, r := range results {
		if v := figureOf(r, figureLongestWait); !math.IsNaN(v) {
			bars.Groups = append(bars.Groups, plot.Group{Name: eventOf(r), Values: []float64{v, figureOf(r, figureSilence)}})
		}
	}
	if len(bars.Groups) > 0 {
		pictures = append(pictures, bars)
	}
	return pictures
}
