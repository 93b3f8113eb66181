package bench

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/weir-lb/weir/internal/testbed/measure"
)

// Names of the figures of a [DSR] result. Rates are in Gbit/s for streams and Mpps for datagrams; costs are processor time
// of the whole machine, softirqs included and other programs' time subtracted, in ms/Gbit and ns/packet.
const (
	figureRate     = "rate"             // median of the rounds
	figureRateLow  = "rate, lowest"     //
	figureRateHigh = "rate, highest"    //
	figureRatio    = "ratio to routing" // median of the ratios within each round
	figureDNAT     = "ratio to DNAT"    // the same, to the kernel's own translation
	figureFloor    = "ratio to floor"   // the same, to the generator alone; of [Live]
	figureCost     = "machine CPU"      // median
	figureCostLow  = "machine CPU, lowest"
	figureCostHigh = "machine CPU, highest"
	figureOwn      = "own CPU"                // median, of our processes and the kernel threads that carry packets
	figureOwnRatio = "own CPU to routing"     // median of the ratios within each round
	figureBusy     = "cores busy"             // median
	figureOthers   = "cores busy with others" // median: what else the machine did meanwhile
	figureRound    = "rate, round "           // and its number
)

// Keys of Result.Parameters of a [DSR] result.
const (
	paramLost = "lost" // share of the packets sent that did not arrive; absent when all did
)

// note adds a round; a run without anything leaves a gap.
func (c *dsrCell) note(run dsrRun) {
	rate := math.NaN()
	if run.elapsed > 0 {
		rate = c.units(run) / run.elapsed.Seconds()
	}
	c.rates = append(c.rates, rate)
	c.costs = append(c.costs, math.NaN())
	c.own = append(c.own, math.NaN())
	c.cores = append(c.cores, math.NaN())
	c.others = append(c.others, math.NaN())
	c.elapsed += run.elapsed
	c.bytes += run.bytes
	c.packets += run.packets
	c.lost += run.lost
}

// units is what a run carried, in Gbit or millions of packets.
func (c *dsrCell) units(run dsrRun) float64 {
	if datagrams(c.load.name) {
		return float64(run.packets) / 1e6
	}
	return float64(run.bytes) * 8 / 1e9
}

func (b *dsrBench) results(started time.Time) []*measure.Result {
	congestion, _ := os.ReadFile("/proc/sys/net/ipv4/tcp_congestion_control") //nolint:errcheck // for information
	var results []*measure.Result
	for _, cell := range b.cells {
		result := &measure.Result{
			Scenario: b.plan.scenario, Road: cell.road.name, Machine: machine(), Started: started, Elapsed: cell.elapsed,
			Requests: cell.packets, Bytes: cell.bytes,
			Parameters: map[string]string{
				paramLoad: cell.load.name, paramFamily: cell.family,
				"rounds": strconv.Itoa(b.config.Rounds), "seconds": b.config.seconds(), "tcp": strings.TrimSpace(string(congestion)),
			},
		}
		results = append(results, result)
		if cell.failed != nil {
			result.Errors = 1
			result.Parameters[paramFailed] = cell.failed.Error()
			continue
		}
		result.Processes = []measure.Process{
			{Name: "machine", CPU: cell.spent.Busy}, {Name: "ours", CPU: cell.spent.Ours}, {Name: "others", CPU: cell.spent.Others},
		}
		result.Figures = cell.figures(b.beside(cell, pathRouting), b.beside(cell, pathDNAT), b.beside(cell, pathFloor))
		if cell.lost > 0 {
			result.Parameters[paramLost] = fmt.Sprintf("%.3g of the packets sent", float64(cell.lost)/float64(cell.lost+cell.packets))
		}
	}
	return results
}

// beside is the cell of another road with the same load and family; nil when that was not measured.
func (b *dsrBench) beside(of *dsrCell, road string) *dsrCell {
	for _, cell := range b.cells {
		if cell.road.name == road && cell.load.name == of.load.name && cell.family == of.family {
			return cell
		}
	}
	return nil
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

func (c *dsrCell) figures(routing, dnat, floor *dsrCell) []measure.Figure {
	const costScale = 1e3 // from seconds for a Gbit, or microseconds for a packet
	rateUnit, costUnit := "Gbit/s", "ms/Gbit"
	if datagrams(c.load.name) {
		rateUnit, costUnit = "Mpps", "ns/packet"
	}
	var costs, own []float64
	for i := range c.costs {
		costs, own = append(costs, c.costs[i]*costScale), append(own, c.own[i]*costScale)
	}
	if routing == nil {
		routing = &dsrCell{}
	}
	if dnat == nil {
		dnat = &dsrCell{}
	}
	if floor == nil {
		floor = &dsrCell{}
	}
	rate, cost := spreadOf(c.rates), spreadOf(costs)
	figures := []measure.Figure{
		{Name: figureRate, Value: rate.median, Unit: rateUnit},
		{Name: figureRateLow, Value: rate.low, Unit: rateUnit},
		{Name: figureRateHigh, Value: rate.high, Unit: rateUnit},
		{Name: figureRatio, Value: ratio(c.rates, routing.rates)},
		{Name: figureDNAT, Value: ratio(c.rates, dnat.rates)},
		{Name: figureFloor, Value: ratio(c.rates, floor.rates)},
		{Name: figureCost, Value: cost.median, Unit: costUnit},
		{Name: figureCostLow, Value: cost.low, Unit: costUnit},
		{Name: figureCostHigh, Value: cost.high, Unit: costUnit},
		{Name: figureOwn, Value: spreadOf(own).median, Unit: costUnit},
		{Name: figureOwnRatio, Value: ratio(c.own, routing.own)},
		{Name: figureBusy, Value: spreadOf(c.cores).median, Unit: "cores"},
		{Name: figureOthers, Value: spreadOf(c.others).median, Unit: "cores"},
	}
	for i, rate := range c.rates {
		figures = append(figures, measure.Figure{Name: figureRound + strconv.Itoa(i+1), Value: rate, Unit: rateUnit})
	}
	known := figures[:0]
	for _, figure := range figures { // JSON has no NaN: a ratio without its reference is left out
		if !math.IsNaN(figure.Value) && !math.IsInf(figure.Value, 0) {
			known = append(known, figure)
		}
	}
	return known
}
