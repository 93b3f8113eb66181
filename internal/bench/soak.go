package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/programs"
)

// SoakConfig is a long mixed load.
type SoakConfig struct {
	Run
	Duration time.Duration
	Every    time.Duration // between two samples of each process
	Load     float64       // times the default load
	Growth   float64       // percent that a gauge may grow over the last third of the run
}

// Validate says what cannot be meant.
func (c *SoakConfig) Validate() error {
	switch {
	case c.Duration < 5*time.Second || c.Duration > 7*24*time.Hour:
		return fmt.Errorf("--duration %v: give 5s to 168h", c.Duration)
	case c.Every < 500*time.Millisecond || c.Every > c.Duration/4:
		return fmt.Errorf("--every %v: give 500ms to a quarter of --for", c.Every)
	case !(c.Load >= 0.1 && c.Load <= 100):
		return fmt.Errorf("--load %g: give 0.1 to 100 times the default load", c.Load)
	case !(c.Growth > 0 && c.Growth <= 1000):
		return fmt.Errorf("--growth %g: give a percentage above 0", c.Growth)
	}
	return nil
}

// Kinds of the results of [Soak], in paramKind.
const (
	paramKind   = "kind"
	kindProcess = "process"
	kindLoad    = "load"
)

// soak is a run.
type soak struct {
	*programs.Stage
	config  SoakConfig
	network soakNetwork
	watched []*watched
	started time.Time
	lapses  lapses
}

// Soak runs the load for the duration, or until ctx ends, and returns a result for each process and each load: what was
// measured so far. An error says what could not be started.
func Soak(ctx context.Context, config SoakConfig) (results []*measure.Result, err error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	var topology *netlab.Topology
	if netlab.Privileged() == nil {
		topology = soakTopology()
	}
	s := &soak{config: config}
	if s.Stage, err = programs.OpenStage(config.Binary, topology); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if s.Lab != nil {
		s.network.useLab(s.Lab)
	} else if err := s.network.useLoopback(); err != nil {
		return nil, err
	}
	if err := s.startPrograms(ctx); err != nil {
		return nil, err
	}
	before, err := s.lossesNow(ctx)
	if err != nil {
		return nil, err
	}
	loads, end, err := s.startLoads(ctx)
	if err != nil {
		return nil, err
	}
	awake := s.lapses.watch(ctx)
	s.sample(ctx)
	counted := end()
	awake()
	after, err := s.lossesNow(context.WithoutCancel(ctx)) // an interrupt ends the run, and is no reason to measure less
	if err != nil {
		return nil, err
	}
	elapsed := time.Since(s.started)
	for _, w := range s.watched {
		results = append(results, s.processResult(w, elapsed))
	}
	for i, load := range loads {
		results = append(results, s.loadResult(load, counted[i], elapsed))
	}
	return append(results, s.lossResult(since(before, after), counted, elapsed)), nil
}

// sample watches every process until the time is over, ctx has ended, or a process has.
func (s *soak) sample(ctx context.Context) {
	s.started = time.Now()
	for next := s.started; ; next = next.Add(s.config.Every) {
		if programs.Sleep(ctx, time.Until(next)) != nil {
			return
		}
		at := time.Since(s.started)
		for _, w := range s.watched {
			w.sample(ctx, at)
		}
		s.config.progress(at.Seconds()/s.config.Duration.Seconds(), "%s", s.state())
		for _, w := range s.watched {
			if w.failure() != nil {
				return
			}
		}
		if at >= s.config.Duration {
			return
		}
	}
}

// state is the resident memory of every process, for the progress.
func (s *soak) state() string {
	text := "MB:"
	for _, w := range s.watched {
		if g := w.gauges[gaugeResident]; g != nil && len(g.Values) > 0 {
			text += fmt.Sprintf(" %s %.0f", w.name, g.Values[len(g.Values)-1]/1e6)
		}
	}
	return text
}

func (s *soak) result(path, kind string, elapsed time.Duration) *measure.Result {
	return &measure.Result{
		Scenario: scenarioSoak, Path: path, Machine: machine(), Started: s.started, Elapsed: elapsed,
		Parameters: map[string]string{
			paramKind: kind, paramLoad: strconv.FormatFloat(s.config.Load, 'g', -1, 64), paramFamily: s.network.name,
			"duration": s.config.Duration.String(), "growth": strconv.FormatFloat(s.config.Growth, 'g', -1, 64),
		},
	}
}
