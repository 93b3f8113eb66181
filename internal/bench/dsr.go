package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/procstat"
	"github.com/weir-lb/weir/internal/testbed/programs"
	"github.com/weir-lb/weir/internal/testbed/scratch"
)

// DSRConfig says what of the scenario dsr to measure.
type DSRConfig struct {
	Run
	Rounds   int           // 1 to 100
	Duration time.Duration // of one load over one road in one round; whole seconds, 1 to 60
	Roads    []string      // names of DSRRoads; empty: all. Routing is always measured: it is what the others are compared with
	Loads    []string      // names of DSRLoads; empty: all
	Families []string      // ipv4, ipv6; empty: both
}

// DSRFamilies names the address families in the order they are measured.
func DSRFamilies() []string { return []string{"ipv4", "ipv6"} }

// plan is what a scenario over roads can measure.
type plan struct {
	scenario string
	roads    []dsrRoad
	always   []string // roads that are measured whatever was asked for: the others are compared with them
	loads    []dsrLoad
}

func dsrPlan() plan {
	return plan{scenario: scenarioDSR, roads: dsrRoads(), always: []string{pathRouting}, loads: dsrLoads()}
}

// Validate says what cannot be meant.
func (c *DSRConfig) Validate() error { return c.validate(dsrPlan()) }

func (c *DSRConfig) validate(p plan) error {
	var roads, loads []string
	for _, road := range p.roads {
		roads = append(roads, road.name)
	}
	for _, load := range p.loads {
		loads = append(loads, load.name)
	}
	switch {
	case c.Rounds < 1 || c.Rounds > 100:
		return fmt.Errorf("%d rounds: want 1 to 100", c.Rounds)
	case c.Duration < time.Second || c.Duration > time.Minute || c.Duration%time.Second != 0:
		return fmt.Errorf("%v for each load: want whole seconds, 1 to 60", c.Duration)
	}
	return errors.Join(knownNames("road", c.Roads, roads), knownNames("load", c.Loads, loads), knownNames("family", c.Families, DSRFamilies()))
}

func knownNames(what string, given, known []string) error {
	for _, name := range given {
		if !slices.Contains(known, name) {
			return fmt.Errorf("no %s %q; there are %s", what, name, strings.Join(known, ", "))
		}
	}
	return nil
}

// dsrCell is one load of one family over one road, with what each round found.
type dsrCell struct {
	road    *dsrRoad
	load    dsrLoad
	family  string
	elapsed time.Duration
	rates   []float64 // bit/s or packets/s; NaN where the round did not measure it
	costs   []float64 // machine CPU seconds per Gbit, or per million packets
	own     []float64 // the same of our processes and kernel threads
	cores   []float64 // cores busy
	others  []float64 // cores that other programs kept busy meanwhile
	bytes   uint64
	packets uint64
	lost    uint64
	spent   procstat.Machine
	failed  error
}

// dsrBench is a run under way.
type dsrBench struct {
	config  DSRConfig
	plan    plan
	dir     string // configurations and admin sockets
	roads   []*dsrRoad
	cells   []*dsrCell
	running *programs.Group
}

// DSR measures each load over each road, in network namespaces of its own, and returns one result for each pair and
// family. A road or load that fails is a result with an error in it, and the others go on. When ctx ends nothing is
// returned. Nothing is left behind either way.
func DSR(ctx context.Context, config DSRConfig) ([]*measure.Result, error) {
	return runPlan(ctx, config, dsrPlan())
}

func runPlan(ctx context.Context, config DSRConfig, p plan) (results []*measure.Result, err error) {
	if err := config.validate(p); err != nil {
		return nil, err
	}
	if err := netlab.Privileged(); err != nil {
		return nil, fmt.Errorf("needs root: %w", err)
	}
	b := &dsrBench{config: config, plan: p, running: programs.NewGroup()}
	b.choose()
	if err := needTools(b.tools()); err != nil {
		return nil, err
	}
	if err := programs.SweepPins(); err != nil {
		return nil, err
	}
	temporary, err := scratch.New()
	if err != nil {
		return nil, err
	}
	defer temporary.Remove()
	b.dir = temporary.Path
	defer func() { err = errors.Join(err, b.close(ctx)) }()
	started := time.Now()
	for i, road := range b.roads {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		b.config.progress(0, "setting up %s (%d of %d)", road.name, i+1, len(b.roads))
		if err := b.open(ctx, road); err != nil {
			road.failed = fmt.Errorf("set up: %w", err)
		}
	}
	steps, done := config.Rounds*len(b.cells), 0
	err = takeTurns(ctx, config.Rounds, b.cells, func(round int, cell *dsrCell) error {
		b.config.progress(float64(done)/float64(steps), "round %d of %d: %s, %s, %s", round+1, config.Rounds, cell.road.name, cell.load.name, cell.family)
		done++
		if cell.failed == nil {
			cell.failed = cell.road.failed
		}
		if cell.failed == nil {
			if cell.failed = b.measure(ctx, cell); cell.failed != nil {
				cell.road.failed = cell.road.died() // no need to try its other loads
			}
			cell.failed = errors.Join(cell.failed, cell.road.failed)
		}
		if cell.failed != nil { // keep the rounds of all cells in step
			cell.note(dsrRun{})
		}
		return ctx.Err()
	})
	if err != nil {
		return nil, err
	}
	return b.results(started), nil
}

// choose makes the roads and cells that were asked for.
func (b *dsrBench) choose() {
	wanted := func(list []string, name string) bool { return len(list) == 0 || slices.Contains(list, name) }
	for _, road := range b.plan.roads {
		if slices.Contains(b.plan.always, road.name) || wanted(b.config.Roads, road.name) {
			b.roads = append(b.roads, &road)
		}
	}
	// All roads of one load and family follow each other: what is compared lies close in time.
	for _, load := range b.plan.loads {
		for _, family := range DSRFamilies() {
			if !wanted(b.config.Loads, load.name) || !wanted(b.config.Families, family) {
				continue
			}
			for _, road := range b.roads {
				b.cells = append(b.cells, &dsrCell{road: road, load: load, family: family})
			}
		}
	}
}

func (b *dsrBench) tools() []string {
	var programs []string
	for _, road := range b.roads {
		programs = append(programs, road.tools...)
	}
	for _, cell := range b.cells {
		programs = append(programs, cell.load.tools...)
	}
	return programs
}

// open builds a road's network, starts the servers in it and lets the road set itself up.
func (b *dsrBench) open(ctx context.Context, road *dsrRoad) (err error) {
	topology := netlab.DSR()
	topology.Name = "bench-dsr"
	if road.prepare != nil {
		road.prepare(&topology)
	}
	if road.lab, err = netlab.Up(topology); err != nil {
		return err
	}
	started := map[string]bool{}
	for _, cell := range b.cells {
		if cell.road == road && !started[cell.load.name+cell.family] && cell.load.serve != nil {
			started[cell.load.name+cell.family] = true
			if err := cell.load.serve(ctx, b, road, cell.family); err != nil {
				return err
			}
		}
	}
	if road.setup == nil {
		return nil
	}
	return road.setup(ctx, b, road)
}

// close ends what open started. That a balancer ended with us when we were interrupted is no error of its own.
func (b *dsrBench) close(ctx context.Context) error {
	var errs []error
	for _, road := range b.roads {
		for _, d := range slices.Backward(road.daemons) {
			if err := d.Stop(); road.failed == nil { // else it is told already
				errs = append(errs, err)
			}
		}
	}
	if ctx.Err() != nil {
		errs = nil
	}
	for _, road := range b.roads {
		if road.sink != nil {
			errs = append(errs, road.sink.close())
		}
		if road.undo != nil {
			errs = append(errs, road.undo())
		}
	}
	b.running.End()
	for _, road := range b.roads {
		if road.lab != nil {
			errs = append(errs, road.lab.Down())
		}
	}
	return errors.Join(errs...)
}

// dsrRun is what one load over one road found in one round.
type dsrRun struct {
	elapsed              time.Duration
	bytes, packets, lost uint64 // bytes for streams, packets for datagrams
}

func (b *dsrBench) measure(ctx context.Context, cell *dsrCell) error {
	before, err := b.running.Machine()
	if err != nil {
		return err
	}
	start := time.Now()
	run, err := cell.load.run(ctx, b, cell.road, cell.family)
	if err != nil {
		return err
	}
	window := time.Since(start)
	after, err := b.running.Machine()
	if err != nil {
		return err
	}
	if run.bytes+run.packets == 0 {
		return errors.New("nothing arrived")
	}
	spent := procstat.Machine{Busy: after.Busy - before.Busy, Others: after.Others - before.Others, Ours: after.Ours - before.Ours}
	cell.note(run)
	cell.spent.Busy += spent.Busy
	cell.spent.Others += spent.Others
	cell.spent.Ours += spent.Ours
	last, units := len(cell.rates)-1, cell.units(run)
	cell.others[last] = max(0, spent.Others).Seconds() / window.Seconds()
	cell.own[last] = max(0, spent.Ours).Seconds() / units
	if left := spent.Busy - spent.Others; left > 0 { // else the sampling of a busy machine has lost it
		cell.cores[last] = left.Seconds() / window.Seconds()
		cell.costs[last] = left.Seconds() / units
	}
	return nil
}
