package bench

import (
	"cmp"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/weir-lb/weir/internal/testbed/measure"
)

// Names of the figures of an [NFQueue] result, besides rates.
// Rates are in Gbit/s, kpps or, of round trips, µs.
const (
	figureDirect     = "ratio to direct"   // median of the ratios within each round
	figureOffered    = "offered"           // what was sent; median, in the unit of the rate
	figureDelivered  = "delivered"         // percent of the datagrams sent; median
	figureMachine    = "machine busy"      // percent of all cores, other programs' time subtracted; median
	figurePeer       = "ratio to a peer"   // median of the ratios, within each round, to the peer's path with as many queues
	figurePacketCost = "balancer CPU"      // µs of the balancer's processor time for a packet of its queues; median
	figureQueued     = "queued"            // packets that the queues numbered, all rounds
	figureQueueDrops = "queue drops"       // packets that found a queue full, all rounds
	figureUserDrops  = "user drops"        // packets that found a socket's buffer full, all rounds
	figureBest       = "best"              // shortest round trip of all rounds
	figureP99        = "99th percentile"   // of round trips; median of the rounds
	figureQueue      = "packets of queue " // and its number: all rounds
)

// Keys of Result.Parameters of an [NFQueue] result.
const (
	paramOffload = "offload"
	paramTitle   = "title"         // of the load
	paramUnit    = "unit"          // of the rate
	paramBefore  = "queues before" // statistics of the path's queues before its first and after its last run
	paramAfter   = "queues after"
	paramNetwork = "network"    // whose queues these are
	paramSlow    = "scheduling" // why the run was not preferred to other programs
)

// What a round notes besides its rate.
const (
	foundOffered   = "offered"
	foundDelivered = "delivered" // percent of those sent
	foundBusy      = "busy"      // percent of the machine, without other programs
	foundBest      = "best"      // µs, of ping-pong
	foundP99       = "p99"
)

// nfqFound is the rate in the load's unit, what of it arrived, and what that cost.
func nfqFound(c *cell, r round, s spent) map[string]float64 {
	found := map[string]float64{}
	if r.elapsed > 0 {
		found[foundRate] = c.load.rate(r.packets, r.bytes, r.elapsed)
		if r.trips != nil {
			found[foundRate], found[foundBest], found[foundP99] = r.trips.Median, r.trips.Best, r.trips.Ninety9
		}
		if r.sent > 0 {
			found[foundDelivered] = 100 * float64(r.packets) / float64(r.sent)
			if r.trips == nil {
				found[foundOffered] = c.load.rate(r.sent, r.sent*(r.bytes/max(r.packets, 1)), r.elapsed)
			}
		}
	}
	if s.window > 0 {
		// Sampling may take more from others than there was, and what others' ended children spent is never seen.
		if left := s.machine.Busy - max(0, s.machine.Others); left > 0 {
			found[foundBusy] = 100 * left.Seconds() / s.window.Seconds() / float64(runtime.NumCPU())
		}
		found[foundOthers] = max(0, s.machine.Others).Seconds() / s.window.Seconds()
	}
	queued := uint64(0)
	for _, row := range s.queues {
		queued += uint64(row.sequence)
	}
	const few = 1000 // packets: fewer say nothing of their cost
	if queued >= few {
		found[foundCost] = float64(s.balancer.Microseconds()) / float64(queued)
	}
	return found
}

func (l *load) rate(packets, bytes uint64, elapsed time.Duration) float64 {
	if l.unit == "kpps" {
		return float64(packets) / 1e3 / elapsed.Seconds()
	}
	return float64(bytes) * 8 / 1e9 / elapsed.Seconds()
}

func nfqFigures(c *cell) []figure {
	figures := append(rateFigures(c.load.unit), []figure{
		{name: figureDirect, of: foundRate, to: pathDirect},
		{name: figurePeer, of: foundRate, to: c.path.nfq.compare},
		{name: figureOffered, of: foundOffered, unit: c.load.unit, stat: medianOf},
		{name: figureDelivered, of: foundDelivered, unit: "%", stat: medianOf},
		{name: figureMachine, of: foundBusy, unit: "%", stat: medianOf},
		{name: figureOthers, of: foundOthers, unit: "cores", stat: medianOf},
		{name: figurePacketCost, of: foundCost, unit: "µs/packet", stat: medianOf},
		{name: figureBest, of: foundBest, unit: "µs", stat: lowest},
		{name: figureP99, of: foundP99, unit: "µs", stat: medianOf},
	}...)
	if !c.path.nfq.balanced() {
		return figures
	}
	queued := uint64(0)
	for _, n := range c.queued {
		queued += n
	}
	figures = append(figures,
		figure{name: figureQueued, total: queued, unit: "packets"},
		figure{name: figureQueueDrops, total: c.queueDrops, unit: "packets"},
		figure{name: figureUserDrops, total: c.userDrops, unit: "packets"})
	for _, number := range slices.Sorted(maps.Keys(c.queued)) {
		figures = append(figures, figure{name: figureQueue + strconv.Itoa(number), total: c.queued[number], unit: "packets"})
	}
	return figures
}

func nfqComplete(g *grid, c *cell, result *measure.Result) {
	p := result.Parameters
	p[paramOffload], p[paramTitle], p[paramUnit] = c.path.nfq.offload, c.load.title, c.load.unit
	if g.running.Slow() != nil {
		p[paramSlow] = g.running.Slow().Error()
	}
	if !c.ok() || !c.path.nfq.balanced() {
		return
	}
	p[paramBefore], p[paramAfter], p[paramNetwork] = queuesText(c.path.nfq.first), "", c.path.title()
	if c.path.failed == nil {
		if rows, err := readQueues(c.path.nfq.balancer(c.path)); err == nil { // else the table shows that it is missing
			p[paramAfter] = queuesText(rows)
		}
	}
	result.Processes = append(result.Processes, measure.Process{Name: cmp.Or(c.path.nfq.of, "weir"), CPU: c.spent.balancer})
}

// queuesText is one row of statistics for each queue, as the source document's script shows them.
func queuesText(rows map[int]queueRow) string {
	text := ""
	for i, number := range slices.Sorted(maps.Keys(rows)) {
		if i > 0 {
			text += "; "
		}
		row := rows[number]
		text += fmt.Sprintf("queue %d: waiting %d, queue drops %d, user drops %d, sequence %d", number, row.waiting, row.queueDrops, row.userDrops, row.sequence)
	}
	return text
}
