package bench

import (
	"math"

	"github.com/weir-lb/weir/api/v1"
)

// turnSearch looks for the highest rate whose loss stays below a limit. Loss on a shared machine comes in bursts, so a rate
// is judged by the majority of up to three tries. It grows until a rate fails, then halves the gap on a logarithmic scale.
type turnSearch struct {
	limit     float64 // share of datagrams, such as 0.01
	precision float64 // ends when failed/held is at most this, such as 1.08
	maximum   float64 // rate that is not exceeded
	minimum   float64 // below it the search gives up

	held, failed float64 // 0: none yet
	rate         float64
	good, bad    int // tries at rate
	done         bool
	trace        []v1.TurnBenchTry
}

const (
	searchGrowth = 1.8
	searchTries  = 3
)

func newTurnSearch(start, maximum float64) *turnSearch {
	return &turnSearch{limit: 0.01, precision: 1.08, maximum: maximum, minimum: 100, rate: min(start, maximum)}
}

// next is the rate to try; false when the search is over.
func (s *turnSearch) next() (rate float64, more bool) { return s.rate, !s.done }

// observe notes what was lost at the rate of next: the share of what was requested, what could not be sent included, and of
// what was sent.
func (s *turnSearch) observe(loss, lost float64) {
	held := loss < s.limit
	s.trace = append(s.trace, v1.TurnBenchTry{Rate: s.rate, Loss: loss, Lost: lost, Held: held})
	if held {
		s.good++
	} else {
		s.bad++
	}
	switch majority := searchTries/2 + 1; {
	case s.good == majority:
		s.held = s.rate
	case s.bad == majority:
		s.failed = s.rate
	default:
		return
	}
	s.good, s.bad = 0, 0
	s.step()
}

// step chooses the next rate.
func (s *turnSearch) step() {
	switch {
	case s.failed == 0 && s.held >= s.maximum:
		s.done = true
	case s.failed == 0:
		s.rate = min(s.held*searchGrowth, s.maximum)
	case s.held == 0:
		s.rate = s.failed / 2
		s.done = s.rate < s.minimum
	default:
		s.rate = math.Sqrt(s.held * s.failed)
		s.done = s.failed/s.held <= s.precision
	}
}

// unsent says whether the rate that failed did so because the generator could not send it: then the highest rate is
// the generator's and not the server's.
func (s *turnSearch) unsent() bool {
	unsent, failed := 0, 0
	for _, try := range s.trace {
		if try.Rate == s.failed && !try.Held {
			if failed++; try.Lost < s.limit {
				unsent++
			}
		}
	}
	return unsent > failed/2
}
