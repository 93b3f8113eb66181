package bench

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/weir-lb/weir/internal/testbed/measure"
)

// Names of the figures of scenarios with paths and loads. Rates are in Gbit/s for streams, Mpps or kpps for datagrams, µs for round
// trips.
const (
	figureRate     = "rate"                   // median of the rounds
	figureRateLow  = "rate, lowest"           //
	figureRateHigh = "rate, highest"          //
	figureOthers   = "cores busy with others" // median: what else the machine did meanwhile
	figureRound    = "rate, round "           // and its number
)

// What a round notes under these names in all of them; others are of one scenario.
const (
	foundRate   = "rate"
	foundOthers = "others" // cores that other programs kept busy
)

func orNaN(found map[string]float64, name string) float64 {
	if v, ok := found[name]; ok {
		return v
	}
	return math.NaN()
}

// figure is one figure of a result: what it is made of, and how.
type figure struct {
	name, of, unit string
	stat           func(spread) float64 // of the rounds; nil: the median of the ratios, within the rounds, to another path
	to             string               // that path
	total          uint64               // of all rounds, where of is empty
}

func medianOf(s spread) float64 { return s.median }
func lowest(s spread) float64   { return s.low }
func highest(s spread) float64  { return s.high }

// rateFigures are the first figures of every result.
func rateFigures(unit string) []figure {
	return []figure{
		{name: figureRate, of: foundRate, unit: unit, stat: medianOf},
		{name: figureRateLow, of: foundRate, unit: unit, stat: lowest},
		{name: figureRateHigh, of: foundRate, unit: unit, stat: highest},
	}
}

// ratio is the median of the ratios within the rounds; NaN without a reference. Both lists have a value for each round.
func ratio(values, reference []float64) float64 {
	var ratios []float64
	for i, value := range values {
		if i < len(reference) && reference[i] > 0 {
			ratios = append(ratios, value/reference[i])
		}
	}
	return spreadOf(ratios).median
}

// other is the cell of another path with the same network otherwise, load and family; one without rounds where that is not measured.
func (g *grid) other(of *cell, name string) *cell {
	for _, c := range g.cells {
		if c.path.name == name && c.path.variant == of.path.variant && c.load == of.load && c.family == of.family {
			return c
		}
	}
	return &cell{}
}

func (g *grid) results(started time.Time) (results []*measure.Result) {
	for _, c := range g.cells {
		result := &measure.Result{
			Scenario: g.scenario, Path: c.path.name, Machine: machine(), Started: started, Elapsed: c.elapsed, Requests: c.packets, Bytes: c.bytes,
			Parameters: map[string]string{
				paramLoad: c.load.name, paramFamily: c.family, "rounds": strconv.Itoa(g.config.Rounds), "seconds": g.config.seconds(),
			},
		}
		results = append(results, result)
		g.complete(c, result)
		switch {
		case c.path.absent != "":
			result.Parameters[paramAbsent] = c.path.absent
			continue
		case c.failed != nil:
			result.Errors = 1
			result.Parameters[paramFailed] = c.failed.Error()
			continue
		}
		m := c.spent.machine
		result.Processes = append(result.Processes, measure.Process{Name: "machine", CPU: m.Busy}, measure.Process{Name: "ours", CPU: m.Ours}, measure.Process{Name: "others", CPU: m.Others})
		result.Figures = g.figuresOf(c)
	}
	return results
}

// figuresOf are a cell's, and the rate of each round. JSON has no NaN: what was not measured, or has nothing to be compared with, is
// left out.
func (g *grid) figuresOf(c *cell) (figures []measure.Figure) {
	for _, f := range g.figures(c) {
		value := float64(f.total)
		switch {
		case f.of != "" && f.stat != nil:
			value = f.stat(spreadOf(c.values(f.of)))
		case f.of != "":
			value = ratio(c.values(f.of), g.other(c, f.to).values(f.of))
		}
		figures = append(figures, measure.Figure{Name: f.name, Value: value, Unit: f.unit})
	}
	for i, rate := range c.values(foundRate) {
		figures = append(figures, measure.Figure{Name: figureRound + strconv.Itoa(i+1), Value: rate, Unit: c.load.unit})
	}
	return slices.DeleteFunc(figures, func(f measure.Figure) bool { return math.IsNaN(f.Value) || math.IsInf(f.Value, 0) })
}
