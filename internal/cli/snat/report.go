package snat

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/snat"
	"github.com/weir-lb/weir/internal/testbed/plot"
)

// snatPage draws a run.
type snatPage struct {
	s     snat.Scenario
	r     v1.SNATSimulation
	unit  string // of the time axis
	scale float64
	x     []float64
}

func snatReport(s snat.Scenario, r v1.SNATSimulation) plot.Report {
	p := snatPage{s: s, r: r, unit: "s", scale: 1}
	switch virtual := r.Run.Virtual; {
	case virtual > 6*3600:
		p.unit, p.scale = "h", 3600
	case virtual > 600:
		p.unit, p.scale = "min", 60
	}
	for _, at := range r.Run.Series.Second {
		p.x = append(p.x, at/p.scale)
	}
	run := r.Run
	report := plot.Report{
		Title: "weir snat simulate", When: time.Now(), Verdict: r.Verdict, OK: run.TimedOut+run.Errors+run.Evicted == 0,
		Facts: []plot.Fact{
			{Name: "connects", Value: snat.Group(run.Attempts)},
			{Name: "most held", Value: snat.Group(run.Peak)},
			{Name: "the path holds at most", Value: snat.Group(r.Plan.Ceiling)},
			{Name: "opened/s, last half", Value: fmt.Sprintf("%.1f", run.OpenPerSecond)},
			{Name: "waited for a later SYN", Value: snat.Group(run.Delayed)},
			{Name: "failed", Value: snat.Group(run.TimedOut + run.Errors)},
		},
		Figures: []plot.Figure{p.held(), p.ports(), p.rates(), p.use()},
		Tables:  []plot.Table{{Title: "Stages", Header: []string{"stage", "holds", "most connections", "fullest key", "most ports in use or held down", "refused", "first after"}}},
		Method: fmt.Sprintf("weir %s\npath: %s\n%s of virtual time in %.2f s, %s events, seed %d", strings.Join(os.Args[1:], " "), path(s), virtual(run.Virtual), r.Took,
			snat.Group(run.Events), run.Seed),
	}
	if run.Delayed+run.TimedOut > 0 && s.Protocol == snat.TCP {
		report.Figures = append(report.Figures, p.syns())
	}
	for _, st := range run.Stages {
		report.Tables[0].Rows = append(report.Tables[0].Rows, stageRow(st))
	}
	for i, e := range p.events() {
		report.Events = append(report.Events, plot.Event{X: e.X * p.scale, Label: e.Label})
		if i == 0 {
			report.Facts = append(report.Facts, plot.Fact{Name: "full first, after " + virtual(*run.BrokeAt), Value: run.BrokeFirst})
		}
	}
	return report
}

func path(s snat.Scenario) string {
	var all []string
	for _, p := range s.Path {
		all = append(all, string(p.Kind))
	}
	return strings.Join(all, " → ")
}

func floats(of []int64) []float64 {
	all := make([]float64, len(of))
	for i, n := range of {
		all[i] = float64(n)
	}
	return all
}

// events are when each stage first refused a connection, what broke first first.
func (p snatPage) events() []plot.Event {
	var all []plot.Event
	add := func(st snat.StageRun) {
		all = append(all, plot.Event{X: *st.FirstRefused / p.scale, Label: st.Name + " is full for the first time"})
	}
	for _, st := range p.r.Run.Stages {
		if st.FirstRefused != nil && st.Name == p.r.Run.BrokeFirst {
			add(st)
		}
	}
	for _, st := range p.r.Run.Stages {
		if st.FirstRefused != nil && st.Name != p.r.Run.BrokeFirst {
			add(st)
		}
	}
	return all
}

func (p snatPage) chart(title, y string) plot.Chart {
	return plot.Chart{Title: title, YLabel: y, XLabel: "virtual time, " + p.unit, Events: p.events()}
}

// held is the connections over time, below the ceilings that they come near to.
func (p snatPage) held() plot.Chart {
	c := p.chart("Connections", "connections")
	c.Note = "Held: connections that are open. Waiting: connects without an answer yet. Dotted: what a stage holds, all nodes and keys together."
	c.Series = []plot.Series{{Name: "held", X: p.x, Y: floats(p.r.Run.Series.Held)}, {Name: "waiting", X: p.x, Y: floats(p.r.Run.Series.Waiting)}}
	top := p.r.Run.Peak
	for _, n := range p.r.Run.Series.Waiting {
		top = max(top, n)
	}
	if p.s.Traffic.Policy != snat.Open {
		c.Levels = append(c.Levels, plot.Level{Y: float64(p.r.Plan.Demand), Label: "wanted: " + snat.Group(p.r.Plan.Demand)})
		top = max(top, p.r.Plan.Demand)
	}
	for _, st := range p.r.Run.Stages {
		if st.Capacity <= top+top/2 {
			c.Levels = append(c.Levels, plot.Level{Y: float64(st.Capacity), Label: st.Name + " holds " + snat.Group(st.Capacity)})
		}
	}
	return c
}

// tight is the stage that refused most, or came nearest to it.
func (p snatPage) tight() snat.StageRun {
	best := p.r.Run.Stages[0]
	for _, st := range p.r.Run.Stages[1:] {
		if st.Refused > best.Refused || st.Refused == best.Refused && share(st) > share(best) {
			best = st
		}
	}
	return best
}

// share is how full a stage was at its worst.
func share(st snat.StageRun) float64 {
	most := float64(st.Fullest) / float64(max(st.PerKey, 1))
	if st.Ports > 0 {
		most = max(most, float64(st.PeakHeld)/float64(st.Ports))
	}
	return most
}

// ports is where the ports of the tightest stage are.
func (p snatPage) ports() plot.Figure {
	if len(p.r.Run.Stages) == 0 {
		return plot.Chart{Title: "No stage bounds this path"}
	}
	st := p.tight()
	c := p.chart("Ports of "+st.Name, "ports")
	resting := make([]float64, len(st.Busy))
	for i := range st.Busy {
		resting[i] = float64(st.Busy[i] - st.Active[i])
	}
	c.Note = "Held down: ports of connections that have ended and that serve no one yet (cool-down, TIME_WAIT)."
	c.Series = []plot.Series{{Name: "in use", X: p.x, Y: floats(st.Active)}, {Name: "held down", X: p.x, Y: resting}, {Name: "both", X: p.x, Y: floats(st.Busy)}}
	if st.Ports == 0 {
		c.YLabel, c.Note, c.Series = "connections", "It has no ports and holds nothing down.", c.Series[:1]
	}
	switch {
	case st.Ports > 0:
		c.Levels = append(c.Levels, plot.Level{Y: float64(st.Ports), Label: "all of its ports: " + snat.Group(st.Ports)})
		fallthrough
	default:
		if st.Capacity != st.Ports {
			c.Levels = append(c.Levels, plot.Level{Y: float64(st.Capacity), Label: "connections that it holds: " + snat.Group(st.Capacity)})
		}
	}
	return c
}

// rates are connects per second, with the rate that the path sustains.
func (p snatPage) rates() plot.Chart {
	series := p.r.Run.Series
	top := 0.0
	rate := func(of []int64) []float64 {
		all := make([]float64, len(of))
		for i := 1; i < len(of); i++ {
			all[i] = float64(of[i]-of[i-1]) / (series.Second[i] - series.Second[i-1])
			top = max(top, all[i])
		}
		return all
	}
	c := p.chart("Connects", "per second")
	c.Series = []plot.Series{{Name: "tried", X: p.x, Y: rate(series.Tried)}, {Name: "opened", X: p.x, Y: rate(series.Opened)}, {Name: "failed", X: p.x, Y: rate(series.Failed)}}
	if can := p.r.Plan.NewPerSecond; can > 0 && can < 2*top && p.s.Traffic.Lifetime > 0 {
		c.Levels = []plot.Level{{Y: can, Label: fmt.Sprintf("can go on: %.0f/s", can)}}
		c.Note = "Dotted: new connections per second that can go on for ever, as the ports of " + p.r.Plan.RateStage + " come back."
	}
	return c
}

// use is how full each stage was at its worst.
func (p snatPage) use() plot.Bars {
	bars := plot.Bars{Title: "How full each stage was", Unit: "% at the worst moment", Names: []string{"used"}, Note: "Of its fullest key, or of all of its ports with those held down, whichever is more."}
	for _, st := range p.r.Run.Stages {
		bars.Groups = append(bars.Groups, plot.Group{Name: short(st.Name), Values: []float64{100 * share(st)}})
	}
	return bars
}

// short cuts a name to what fits next to a bar.
func short(name string) string {
	if r := []rune(name); len(r) > 32 {
		return string(r[:31]) + "…"
	}
	return name
}

func (p snatPage) syns() plot.Bars {
	bars := plot.Bars{
		Title: "Opened by SYN", Unit: "connections", Names: []string{"opened"},
		Note: "A SYN without a port vanishes; the kernel sends the next ones 1, 3, 7, 15, 31 and 63 s after the first, and gives up at 127 s.",
	}
	for i, n := range p.r.Run.WaitedFor {
		bars.Groups = append(bars.Groups, plot.Group{Name: fmt.Sprintf("after %d s", 1<<i-1), Values: []float64{float64(n)}})
	}
	bars.Groups = append(bars.Groups, plot.Group{Name: "never, timed out", Values: []float64{float64(p.r.Run.TimedOut)}})
	return bars
}
