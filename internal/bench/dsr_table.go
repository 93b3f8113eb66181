package bench

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/plot"
)

// dsrTitle names a load and its units.
func dsrTitle(load string) (title, unit, costUnit string) {
	switch load {
	case "iperf2":
		return "TCP, iperf 2, window 64 KB", "Gbit/s", "ms/Gbit"
	case "iperf3":
		return "TCP, iperf3", "Gbit/s", "ms/Gbit"
	case loadUDP:
		return fmt.Sprintf("UDP, %d bytes of payload, 1024 flows, one thread at a packet socket", floodPayload), "Mpps", "ns/packet"
	case loadFrames:
		return fmt.Sprintf("UDP, %d bytes of payload, 1024 flows, bare frames of one thread in the kernel", floodPayload), "Mpps", "ns/packet"
	}
	if flows, ok := strings.CutPrefix(load, livePrefix); ok {
		return fmt.Sprintf("UDP frames of 64 bytes (IPv6: 84), %s flows, one core", flows), "Mpps", "ns/packet"
	}
	return load, "", ""
}

// dsrTables are a table for each load and family.
func dsrTables(results []*measure.Result) (tables []plot.Table) {
	for _, g := range groupsOf(results, paramLoad, paramFamily) {
		title, unit, cost := dsrTitle(g.keys[0])
		tables = append(tables, tableOf(title+", "+g.keys[1], g.results, stateOf,
			pathColumn("path"), numbered(unit, figureRate), ranged(figureRateLow, figureRateHigh), numbered("x routing", figureRatio),
			numbered("x DNAT", figureDNAT), numbered("CPU "+cost, figureCost), numbered("own "+cost, figureOwn), numbered("x routing", figureOwnRatio)))
	}
	return tables
}

func dsrPictures(results []*measure.Result) []plot.Figure { return ratePictures(results, true) }

// ratePictures are throughput, and cost if requested, of each load over the families.
func ratePictures(results []*measure.Result, withCost bool) (pictures []plot.Figure) {
	for _, load := range groupsOf(results, paramLoad) { // of a group, only the key counts: a path has a result for each family
		var ofLoad []*measure.Result
		for _, r := range results {
			if r.Parameters[paramLoad] == load.keys[0] {
				ofLoad = append(ofLoad, r)
			}
		}
		var families []string
		groups := groupsOf(ofLoad, paramFamily)
		for _, g := range groups {
			families = append(families, g.keys[0])
		}
		title, unit, costUnit := dsrTitle(load.keys[0])
		rate := plot.Bars{Title: title, Unit: unit, Names: families, Note: medianNote}
		pictures = append(pictures, comparedBars(rate, groups, figureRate, figureRateLow, figureRateHigh))
		if withCost {
			cost := plot.Bars{
				Title: title + ": processor time of the machine", Unit: costUnit, Names: families,
				Note: "Less is better. Client, gateway and server together, what other programs spent subtracted.",
			}
			pictures = append(pictures, comparedBars(cost, groups, figureCost, figureCostLow, figureCostHigh))
		}
	}
	return pictures
}

const medianNote = "Median of the rounds; the line spans the lowest and the highest."

func dsrNotes(results []*measure.Result) []string {
	return append(failures(results), remarks("lost", results, paramLost)...)
}

// dsrMethod says how the numbers came about.
func dsrMethod(results []*measure.Result) string {
	first := results[0]
	return lines(fmt.Sprintf(`Medians of %s rounds of %s s; the paths took turns in each round. "x routing" and "x DNAT" are medians of the ratios within
the rounds, to plain routing and to iptables-dnat. CPU: processor time of the whole machine, softirqs included, less that
of other programs; own: of our processes and the kernel threads that carry packets.
%s, %d cores, Linux %s, TCP %s, offloads as the kernel sets them.`,
		first.Parameters["rounds"], first.Parameters["seconds"], first.Machine.CPU, first.Machine.Cores, first.Machine.Kernel, first.Parameters["tcp"]),
		othersText(results, "trust the ratios more than the rates, and own more than CPU"))
}

// liveTables are a table for each number of flows and family.
func liveTables(results []*measure.Result) (tables []plot.Table) {
	lost := column{"lost", func(r *measure.Result) string {
		share, _, _ := strings.Cut(r.Parameters[paramLost], " ")
		return cmp.Or(share, "0")
	}}
	ownRatio := column{"x routing", func(r *measure.Result) string { return number(1 / figureOf(r, figureOwnRatio)) }}
	for _, g := range groupsOf(results, paramLoad, paramFamily) {
		title, unit, _ := dsrTitle(g.keys[0])
		tables = append(tables, tableOf(title+", "+g.keys[1], g.results, stateOf,
			pathColumn("path"), numbered(unit, figureRate), ranged(figureRateLow, figureRateHigh), numbered("x routing", figureRatio),
			numbered("x DNAT", figureDNAT), numbered("x floor", figureFloor), numbered("own ns", figureOwn), ownRatio, lost))
	}
	return tables
}

func livePictures(results []*measure.Result) []plot.Figure { return ratePictures(results, false) }

// liveMethod says how the numbers came about.
func liveMethod(results []*measure.Result) string {
	first := results[0]
	return lines(fmt.Sprintf(`Medians of %s rounds of %s s; the paths took turns in each round. Ratios are medians of those within the rounds. A thread on one core
has the kernel write each frame again and redirect it to a veth; the gateway forwards it to another; a program at the end
counts and drops it. "own" is the processor time of our processes and the kernel threads that carry packets: on an idle machine
it says the same as the rate, on a machine with other work it is what to trust. "lost" is the share that was sent and did not come to
the end: queues between two veths that overflow.
%s, %d cores, Linux %s, offloads as the kernel sets them.`,
		first.Parameters["rounds"], first.Parameters["seconds"], first.Machine.CPU, first.Machine.Cores, first.Machine.Kernel),
		othersText(results, "trust own and its ratio more than rates"))
}
