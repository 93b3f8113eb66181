package bench

import (
	"context"
	"fmt"
	"math"
	"time"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/metrics"
	"github.com/weir-lb/weir/internal/testbed/measure"
)

// turnCell is one path at one size.
type turnCell struct {
	path   *turnPath
	size   int
	search *turnSearch            // nil: of the direct path nothing is searched
	tries  map[float64]*turnPhase // the best try of each rate that may have held
	best   *turnPhase             // of the highest rate that did
	rates  [][]turnPhase
}

// sweep measures each size over each path: the highest rate that holds, and costs at equal rates. Paths take turns in both,
// so that a noisy machine disturbs all of them alike.
func (s *turnStage) sweep(ctx context.Context) (runs []*TurnRun, err error) {
	for _, path := range s.paths {
		s.config.progress(0, "%s: warming up", path.name)
		if err := s.warm(ctx, path); err != nil {
			return nil, fmt.Errorf("%s: %w", path.name, err)
		}
	}
	for i, size := range s.config.Sizes {
		cells, err := s.measureSize(ctx, size, float64(i)/float64(len(s.config.Sizes)), 1/float64(len(s.config.Sizes)))
		if err != nil {
			return nil, err
		}
		for _, cell := range cells {
			runs = append(runs, s.cellResults(cell)...)
		}
	}
	return runs, nil
}

func (s *turnStage) measureSize(ctx context.Context, size int, from, share float64) ([]*turnCell, error) {
	var cells []*turnCell
	for _, path := range s.paths {
		cell := &turnCell{path: path, size: size, rates: make([][]turnPhase, len(s.config.Rates)), tries: map[float64]*turnPhase{}}
		if path.name != pathTurnDirect {
			cell.search = newTurnSearch(searchStart, s.config.MaxRate)
		}
		cells = append(cells, cell)
	}
	for round := range s.config.Rounds {
		for j, rate := range s.config.Rates {
			for k := range cells {
				cell := cells[(k+round)%len(cells)]
				s.config.progress(from+share*0.4*float64(round)/float64(s.config.Rounds), "%d bytes, %s at %.0f packets/s, round %d of %d", size, cell.path.name, rate, round+1, s.config.Rounds)
				phase, err := s.run(ctx, cell.path, turnLoad{rate, size, s.config.Duration})
				if err != nil {
					return nil, fmt.Errorf("%s, %d bytes at %.0f packets/s: %w", cell.path.name, size, rate, err)
				}
				cell.rates[j] = append(cell.rates[j], phase)
			}
		}
	}
	return cells, s.searchAll(ctx, cells, from+share*0.4, share*0.6)
}

const searchStart = 16000

// searchAll advances every cell's search by one try in turn until all have ended.
func (s *turnStage) searchAll(ctx context.Context, cells []*turnCell, from, share float64) error {
	const usual = 14 // tries
	for tries, busy := 0, true; busy; tries++ {
		busy = false
		for _, cell := range cells {
			if cell.search == nil {
				continue
			}
			rate, more := cell.search.next()
			if !more {
				continue
			}
			busy = true
			s.config.progress(from+share*min(float64(tries)/usual, 0.95), "%d bytes, %s: is the loss below 1 %% at %.0f packets/s?", cell.size, cell.path.name, rate)
			phase, err := s.run(ctx, cell.path, turnLoad{rate, cell.size, s.config.Probe})
			if err != nil {
				return fmt.Errorf("%s, %d bytes at %.0f packets/s: %w", cell.path.name, cell.size, rate, err)
			}
			loss := phase.shortfall()
			cell.search.observe(loss, turnLoss(&phase.sum))
			if known := cell.tries[rate]; loss < cell.search.limit && (known == nil || phase.sum.Rate > known.sum.Rate) {
				cell.tries[rate] = &phase
			}
		}
	}
	for _, cell := range cells {
		if cell.search != nil {
			cell.best = cell.tries[cell.search.held] // nil: none did
		}
	}
	return nil
}

// What ends a search, besides loss.
const (
	limitOwn    = "the search's own limit"
	limitSender = "the generator"
)

// limitedBy says what ended a search.
func (c *turnCell) limitedBy() string {
	switch {
	case c.search.held == 0:
		return "no rate held"
	case c.search.failed == 0:
		return limitOwn
	case c.search.unsent():
		return limitSender
	}
	return "loss"
}

// addUp adds the phases of one rate up; the rate is their mean.
func addUp(phases []turnPhase) (sum turnPhase) {
	if len(phases) == 0 {
		return sum
	}
	sum.load = phases[0].load
	sum.load.duration = 0
	sum.processes = append(sum.processes, phases[0].processes...)
	for i := range sum.processes {
		sum.processes[i].CPU = 0
	}
	var rows []v1.TurnBenchConnection
	for _, p := range phases {
		sum.load.duration += p.load.duration
		sum.window += p.window
		sum.overflowed += p.overflowed
		metrics.Add(&sum.machine, &p.machine)
		for i := range p.processes {
			if i < len(sum.processes) {
				sum.processes[i].CPU += p.processes[i].CPU
				sum.processes[i].PeakBytes = max(sum.processes[i].PeakBytes, p.processes[i].PeakBytes)
			}
		}
		if p.latency != nil {
			if sum.latency == nil {
				sum.latency = measure.NewLatency()
			}
			sum.latency.Merge(p.latency)
		}
		rows = append(rows, p.sum)
	}
	sum.sum = turnSum(rows)
	sum.sum.Seconds = sum.load.duration.Seconds() // one after the other
	sum.sum.Rate /= float64(len(phases))
	sum.sum.Bandwidth /= float64(len(phases))
	return sum
}

// serverCosts are the microseconds of a server for a packet that arrived, round by round.
func serverCosts(phases []turnPhase) (costs []float64) {
	for _, p := range phases {
		cost := math.NaN()
		if received := p.received(); received > 0 && len(p.processes) > 0 {
			cost = float64(p.processes[0].CPU) / float64(time.Microsecond) / float64(received)
		}
		costs = append(costs, cost)
	}
	return costs
}

func (p *turnPhase) received() uint64 { return p.sum.Total - min(p.sum.Lost, p.sum.Total) }
