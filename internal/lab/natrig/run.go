package natrig

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/weir-lb/weir/internal/lab/netlab"
	"github.com/weir-lb/weir/internal/lab/snatplan"
	"github.com/weir-lb/weir/internal/tcpscale"
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
	Scenarios []snatplan.Scenario             // valid, with their defaults
	NATs      []string                        // empty: both
	Place     tcpscale.Place                  // makes workers; its namespace is not used
	Binary    string                          // weir
	Progress  func(done float64, what string) // one call at a time
}

// Cell is a scenario: what was said, planned and counted.
type Cell struct {
	Table    string        `json:"table,omitempty"`
	Scenario string        `json:"scenario"`
	Expect   *int64        `json:"expect"` // what somebody measured; null: an open cell
	Kind     string        `json:"kind"`
	Plan     snatplan.Plan `json:"plan"`
	Kernel   Column        `json:"kernel"`
	Weir     Column        `json:"weir"`
	Agree    bool          `json:"agree"` // every count made is the plan's, on both ends
	Reason   string        `json:"reason"`
}

// Column is one NAT's count, or why there is none.
type Column struct {
	*Measured
	NotRun string `json:"not_run,omitempty"`
}

// Result is what `weir snat lab` prints.
type Result struct {
	At      time.Time `json:"at"`
	Took    float64   `json:"took_s"`
	Cells   []Cell    `json:"cells"`
	Runs    int       `json:"runs"`
	Differ  int       `json:"differ"` // cells that do not agree
	Verdict string    `json:"verdict"`
}

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

// Run measures all scenarios, as many side by side as are small. The error is of what broke on the way, or of the context; everything
// that was started is gone then.
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
	if err := sweepPins(); err != nil {
		return nil, err
	}
	if len(c.NATs) == 0 {
		c.NATs = NATs()
	}
	result := &Result{At: time.Now(), Cells: make([]Cell, len(c.Scenarios))}
	for i, s := range c.Scenarios {
		result.Cells[i] = Cell{Table: s.Table, Scenario: s.Name, Expect: s.Expect, Kind: string(s.Kind), Plan: s.Plan()}
	}
	if err := c.runAll(ctx, result); err != nil {
		return nil, err
	}
	for i := range result.Cells {
		cell := &result.Cells[i]
		if cell.judge(); !cell.Agree {
			result.Differ++
		}
		for _, column := range []Column{cell.Kernel, cell.Weir} {
			if column.Measured != nil {
				result.Runs++
			}
		}
	}
	result.Took = time.Since(result.At).Seconds()
	result.Verdict = fmt.Sprintf("%d scenarios, %d runs: each count is the plan's, to the connection.", len(result.Cells), result.Runs)
	if result.Differ > 0 {
		result.Verdict = fmt.Sprintf("%d of %d scenarios differ from the plan.", result.Differ, len(result.Cells))
	}
	return result, nil
}

// together is how many connections are offered at one time. More scenarios than one then run side by side, in namespaces
// of their own: a small one waits longer than it works.
const together = 200_000

// runAll measures every scenario with every NAT and fills in the columns. The first error ends all.
func (c *Config) runAll(ctx context.Context, result *Result) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	type end struct {
		weight int64
		err    error
	}
	var (
		ended   = make(chan end)
		busy    int64 // connections offered
		running int
		done    int
		show    sync.Mutex // Progress, done
	)
	wait := func() {
		e := <-ended
		running, busy = running-1, busy-e.weight
		if e.err != nil {
			cancel(e.err)
		}
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
					c.Progress(float64(done)/float64(all), fmt.Sprintf("%s, %s's NAT: %s of %s", cell.name(), nat, snatplan.Group(int64(held)), snatplan.Group(cell.Plan.Demand)))
				}
			}
			tick(0)
			go func() {
				var err error
				if column.Measured, err = c.measure(ctx, l, tick); err != nil {
					err = fmt.Errorf("%s, %s's NAT: %w", cell.name(), nat, err)
				}
				show.Lock()
				done++
				show.Unlock()
				ended <- end{cell.Plan.Demand, err}
			}()
		}
	}
	for running > 0 {
		wait()
	}
	return context.Cause(ctx)
}

// judge compares, and says in words what there is to say.
func (c *Cell) judge() {
	c.Agree, c.Reason = true, c.Plan.Why
	for _, column := range []struct {
		name string
		of   Column
	}{{"the kernel's NAT", c.Kernel}, {"Weir's NAT", c.Weir}} {
		m := column.of.Measured
		switch {
		case m == nil:
		case int64(m.Held) != c.Plan.Holds:
			c.Agree = false
			c.Reason = fmt.Sprintf("%s held %s, the plan says %s", column.name, snatplan.Group(int64(m.Held)), snatplan.Group(c.Plan.Holds))
		case m.Server != m.Held:
			c.Agree = false
			c.Reason = fmt.Sprintf("%s: the clients count %s, the server %s", column.name, snatplan.Group(int64(m.Held)), snatplan.Group(int64(m.Server)))
		}
	}
}
