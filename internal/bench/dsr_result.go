package bench

import (
	"fmt"
	"os"
	"strings"

	"github.com/weir-lb/weir/internal/testbed/measure"
)

// Names of the figures of a [DSR] result besides rates. Costs are processor time of the whole machine, softirqs included and other
// programs' time subtracted, in ms/Gbit and ns/packet.
const (
	figureRatio    = "ratio to routing" // median of the ratios within each round
	figureDNAT     = "ratio to DNAT"    // the same, to the kernel's own translation
	figureFloor    = "ratio to floor"   // the same, to the generator alone; of [Live]
	figureCost     = "machine CPU"      // median
	figureCostLow  = "machine CPU, lowest"
	figureCostHigh = "machine CPU, highest"
	figureOwn      = "own CPU"            // median, of our processes and the kernel threads that carry packets
	figureOwnRatio = "own CPU to routing" // median of the ratios within each round
	figureBusy     = "cores busy"         // median
)

const paramLost = "lost" // share of the packets sent that did not arrive; absent when all did

// What a round notes besides its rate.
const (
	foundCost  = "cost"  // processor time of the machine for a unit
	foundOwn   = "own"   // the same of our processes and kernel threads
	foundCores = "cores" // cores busy
)

// dsrFound is the rate in Gbit/s or Mpps, and what that cost.
func dsrFound(c *cell, r round, s spent) map[string]float64 {
	found := map[string]float64{}
	units := float64(r.bytes) * 8 / 1e9
	if c.load.unit == "Mpps" {
		units = float64(r.packets) / 1e6
	}
	if r.elapsed > 0 {
		found[foundRate] = units / r.elapsed.Seconds()
	}
	if s.window <= 0 {
		return found
	}
	const costScale = 1e3 // from seconds for a Gbit, or microseconds for a packet
	found[foundOthers] = max(0, s.machine.Others).Seconds() / s.window.Seconds()
	found[foundOwn] = max(0, s.machine.Ours).Seconds() / units * costScale
	if left := s.machine.Busy - s.machine.Others; left > 0 { // else the sampling of a busy machine has lost it
		found[foundCores] = left.Seconds() / s.window.Seconds()
		found[foundCost] = left.Seconds() / units * costScale
	}
	return found
}

func dsrFigures(c *cell) []figure {
	_, _, costUnit := dsrTitle(c.load.name)
	return append(rateFigures(c.load.unit), []figure{
		{name: figureRatio, of: foundRate, to: pathRouting},
		{name: figureDNAT, of: foundRate, to: pathDNAT},
		{name: figureFloor, of: foundRate, to: pathFloor},
		{name: figureCost, of: foundCost, unit: costUnit, stat: medianOf},
		{name: figureCostLow, of: foundCost, unit: costUnit, stat: lowest},
		{name: figureCostHigh, of: foundCost, unit: costUnit, stat: highest},
		{name: figureOwn, of: foundOwn, unit: costUnit, stat: medianOf},
		{name: figureOwnRatio, of: foundOwn, to: pathRouting},
		{name: figureBusy, of: foundCores, unit: "cores", stat: medianOf},
		{name: figureOthers, of: foundOthers, unit: "cores", stat: medianOf},
	}...)
}

func dsrComplete(c *cell, result *measure.Result) {
	congestion, _ := os.ReadFile("/proc/sys/net/ipv4/tcp_congestion_control") //nolint:errcheck // for information
	result.Parameters["tcp"] = strings.TrimSpace(string(congestion))
	if c.ok() && c.lost > 0 {
		result.Parameters[paramLost] = fmt.Sprintf("%.3g of the packets sent", float64(c.lost)/float64(c.lost+c.packets))
	}
}
