package tcpscale

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/weir-lb/weir/internal/testbed/measure"
)

// Hold is a client's run as its parent sees it: ramp in groups of workers, watch for a plateau, hold, stop.
type Hold struct {
	Group   *Group
	Workers int
	Rate    float64 // of all that ramp at once; 0: as fast as they can
	Finder  Finder
	For     time.Duration        // from the moment that the target or a plateau is reached; 0: until the context ends
	Late    func() time.Duration // by how much longer than For, as known at its end; may be nil
	Server  func() Report        // the other end, where it is known; nil otherwise
	Tick    func(Report)         // every second, and at the end; may be nil
	started time.Time
	ramping int    // workers that were ordered to ramp, or began by themselves
	begun   Finder // of those that ramp, while others wait: at a ceiling none of them may ever have its share
	stands  bool   // it has found one
	history []HistoryPoint
	step    int // seconds between points of history
	seconds int
	cpu     float64
	plateau *Plateau
	passed  []Plateau
	limiter limiter
	recent  *measure.Latency // round trips since the last point of history
	limited float64          // the rate of a limiter that was found
}

// maxPlateaus bounds those that a run reports.
const maxPlateaus = 32

// maxHistory bounds the points of a run; then every other one is dropped.
const maxHistory = 2400

// Run returns the sum of all workers' last reports once it is over. An end of ctx is a regular one. The error is that of
// a worker, or of the server's, that ended by itself; the report is then what is known.
func (h *Hold) Run(ctx context.Context) (Report, error) {
	h.started, h.step, h.ramping, h.recent = time.Now(), 1, min(h.Workers, RampingWorkers), measure.NewLatency()
	h.begun.Quiet = h.Finder.Quiet
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	var until <-chan time.Time
	var end time.Time
	for {
		select {
		case <-ctx.Done():
			return h.finish(nil)
		case <-until:
			if left := time.Until(end.Add(h.late())); left > 0 {
				until = time.After(left)
				continue
			}
			return h.finish(nil)
		case <-h.Group.Ended():
			h.Group.Kill()
			return h.finish(h.Group.Err())
		case <-h.Group.Updated():
			h.rampNext()
			continue
		case <-ticker.C:
		}
		r := h.look()
		if h.Tick != nil {
			h.Tick(r)
		}
		h.rampNext()
		if until == nil && h.For > 0 && (!r.FullAt.IsZero() || h.plateau != nil) {
			until, end = time.After(h.For), time.Now().Add(h.For)
		}
	}
}

func (h *Hold) late() time.Duration {
	if h.Late == nil {
		return 0
	}
	return h.Late()
}

// look takes the reports of this second together.
func (h *Hold) look() Report {
	r := h.Group.Report()
	r.Interval = h.Group.interval(h.recent)
	var server *Report
	if h.Server != nil {
		other := h.Server()
		server = &other
		r.Reconciled = Reconcile(&r, server)
		h.Finder.ServerLimits = server.LimitsHit
	}
	now := time.Since(h.started)
	if h.ramping < h.Workers {
		h.stands = h.begun.Watch(now, &r) != nil
	} else if r.Connections.Target > 0 {
		if rate := h.limiter.watch(now, &r); rate > 0 {
			h.limited = math.Round(rate)
		}
		if p := h.Finder.Watch(now, &r); p != nil {
			h.plateau = p
			h.pass(p)
		} else if r.Connections.Established >= r.Connections.Target {
			h.plateau = nil
		}
	}
	r.Plateau, r.RateLimit = h.plateau, h.limited
	h.remember(now, &r, server)
	return r
}

// pass keeps a plateau, instead of an earlier one of the same ceiling and kind.
func (h *Hold) pass(p *Plateau) {
	i := slices.IndexFunc(h.passed, func(o Plateau) bool { return o.Ceiling == p.Ceiling && o.Kind == p.Kind })
	switch {
	case i >= 0:
		h.passed[i] = *p
	case len(h.passed) < maxPlateaus:
		h.passed = append(h.passed, *p)
	}
}

func (h *Hold) remember(now time.Duration, r, server *Report) {
	h.seconds++
	if h.seconds%h.step != 0 {
		return
	}
	cpu := r.CPUSeconds
	point := HistoryPoint{
		Seconds: now.Seconds(), Established: r.Connections.Established,
		Opened: r.Totals.Opened, Lost: r.Totals.Lost, Failed: r.Totals.Failed,
	}
	if server != nil {
		point.Server = server.Connections.Established
		cpu += server.CPUSeconds
	}
	recent := newInterval(h.recent)
	point.RTT50, point.RTT99, point.RTTMax = recent.P50, recent.P99, recent.Max
	h.recent.Reset()
	if last := len(h.history) - 1; last >= 0 {
		point.CPU = 100 * max(cpu-h.cpu, 0) / max(point.Seconds-h.history[last].Seconds, 0.001)
	}
	h.cpu = cpu
	if h.history = append(h.history, point); len(h.history) < maxHistory {
		return
	}
	h.history = measure.Halve(h.history, func(a, b HistoryPoint) HistoryPoint {
		b.RTT50, b.RTT99, b.RTTMax = max(a.RTT50, b.RTT50), max(a.RTT99, b.RTT99), max(a.RTTMax, b.RTTMax) // the worse of two intervals
		return b
	})
	h.step *= 2
}

// rampNext lets a worker begin for each that has reached its share, or that comes no further.
func (h *Hold) rampNext() {
	busy := 0
	for i := range h.ramping {
		if now, target := h.Group.established(i); now < target {
			busy++
		}
	}
	if h.stands || h.plateau != nil {
		busy = 0
	}
	for ; busy < RampingWorkers && h.ramping < h.Workers; busy++ {
		h.Group.Send(h.ramping, Command{Op: OpRamp, Rate: h.Rate / RampingWorkers})
		h.ramping++
	}
}

func (h *Hold) finish(failure error) (Report, error) {
	if failure == nil {
		h.Group.stopOpening()
	}
	var reconciled *Reconciled
	if h.Server != nil {
		now := h.Group.Report()
		other := h.Server()
		reconciled = Reconcile(&now, &other)
	}
	r := h.Group.Stop()
	r.Plateau, r.Reconciled, r.History, r.Final = h.plateau, reconciled, h.history, true
	r.Plateaus, r.RateLimit = h.passed, h.limited
	r.Conclusion = conclude(&r)
	if h.Tick != nil {
		h.Tick(r)
	}
	return r, failure
}

// ErrIncomplete is a run that did not hold what it was asked to.
var ErrIncomplete = errors.New("not all connections were held")

// ErrVoid is a run whose tester was not scheduled: its times and rates say nothing about the path.
var ErrVoid = errors.New("the result is void")

// conclude is the verdict in words.
func conclude(r *Report) string {
	words := fmt.Sprintf("%d of %d connections at the end, %d lost meanwhile", r.Connections.Established, r.Connections.Target, r.Totals.Lost)
	if err := Verdict(r); errors.Is(err, ErrVoid) {
		return "void: " + err.Error() + "; " + words
	} else if err != nil {
		return "failed: " + words
	}
	return "ok: " + words
}

// Verdict is nil if a run reached its target, held it and lost nothing that did not come back meanwhile unasked.
func Verdict(r *Report) error {
	if r.Void != "" {
		return fmt.Errorf("%w: %s: this machine was too busy", ErrVoid, r.Void)
	}
	if r.FullAt.IsZero() || r.Totals.Lost > 0 {
		return ErrIncomplete
	}
	return nil
}
