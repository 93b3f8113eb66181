package bench

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/weir-lb/weir/internal/testbed/measure"
)

// Names of the figures of an [NFQueue] result, beside [figureRate], [figureRateLow], [figureRateHigh] and [figureOthers].
// Rates are in Gbit/s, kpps or, of round trips, µs.
const (
	figureDirect     = "ratio to direct"   // median of the ratios within each round
	figureOffered    = "offered"           // what was sent; median, in the unit of the rate
	figureDelivered  = "delivered"         // percent of the datagrams sent; median
	figureMachine    = "machine busy"      // percent of all cores, other programs' time subtracted; median
	figurePeer       = "ratio to a peer"   // median of the ratios, within each round, to the peer's road with as many queues
	figurePacketCost = "balancer CPU"      // µs of the balancer's processor time for a packet of its queues; median
	figureQueued     = "queued"            // packets that the queues numbered, all rounds
	figureQueueDrops = "queue drops"       // packets that found a queue full, all rounds
	figureUserDrops  = "user drops"        // packets that found a socket's buffer full, all rounds
	figureBest       = "best"              // shortest round trip of all rounds
	figureP99        = "99th percentile"   // of round trips; median of the rounds
	figureQueue      = "packets of queue " // and its number: all rounds
)

// Keys of Result.Parameters of an [NFQueue] result, beside [paramLoad], [paramFamily] and [paramFailed].
const (
	paramOffload = "offload"
	paramTitle   = "title"         // of the load
	paramUnit    = "unit"          // of the rate
	paramBefore  = "queues before" // statistics of the road's queues before its first and after its last run
	paramAfter   = "queues after"
	paramNetwork = "network"    // whose queues these are
	paramSlow    = "scheduling" // why the run was not preferred to other programs
)

// note adds a round; a run without anything leaves a gap.
func (c *nfqCell) note(run nfqRun, spent nfqSpent) {
	nan := math.NaN()
	rate, offered, delivered, busy, others, cost, best, p99 := nan, nan, nan, nan, nan, nan, nan, nan
	if run.elapsed > 0 {
		rate = c.load.rate(run.packets, run.bytes, run.elapsed)
		if run.latency != nil {
			rate, best, p99 = run.latency.Median, run.latency.Best, run.latency.Ninety9
		}
		if run.sent > 0 {
			delivered = 100 * float64(run.packets) / float64(run.sent)
			if run.latency == nil {
				offered = c.load.rate(run.sent, run.sent*(run.bytes/max(run.packets, 1)), run.elapsed)
			}
		}
	}
	if spent.window > 0 {
		// Sampling may take more from others than there was, and what others' ended children spent is never seen.
		if left := spent.machine.Busy - max(0, spent.machine.Others); left > 0 {
			busy = 100 * left.Seconds() / spent.window.Seconds() / float64(runtime.NumCPU())
		}
		others = max(0, spent.machine.Others).Seconds() / spent.window.Seconds()
	}
	queued := uint64(0)
	for number, row := range spent.queues {
		queued += uint64(row.sequence)
		c.queueDrops += uint64(row.queueDrops)
		c.userDrops += uint64(row.userDrops)
		if c.queues == nil {
			c.queues = map[int]uint64{}
		}
		c.queues[number] += uint64(row.sequence)
	}
	const few = 1000 // packets: fewer say nothing of their cost
	if queued >= few {
		cost = float64(spent.balancer.Microseconds()) / float64(queued)
	}
	for _, f := range []struct {
		list  *[]float64
		value float64
	}{
		{&c.rates, rate},
		{&c.offered, offered},
		{&c.delivered, delivered},
		{&c.busy, busy},
		{&c.others, others},
		{&c.cost, cost},
		{&c.best, best},
		{&c.p99, p99},
	} {
		*f.list = append(*f.list, f.value)
	}
	c.elapsed += run.elapsed
	c.bytes += run.bytes
	c.packets += run.packets
	c.lost += run.sent - min(run.sent, run.packets)
	c.queued += queued
	c.balancer += spent.balancer
	c.spent.Busy += spent.machine.Busy
	c.spent.Others += spent.machine.Others
	c.spent.Ours += spent.machine.Ours
}

func (l *nfqLoad) rate(packets, bytes uint64, elapsed time.Duration) float64 {
	if l.unit == "kpps" {
		return float64(packets) / 1e3 / elapsed.Seconds()
	}
	return float64(bytes) * 8 / 1e9 / elapsed.Seconds()
}

func (b *nfqBench) results(started time.Time) []*measure.Result {
	var results []*measure.Result
	after := map[*nfqNet]string{}
	for _, net := range b.nets {
		if net.balanced() && net.failed == nil && net.absent == "" {
			if rows, err := readQueues(net.balancer()); err == nil { // else the table shows that it is missing
				after[net] = queuesText(rows)
			}
		}
	}
	for _, cell := range b.cells {
		result := &measure.Result{
			Scenario: scenarioNFQueue, Road: cell.net.road.name, Machine: machine(), Started: started, Elapsed: cell.elapsed,
			Requests: cell.packets, Bytes: cell.bytes,
			Parameters: map[string]string{
				paramLoad: cell.load.name, paramFamily: cell.family, paramOffload: cell.net.offload, paramTitle: cell.load.title, paramUnit: cell.load.unit,
				"rounds": strconv.Itoa(b.config.Rounds), "seconds": b.config.seconds(),
			},
		}
		if b.running.Slow() != nil {
			result.Parameters[paramSlow] = b.running.Slow().Error()
		}
		results = append(results, result)
		if cell.net.absent != "" {
			result.Parameters[paramAbsent] = cell.net.absent
			continue
		}
		if cell.failed != nil {
			result.Errors = 1
			result.Parameters[paramFailed] = cell.failed.Error()
			continue
		}
		if cell.net.balanced() {
			result.Parameters[paramBefore], result.Parameters[paramAfter] = queuesText(cell.net.first), after[cell.net]
			result.Parameters[paramNetwork] = cell.net.name()
			result.Processes = append(result.Processes, measure.Process{Name: cell.net.program(), CPU: cell.balancer})
		}
		result.Processes = append(result.Processes, measure.Process{Name: "machine", CPU: cell.spent.Busy}, measure.Process{Name: "ours", CPU: cell.spent.Ours}, measure.Process{Name: "others", CPU: cell.spent.Others})
		result.Figures = cell.figures(b.on(pathDirect, cell), b.on(cell.net.road.compare, cell))
	}
	return results
}

// on is the cell of another road that one is compared with; without figures where that is not measured.
func (b *nfqBench) on(road string, of *nfqCell) *nfqCell {
	for _, cell := range b.cells {
		if cell.net.road.name == road && cell.net.offload == of.net.offload && cell.load == of.load && cell.family == of.family {
			return cell
		}
	}
	return &nfqCell{}
}

func (c *nfqCell) figures(direct, peer *nfqCell) []measure.Figure {
	rate := spreadOf(c.rates)
	figures := []measure.Figure{
		{Name: figureRate, Value: rate.median, Unit: c.load.unit},
		{Name: figureRateLow, Value: rate.low, Unit: c.load.unit},
		{Name: figureRateHigh, Value: rate.high, Unit: c.load.unit},
		{Name: figureDirect, Value: ratio(c.rates, direct.rates)},
		{Name: figurePeer, Value: ratio(c.rates, peer.rates)},
		{Name: figureOffered, Value: spreadOf(c.offered).median, Unit: c.load.unit},
		{Name: figureDelivered, Value: spreadOf(c.delivered).median, Unit: "%"},
		{Name: figureMachine, Value: spreadOf(c.busy).median, Unit: "%"},
		{Name: figureOthers, Value: spreadOf(c.others).median, Unit: "cores"},
		{Name: figurePacketCost, Value: spreadOf(c.cost).median, Unit: "µs/packet"},
		{Name: figureBest, Value: spreadOf(c.best).low, Unit: "µs"},
		{Name: figureP99, Value: spreadOf(c.p99).median, Unit: "µs"},
	}
	if c.net.balanced() {
		figures = append(figures,
			measure.Figure{Name: figureQueued, Value: float64(c.queued), Unit: "packets"},
			measure.Figure{Name: figureQueueDrops, Value: float64(c.queueDrops), Unit: "packets"},
			measure.Figure{Name: figureUserDrops, Value: float64(c.userDrops), Unit: "packets"})
		for _, number := range sortedQueues(c.queues) {
			figures = append(figures, measure.Figure{Name: figureQueue + strconv.Itoa(number), Value: float64(c.queues[number]), Unit: "packets"})
		}
	}
	for i, rate := range c.rates {
		figures = append(figures, measure.Figure{Name: figureRound + strconv.Itoa(i+1), Value: rate, Unit: c.load.unit})
	}
	return slices.DeleteFunc(figures, func(f measure.Figure) bool { // JSON has no NaN
		return math.IsNaN(f.Value) || math.IsInf(f.Value, 0)
	})
}

func sortedQueues[V any](rows map[int]V) []int {
	numbers := make([]int, 0, len(rows))
	for number := range rows {
		numbers = append(numbers, number)
	}
	slices.Sort(numbers)
	return numbers
}

// queuesText is one row of statistics for each queue, as the source document's script shows them.
func queuesText(rows map[int]queueRow) string {
	text := ""
	for i, number := range sortedQueues(rows) {
		if i > 0 {
			text += "; "
		}
		row := rows[number]
		text += fmt.Sprintf("queue %d: waiting %d, queue drops %d, user drops %d, sequence %d", number, row.waiting, row.queueDrops, row.userDrops, row.sequence)
	}
	return text
}
