package bench

import (
	"context"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/procstat"
)

// Run is what every run needs.
type Run struct {
	Binary string // weir itself
	// Progress is called often with the share of the run that is done, 0 to 1, and what it does now; may be nil.
	Progress func(done float64, what string)
}

func (r *Run) progress(done float64, format string, args ...any) {
	if r.Progress != nil {
		r.Progress(min(done, 1), fmt.Sprintf(format, args...))
	}
}

// takeTurns calls do for every item in every round, so that a noisy machine disturbs all alike. Each round begins with
// another item: no one is always first.
func takeTurns[T any](ctx context.Context, rounds int, items []T, do func(round int, item T) error) error {
	for round := range rounds {
		for i := range items {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := do(round, items[(i+round)%len(items)]); err != nil {
				return err
			}
		}
	}
	return nil
}

// spread is what the rounds of one measurement lie between.
type spread struct{ median, low, high float64 }

// spreadOf ignores what is not a number; without any it is NaN.
func spreadOf(values []float64) spread {
	values = slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	if len(values) == 0 {
		return spread{math.NaN(), math.NaN(), math.NaN()}
	}
	return spread{median(values), slices.Min(values), slices.Max(values)}
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// machine describes where a run is made.
func machine() measure.Machine {
	m := measure.Machine{Cores: runtime.NumCPU(), Kernel: procstat.KernelRelease(), Go: runtime.Version()}
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return m
	}
	for line := range strings.Lines(string(info)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			m.CPU = strings.TrimSpace(value)
			break
		}
	}
	return m
}
