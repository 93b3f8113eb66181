package snat

import (
	"context"
	"fmt"
	"math"
	"time"

	v1 "github.com/weir-lb/weir/api/v1"
)

// The statuses.
const (
	Agrees    = "agrees"
	Differs   = "differs"
	Predicted = "predicted" // an open cell
	Moves     = "moves"     // transient: the clients pass the measured figure on their way to the ceiling and back
)

// transientTime is how long the original tester's clients are watched for a transient cell.
const transientTime = 2 * time.Hour

// Cell plans a scenario, valid and with its defaults, and holds the plan against what it expects. A transient cell is
// simulated with the original tester's clients. The error is the context's or the simulation's.
func (s Scenario) Cell(ctx context.Context) (Cell, error) {
	p := s.Plan()
	c := Cell{Scenario: s.Name, Table: s.Table, Expect: s.Expect, Predicted: p.Holds, Exact: p.Holds, Nodes: p.NodesPossible, Reason: p.Why, Plan: p}
	if s.Kind == Ceiling && p.Whole > 0 {
		c.Predicted = p.Whole
	}
	if s.Note != "" {
		c.Reason = s.Note
	}
	switch {
	case s.ExpectNodes != nil && *s.ExpectNodes != p.NodesPossible:
		c.Status = Differs
		c.Reason = fmt.Sprintf("%s nodes are possible, not %s", Group(p.NodesPossible), Group(*s.ExpectNodes))
	case s.Expect == nil:
		c.Status = Predicted
	case s.Kind == Transient:
		return c, s.transient(ctx, &c)
	case s.close(c.Predicted):
		c.Status = Agrees
	default:
		c.Status = Differs
	}
	return c, nil
}

// close reports whether a figure is within the tolerance of what is expected.
func (s Scenario) close(n int64) bool {
	return math.Abs(float64(n-*s.Expect)) <= s.Tolerance*float64(*s.Expect)
}

// transient watches the original tester: the figure is one of its readings if the plan's ceiling is above and the clients
// move past it.
func (s Scenario) transient(ctx context.Context, c *Cell) error {
	s.Traffic.Policy, s.Traffic.Duration, s.Traffic.Lifetime = Original, max(transientTime, s.Traffic.Duration), 0
	seen, held := v1.SNATSeen{}, 0
	run, err := Simulate(ctx, s, nil)
	if err != nil {
		return err
	}
	near := 0
	for _, n := range run.Series.Held {
		if n > 0 {
			held++
		}
		if s.close(n) {
			near++
		}
	}
	seen.Lowest, seen.Mean, seen.Peak, seen.Lives = run.Lowest, run.Mean, run.Peak, run.Restarts
	if held > 0 {
		seen.Near = float64(near) / float64(held)
	}
	c.Seen = &seen
	c.Status = Differs
	if *s.Expect <= c.Exact && run.Peak == c.Exact && run.Lowest < *s.Expect {
		c.Status = Moves
	}
	c.Reason = fmt.Sprintf("the ceiling is %s; the original tester's clients move between %s and it: %s", Group(c.Exact), Group(run.Lowest), s.Note)
	return nil
}
