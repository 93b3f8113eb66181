package finding

import (
	"context"
	"fmt"
)

// Collector has the findings of one examination. An examination embeds it. Its methods are for one goroutine.
type Collector struct {
	Findings []Finding // in the order in which they were found
}

// OK adds what is as it should be.
func (c *Collector) OK(what string, args ...any) {
	c.Findings = append(c.Findings, Finding{Level: OK, What: fmt.Sprintf(what, args...)})
}

// Bad adds what is not, with the remedy: a command, or what to change.
func (c *Collector) Bad(level Level, remedy, what string, args ...any) {
	c.Findings = append(c.Findings, Finding{Level: level, Remedy: remedy, What: fmt.Sprintf(what, args...)})
}

// Silent reports whether nothing was added since there were so many findings.
func (c *Collector) Silent(before int) bool { return len(c.Findings) == before }

// Check is one check of an examination E. Look returns an error if it could not read what it needs.
type Check[E any] struct {
	Name string
	Look func(E) error
}

// Run runs the checks one after the other, and gives the findings of each its name. It ends at the first error, and when ctx ends.
func Run[E any](ctx context.Context, c *Collector, e E, checks []Check[E]) ([]Finding, error) {
	for _, check := range checks {
		before := len(c.Findings)
		if err := check.Look(e); err != nil {
			return nil, fmt.Errorf("check %s: %w", check.Name, err)
		}
		for i := range c.Findings[before:] {
			c.Findings[before+i].Check = check.Name
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	return c.Findings, nil
}
