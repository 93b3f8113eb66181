package snatlab

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/snat"
	"github.com/weir-lb/weir/internal/tcpscale"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/programs"
)

// The NATs that a scenario is measured with.
const (
	Kernel = "kernel"
	Weir   = "weir"
)

// NATs are their names.
func NATs() []string { return []string{Kernel, Weir} }

// Config is what is measured.
type Config struct {
	Scenarios []snat.Scenario                                                   // valid, with their defaults
	NATs      []string                                                          // empty: both
	Launcher  tcpscale.Launcher                                                 // makes workers; its namespace is not used
	Binary    string                                                            // weir
	Progress  func(done float64, what string)                                   // one call at a time
	once      func(context.Context, *layout, func(held int)) (*Measured, error) // of tests; nil: measure
}

// The results are public types: what `weir snat lab --json` prints.
type (
	Cell     = v1.SNATLabCell  // a scenario: what was expected, planned and counted
	Column   = v1.SNATLabCount // one NAT's count, or why there is none
	Measured = v1.SNATMeasured // what one NAT let through
	Result   = v1.SNATLab
)

// Validate says what stands in the way before anything is built.
func (c *Config) Validate() error {
	for _, nat := range c.NATs {
		if !slices.Contains(NATs(), nat) {
			return fmt.Errorf("no NAT %q; write %s or %s", nat, Kernel, Weir)
		}
	}
	if len(c.Scenarios) == 0 {
		return errors.New("no scenario")
	}
	return nil
}

// Run measures all scenarios, as many side by side as are small. A run that breaks is made once more; one that breaks again is a
// failed row, and takes no other with it. The error is of what stands in the way of all, or of the context; everything that
// was started is gone then.
func Run(ctx context.Context, c Config) (*Result, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if err := netlab.Privileged(); err != nil {
		return nil, fmt.Errorf("the lab needs root: %w", err)
	}
	if _, err := exec.LookPath("nft"); err != nil {
		return nil, fmt.Errorf("%w; install: apt-get install nftables", err)
	}
	if err := programs.SweepPins(); err != nil {
		return nil, err
	}
	if len(c.NATs) == 0 {
		c.NATs = NATs()
	}
	return c.run(ctx)
}

// run measures what is there to be measured.
func (c *Config) run(ctx context.Context) (*Result, error) {
	result := &Result{At: time.Now(), Cells: make([]Cell, len(c.Scenarios))}
	for i, s := range c.Scenarios {
		result.Cells[i] = Cell{Table: s.Table, Scenario: s.Name, Expect: s.Expect, Kind: string(s.Kind), Plan: s.Plan()}
	}
	if err := c.runAll(ctx, result); err != nil {
		return nil, err
	}
	for i := range result.Cells {
		cell := &result.Cells[i]
		if judge(cell); !cell.Agree {
			result.Differ++
		}
		for _, column := range []Column{cell.Kernel, cell.Weir} {
			switch {
			case column.SNATMeasured != nil:
				result.Runs++
			case len(column.Errors) > 0:
				result.Failed++
			}
		}
	}
	result.Took = time.Since(result.At).Seconds()
	result.Verdict = fmt.Sprintf("%d scenarios, %d runs: each count is the plan's, to the connection.", len(result.Cells), result.Runs)
	if result.Differ > 0 {
		result.Verdict = fmt.Sprintf("%d of %d scenarios differ from the plan.", result.Differ, len(result.Cells))
	}
	if result.Failed > 0 {
		result.Verdict = fmt.Sprintf("%d runs failed, %d came to a count. %s", result.Failed, result.Runs, result.Verdict)
	}
	return result, nil
}

// OK is whether every run came to a count, and each count is the plan's.
func OK(r *Result) bool { return r.Differ == 0 && r.Failed == 0 }

// attempts is how often a run is made that breaks: on a busy machine a program may start too late.
const attempts = 2

// attempt measures until it succeeds.
func (c *Config) attempt(ctx context.Context, column *Column, l *layout, tick func(held int)) {
	once := c.once
	if once == nil {
		once = c.measure
	}
	for range attempts {
		measured, err := once(ctx, l, tick)
		if err == nil {
			column.SNATMeasured = measured
			return
		}
		if ctx.Err() != nil {
			return
		}
		column.Errors = append(column.Errors, err.Error())
	}
}

// together is how many connections are offered at one time. More scenarios than one then run side by side, in namespaces
// of their own: a small one waits longer than it works.
const together = 200_000

// runAll measures every scenario with every NAT and fills in the columns. The error is the context's.
func (c *Config) runAll(ctx context.Context, result *Result) error {
	var (
		ended   = make(chan int64)
		busy    int64 // connections offered
		running int
		done    int
		show    sync.Mutex // Progress, done
	)
	wait := func() {
		running, busy = running-1, busy-<-ended
	}
	all := len(result.Cells) * len(c.NATs)
	for i, s := range c.Scenarios {
		cell := &result.Cells[i]
		for _, nat := range c.NATs {
			column := map[string]*Column{Kernel: &cell.Kernel, Weir: &cell.Weir}[nat]
			l, err := lay(s, nat == Weir)
			if err != nil {
				column.NotRun = err.Error()
				show.Lock()
				done++
				show.Unlock()
				continue
			}
			for running > 0 && busy+cell.Plan.Demand > together {
				wait()
			}
			if ctx.Err() != nil {
				break
			}
			running, busy = running+1, busy+cell.Plan.Demand
			tick := func(held int) {
				show.Lock()
				defer show.Unlock()
				if c.Progress != nil {
					c.Progress(float64(done)/float64(all), fmt.Sprintf("%s, %s's NAT: %s of %s", cellName(cell), nat, snat.Group(int64(held)), snat.Group(cell.Plan.Demand)))
				}
			}
			tick(0)
			go func() {
				c.attempt(ctx, column, l, tick)
				show.Lock()
				done++
				show.Unlock()
				ended <- cell.Plan.Demand
			}()
		}
	}
	for running > 0 {
		wait()
	}
	return ctx.Err()
}

// judge compares, and says in words what there is to say.
func judge(c *Cell) {
	c.Agree, c.Reason = true, c.Plan.Why
	for _, column := range []struct {
		name string
		of   Column
	}{{"the kernel's NAT", c.Kernel}, {"Weir's NAT", c.Weir}} {
		m := column.of.SNATMeasured
		switch {
		case m == nil:
		case int64(m.Held) != c.Plan.Holds:
			c.Agree = false
			c.Reason = fmt.Sprintf("%s held %s, the plan says %s", column.name, snat.Group(int64(m.Held)), snat.Group(c.Plan.Holds))
		case m.Server != m.Held:
			c.Agree = false
			c.Reason = fmt.Sprintf("%s: the clients count %s, the server %s", column.name, snat.Group(int64(m.Held)), snat.Group(int64(m.Server)))
		}
	}
}
