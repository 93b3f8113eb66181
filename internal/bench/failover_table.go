package bench

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/plot"
)

// Figures of a [Failover] result.
const (
	figureFailoverTCP       = "TCP flows"
	figureFailoverTCPLost   = "TCP flows lost"
	figureFailoverUDP       = "UDP flows"
	figureFailoverUDPLost   = "UDP flows lost"
	figureFailoverFirst     = "flows at the balancer" // in the table of the one that is powered off
	figureFailoverDatagrams = "datagrams lost"        // of flows that live
	figureFailoverLast      = "last lost packet"      // of these, since the power-off
	figureFailoverWait      = "longest TCP wait"      // of connections that live
	seriesFailoverLost      = "datagrams lost"        // so far, since the power-off

	paramChange = "change"
	paramBFD    = "bfd"
)

func (c *failover) result(started time.Time) *measure.Result {
	return &measure.Result{
		Scenario: scenarioFailover, Path: c.path.name, Machine: machine(), Started: started,
		Parameters: map[string]string{
			paramAbout: c.path.about, paramChange: c.change, "flows": strconv.Itoa(c.config.Flows), "rate": fmt.Sprintf("%g", c.config.Rate), paramBFD: c.config.BFD.String(),
		},
	}
}

// fill computes the figures and judges them. before is how many datagrams were lost while nothing had happened.
func (c *failover) fill(r *measure.Result, o failoverOutcome, before int) {
	r.Elapsed = time.Since(r.Started)
	r.Requests, r.Errors = uint64(o.stream.flows+o.datagram.flows), uint64(o.stream.lost+o.datagram.lost)
	r.Figures = []measure.Figure{
		{Name: figureFailoverTCP, Value: float64(o.stream.flows)},
		{Name: figureFailoverTCPLost, Value: float64(o.stream.lost)},
		{Name: figureFailoverUDP, Value: float64(o.datagram.flows)},
		{Name: figureFailoverUDPLost, Value: float64(o.datagram.lost)},
		{Name: figureFailoverDatagrams, Value: float64(o.datagram.datagrams)},
		{Name: figureFailoverLast, Value: measure.Millis(o.datagram.last), Unit: "ms"},
		{Name: figureFailoverWait, Value: measure.Millis(o.stream.wait), Unit: "ms"},
		{Name: figureLoadAverage, Value: loadAverage()},
	}
	if c.atFirst >= 0 {
		r.Figures = append(r.Figures, measure.Figure{Name: figureFailoverFirst, Value: float64(c.atFirst)})
	}
	times := slices.Sorted(slices.Values(o.datagram.times))
	lost := measure.Series{Name: seriesFailoverLost, At: times}
	for i := range times {
		lost.Values = append(lost.Values, float64(i+1))
	}
	r.Series = append(r.Series, lost)
	r.Events = append(r.Events, measure.Event{What: "power-off"})
	c.judge(r, o, before)
}

// judge writes the verdict.
func (c *failover) judge(r *measure.Result, o failoverOutcome, before int) {
	why := strings.Join(slices.DeleteFunc([]string{o.stream.why, o.datagram.why}, func(s string) bool { return s == "" }), "; ")
	if before > 0 {
		r.Parameters[paramNote] = fmt.Sprintf("%d datagrams were lost before the power-off", before)
	}
	if c.path.keeps == nil {
		r.Parameters[paramVerdict] = verdictPeer
		return
	}
	stream, datagram := c.path.keeps(c.change)
	r.Parameters[paramVerdict] = verdictReached
	switch {
	case stream && o.stream.lost > 0 || datagram && o.datagram.lost > 0:
		r.Parameters[paramVerdict], r.Parameters[paramMissed] = verdictMissed, why
	case o.stream.flows == 0 || c.atFirst == 0:
		r.Parameters[paramVerdict], r.Parameters[paramMissed] = verdictVoid, "the balancer that was powered off had no flows"
	case !stream && !datagram:
		r.Parameters[paramVerdict] = verdictPeer
	}
}

// share is a count with its percentage.
func share(head, figure, of string) column {
	return column{head, func(r *measure.Result) string {
		lost, all := figureOf(r, figure), figureOf(r, of)
		if !(all > 0) {
			return "-"
		}
		return fmt.Sprintf("%.0f (%.1f %%)", lost, 100*lost/all)
	}}
}

func failoverTables(results []*measure.Result) []plot.Table {
	return []plot.Table{tableOf("One of two balancers is powered off", results, stateOf,
		pathColumn("balancers"), column{"backends", func(r *measure.Result) string { return r.Parameters[paramChange] }},
		counted("TCP flows", figureFailoverTCP), share("lost", figureFailoverTCPLost, figureFailoverTCP), counted("UDP flows", figureFailoverUDP), share("lost", figureFailoverUDPLost, figureFailoverUDP),
		counted("at the balancer", figureFailoverFirst), counted("last lost packet ms", figureFailoverLast), counted("longest TCP wait ms", figureFailoverWait),
		formatted("load average", "%.0f", figureLoadAverage), column{"verdict", func(r *measure.Result) string { return failoverWord(r) }})}
}

// failoverWord is the verdict on a result; where nothing is claimed, none.
func failoverWord(r *measure.Result) string {
	if r.Parameters[paramVerdict] == verdictPeer {
		return "-"
	}
	return verdictOf(r)
}

func failoverVerdict(results []*measure.Result) string {
	return fmt.Sprintf("%d measurements, aims missed or not proven by %d", len(results), missedBy(results))
}

func failoverMethod(results []*measure.Result) string {
	r, m := results[0], results[0].Machine
	text := fmt.Sprintf(`%s flows, half TCP and half UDP, send %s requests a second in turn to a VIP that two balancers announce by BGP to a router (BIRD; BFD every %s, three missing packets are a dead path).
One balancer's link goes down and its process is killed. A flow is lost whose connection breaks, whose answer comes from another backend or to another address, or whose last
request is not answered. The last lost packet is the last datagram of a living flow without an answer, by when it was sent, since the power-off. "at the balancer" is the flows in the table of the one that is
powered off, where it is Weir. All share the machine: %s, %d cores, Linux %s. Started %s.`,
		r.Parameters["flows"], r.Parameters["rate"], r.Parameters[paramBFD], m.CPU, m.Cores, m.Kernel, r.Started.UTC().Format(time.DateTime))
	var seen []string
	for _, r := range results {
		if !slices.Contains(seen, r.Path) {
			seen = append(seen, r.Path)
			text += fmt.Sprintf("\n  %-16s %s", r.Path, r.Parameters[paramAbout])
		}
	}
	for _, change := range failoverChanges() {
		text += fmt.Sprintf("\n  %-16s %s", change.name, change.about)
	}
	for _, r := range results {
		if note := r.Parameters[paramNote]; note != "" {
			text += fmt.Sprintf("\nnote: %s, %s: %s", r.Path, r.Parameters[paramChange], note)
		}
	}
	return text
}

// failoverPictures are how many flows are lost, and when packets were lost.
func failoverPictures(results []*measure.Result) (pictures []plot.Figure) {
	for _, g := range groupsOf(results, paramChange) {
		bars := plot.Bars{Title: "failover: flows lost, backends: " + g.keys[0], Unit: "%", Names: []string{"TCP", "UDP"}, Note: "Less is better."}
		chart := plot.Chart{Title: "failover: datagrams of living flows lost since the power-off, backends: " + g.keys[0], YLabel: "datagrams"}
		for _, r := range g.results {
			bars.Groups = append(bars.Groups, plot.Group{Name: r.Path, Values: []float64{
				100 * figureOf(r, figureFailoverTCPLost) / figureOf(r, figureFailoverTCP), 100 * figureOf(r, figureFailoverUDPLost) / figureOf(r, figureFailoverUDP),
			}})
			if s := seriesOf(r, seriesFailoverLost); s != nil && len(s.At) > 1 {
				chart.Series = append(chart.Series, plot.Series{Name: r.Path, X: s.At, Y: s.Values})
			}
		}
		pictures = append(pictures, bars)
		if len(chart.Series) > 0 {
			pictures = append(pictures, chart)
		}
	}
	return pictures
}

// failoverNotes are why something could not be measured.
func failoverNotes(results []*measure.Result) (lines []string) {
	for _, r := range results {
		for _, why := range []string{r.Parameters[paramFailed], r.Parameters[paramAbsent]} {
			if why != "" {
				lines = append(lines, fmt.Sprintf("%s, %s: %s", r.Path, r.Parameters[paramChange], why))
			}
		}
	}
	return lines
}
